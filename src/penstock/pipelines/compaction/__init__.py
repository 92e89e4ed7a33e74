"""Merges of data files on Spark's executors."""
