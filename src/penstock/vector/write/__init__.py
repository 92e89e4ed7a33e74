"""Writing to a collection: which rows live and die, and the draft that makes it so."""
