"""Commands about the whole product: what serves it, its configuration, and the tokens of its callers."""
