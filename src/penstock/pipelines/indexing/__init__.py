"""The indexing job on Spark: its stages on executors, and the streaming query around them."""
