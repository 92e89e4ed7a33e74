"""What evaluation computes on: frames, windows, steps, and exact arithmetic over them."""
