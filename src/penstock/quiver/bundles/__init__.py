"""The unit of ingest, and its bytes in the log. No I/O."""
