"""EmbeddingRequests an index: which collection answers for it, what is known of its documents, and the passages that answer."""
