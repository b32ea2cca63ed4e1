"""The command line: what commands print, and options made from the functions that do the work.

- ``app``: the commands by audience, and what happens to errors and interrupts
- ``flags``: ``find``, ``scan``, ``flag``
- ``review``: ``review``, ``answers``, ``relabel``
- ``checks``: ``check``, ``diff``
- ``data``: ``import``, ``features``, ``export``
- ``models``: ``train``, ``score``, ``tag``, ``evaluate``, ``teachers``
- ``experiments``: ``demo``, ``run``, ``sweep``, ``compare``, ``report``
- ``commands``: makes the options of a command from the signature of the function that does its work
- ``printing``: prints results in 15 lines of 80 columns, or as JSON

A command is a thin shell over a function of :mod:`earmark.pipeline` or :mod:`earmark.datasets`.
"""
