"""Processes around a job: Spark with its class archive, signals, and an end in good order."""
