"""A dataset looked at: its files, what is missing in it, what changed, and its card."""
