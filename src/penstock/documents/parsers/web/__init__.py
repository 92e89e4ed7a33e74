"""Pages and messages: HTML, and email with the pages that it carries."""
