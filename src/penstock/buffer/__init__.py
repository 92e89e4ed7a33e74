"""Hand batches over through object storage."""
