"""JobProgress an index of documents: what a listing means for it, what a bucket sent, and putting both on the queue."""
