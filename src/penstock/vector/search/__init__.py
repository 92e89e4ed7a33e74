"""Searching: the nearest rows, the rows with the words, and one ranking of both."""
