"""Documents in and out: uploads, notifications, search, and the state of each document."""
