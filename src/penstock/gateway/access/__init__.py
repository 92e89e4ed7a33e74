"""Access control: tokens, names from outside, quotas."""
