"""Queries: the Prometheus HTTP API and SQL, over the data of one tenant."""
