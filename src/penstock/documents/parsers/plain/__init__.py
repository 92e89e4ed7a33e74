"""Formats that are already text: plain text, Markdown, source code, JSON."""
