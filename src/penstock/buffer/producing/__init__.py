"""From records to a durable place in the queue: batching, upload, and one entry for each group."""
