"""Sending events to an index: from listings of places, from notifications of buckets, to the queue."""
