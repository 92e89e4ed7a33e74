"""What every subscriber has done: the state, its records, and `ack.log`."""
