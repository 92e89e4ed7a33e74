"""A simulation driven by one seed: the event loop, its processes, and campaigns over many seeds."""
