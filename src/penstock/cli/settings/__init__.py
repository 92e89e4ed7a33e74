"""Settings and options: the file, the environment, what commands share, and the doors that they choose."""
