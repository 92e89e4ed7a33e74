"""The process that parses, its parent's side, and the messages between them."""
