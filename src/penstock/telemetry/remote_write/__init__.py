"""Prometheus remote write, versions 1 and 2, decoded into columns."""
