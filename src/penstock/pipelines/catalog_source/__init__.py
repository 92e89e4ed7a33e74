"""Tables of a catalog as a Spark source."""
