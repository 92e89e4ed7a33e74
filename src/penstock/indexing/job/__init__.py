"""The job around the rounds: the store's only writer, its threads, its patience, and what it tells of its work."""
