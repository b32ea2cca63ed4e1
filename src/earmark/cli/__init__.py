"""The command line: printing, and options made from what functions say of their parameters.

- ``app``: ``demo``, ``run``, and what happens to mistakes and interrupts
- ``flags``: ``scan``, ``flag``
- ``teachers``: ``find``, ``teachers``
- ``review``: ``review``, ``answers``, ``relabel``
- ``checks``: ``check``, ``diff``
- ``data``: ``features``, ``export``, ``evaluate``
- ``models``: ``train``, ``score``, ``tag``
- ``experiments``: ``sweep``, ``compare``, ``report``
- ``imports``: ``import``
- ``commands``: how options are made from the signature of the function that does the work
- ``options``: options that verbs share beside these, and how they tell what they wrote
- ``verbs``: which commands there are, for whom, and what became of those of earlier versions

What a verb does is a function of :mod:`earmark.pipeline` or an importer of :mod:`earmark.datasets`.
"""
