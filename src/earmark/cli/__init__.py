"""The command line: options and printing only, one file per group of verbs.

- ``app``: ``demo``, ``run``, and what happens to mistakes and interrupts
- ``flags``: ``scan``, ``flag``
- ``checks``: ``check``, ``diff``, ``card``
- ``data``: ``lint``, ``hide``, ``subset``, ``split``, ``features``, ``export``, ``evaluate``
- ``models``: ``train``, ``score``, ``tag``, ``export-model``, ``models``
- ``experiments``: ``sweep``, ``compare``, ``iterate``, ``report``
- ``imports``: ``import``
- ``review``: ``queue``, ``review``, ``precision``, ``relabel``, ``judgements``
- ``options``: options that verbs share, and how they tell what they wrote

What a verb does is a function of :mod:`earmark.stages`.
"""
