"""Planning: from events of the queue to waiting documents, and from those to the next round. Pure."""
