"""Commands that work on documents: index, notify, search, list and rebuild."""
