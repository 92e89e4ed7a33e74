"""Keeping collections in shape and whole: steps of upkeep and when they are due, checking, mending, repair."""
