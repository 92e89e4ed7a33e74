"""What lies in the store: keys, envelopes, families of blocks, directories of fragments. No input or output."""
