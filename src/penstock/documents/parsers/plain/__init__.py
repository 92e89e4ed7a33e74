"""Formats that are text as they stand: plain text, Markdown, source code, JSON."""
