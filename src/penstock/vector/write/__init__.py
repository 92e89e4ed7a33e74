"""Writing to a collection: which rows live and die, and the draft of the write."""
