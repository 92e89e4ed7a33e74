"""The bytes of the queue: batch objects, their frames, and the manifest."""
