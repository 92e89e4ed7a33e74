"""Telemetry in: every protocol becomes one bundle, acknowledged once it is durable."""
