"""Scores that their owner brings: a scan of them with labels, or given to a workspace."""
