"""What lies in the store, decoded: blocks, keys, records and states, and what rows are made into. No I/O."""
