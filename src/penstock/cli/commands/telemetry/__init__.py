"""Commands that work on telemetry: what enters, what lands in files and series, and SQL over it."""
