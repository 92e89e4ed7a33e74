"""The dashboard: whether anything is lost or late, in one look, and a page for each part behind it."""
