"""Samples of a time-series store as a Spark source."""
