"""Formats that are already text: plain text, text with marked-up headings, source code, JSON."""
