"""What the catalog's objects look like in bytes, and in memory: pure, and without any decision."""
