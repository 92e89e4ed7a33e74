"""Pages, messages, Markdown with the HTML that it carries, and notebooks with their Markdown."""
