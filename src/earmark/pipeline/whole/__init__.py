"""Verbs that go through all stages, from the data to the report: ``run`` and ``demo``."""
