"""From the text of an expression to its typed syntax tree."""
