"""Where batches of a queue go without Spark: into the stores of series and of vectors, each counted once."""
