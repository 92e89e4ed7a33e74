"""Text for people: tables, plots, snippets, progress, and files that are handed to a command."""
