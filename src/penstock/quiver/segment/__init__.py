"""From bundles in memory to immutable Arrow files."""
