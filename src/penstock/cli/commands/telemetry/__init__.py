"""Commands that work on telemetry: ingest, landing, SQL and compaction."""
