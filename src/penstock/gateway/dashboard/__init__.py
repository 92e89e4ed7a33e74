"""The dashboard: whether anything is lost or late, and a page for each part."""
