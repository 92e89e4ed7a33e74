"""Reading: blocks and directories, heads, positions, and states of one moment."""
