"""Who may ask, and how much: tokens, names from outside, quotas."""
