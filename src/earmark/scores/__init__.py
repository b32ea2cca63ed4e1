"""Scores."""
