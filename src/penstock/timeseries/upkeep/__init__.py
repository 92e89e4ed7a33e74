"""Upkeep: merges closed hours, removes old ones, and verifies everything."""
