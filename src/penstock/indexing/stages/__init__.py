"""The heavy stages of a round: their inputs and outputs, what a task does, and the engine without Spark.

Nothing here knows the registry or the vector store: a worker that imports neither starts twice as fast.
"""
