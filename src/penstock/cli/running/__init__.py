"""Processes around a job: Spark with its class archive, signals, and a clean shutdown."""
