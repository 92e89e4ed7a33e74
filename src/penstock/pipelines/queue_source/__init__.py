"""The queue on object storage as a source of Spark, streaming and batch."""
