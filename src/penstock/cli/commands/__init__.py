"""The commands themselves: options and arguments, a call to what does the work, and what is printed."""
