"""Where segments go: the port of outlets, and the shipped ones: queues, Parquet files, OTLP collectors."""
