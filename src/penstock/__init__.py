"""Durable, exactly-once ingest and indexing on object storage and Spark."""
