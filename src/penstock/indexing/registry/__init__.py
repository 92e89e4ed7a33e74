"""What an index stores besides its vectors: its documents, its settings, and whether it is being rebuilt."""
