"""The telemetry job on Spark: its heavy stage on executors, everything else on the driver."""
