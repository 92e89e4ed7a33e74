"""Real servers on this machine: object stores, an embedding endpoint, a Spark cluster."""
