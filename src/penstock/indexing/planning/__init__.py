"""From events of the queue to documents that wait, and from those to the next round. Pure."""
