"""Commands about this machine: what it gives Penstock to stand on, and a demonstration."""
