"""Searching: the nearest rows, the rows that have the words, and one answer of both."""
