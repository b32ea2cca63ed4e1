"""The chance that a label is missing: by its class and score, by what else is known, by ear."""
