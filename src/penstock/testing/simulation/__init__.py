"""A world that one seed decides: the loop, the processes in it, and campaigns over many seeds."""
