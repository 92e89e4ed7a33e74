"""Searching an index: the collection that answers for it, the status of its documents, and the passages that match."""
