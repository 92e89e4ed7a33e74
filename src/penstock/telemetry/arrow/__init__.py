"""Arrow streams and JSON lines, checked against the schemas of signals."""
