"""Datasets as their makers released them: FSD50K and OpenMIC, each in its official layout."""
