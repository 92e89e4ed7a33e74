"""The job around the rounds: the store's only writer, its threads, its retries, and its progress."""
