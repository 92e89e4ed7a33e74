"""The write-ahead log, written and replayed."""
