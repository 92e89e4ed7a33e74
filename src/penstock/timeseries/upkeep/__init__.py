"""Upkeep: closed hours folded, old ones removed, and everything checked."""
