"""What commands print about a store: its queue, segments, series, vectors and documents."""
