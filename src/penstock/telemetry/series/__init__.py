"""Rows of metrics as samples of named series."""
