"""The columns that decoders build: schemas of signals, attributes, and rows that were refused."""
