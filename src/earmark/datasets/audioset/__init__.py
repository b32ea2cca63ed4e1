"""Audioset."""
