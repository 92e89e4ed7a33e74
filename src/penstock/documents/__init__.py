"""Documents: contracts, notifications, parsers, tokens, chunking, batching and embedding. Pure logic, no Spark."""
