"""What commands show of a store: its queue, segments, series, vectors and documents."""
