"""Targets of segments: the outlet interface, and queues, Parquet files and OTLP collectors."""
