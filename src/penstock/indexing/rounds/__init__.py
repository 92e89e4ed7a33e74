"""One round: from what was read to batches, and from their answers to the rows that are written. Pure."""
