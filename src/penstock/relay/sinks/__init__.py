"""Sinks for batches of a queue, without Spark: the stores of series and of vectors, exactly once."""
