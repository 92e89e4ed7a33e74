"""What `penstock serve` runs: the gateway, the store at the edge, readers for queries, and supervised jobs."""
