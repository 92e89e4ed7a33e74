"""Commands about this machine: doctor and demo."""
