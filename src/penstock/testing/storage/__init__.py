"""Storage that fails: object stores with a plan of faults, and a disk that forgets what was not synced."""
