"""Settings and options: the file, the environment, shared options, and the wiring of commands."""
