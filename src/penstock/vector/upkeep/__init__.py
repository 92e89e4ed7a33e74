"""Upkeep of collections: its steps and when they are due, verification and repair."""
