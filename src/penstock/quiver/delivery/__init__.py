"""Segments on their way to subscribers."""
