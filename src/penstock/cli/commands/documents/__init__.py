"""Commands that work on documents: what enters an index, what is found in it, and what became of each."""
