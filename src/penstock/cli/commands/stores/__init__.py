"""Commands that look into the stores of one room each, verify, tidy and repair them."""
