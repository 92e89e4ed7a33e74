"""What may come in, what has to go, and the cap that instances share."""
