"""What an index remembers beside its vectors: its documents, its settings, and that it is being rebuilt."""
