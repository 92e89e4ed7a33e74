"""The parts of `penstock demo`: real processes that are killed, and a count of what arrived."""
