"""Every verb's work as one Python function with a typed result: what a notebook calls.

A stage opens what it needs, calls the rooms below, writes what it made into the workspace and
returns it. It takes a workspace or its folder, and a recipe (the one used last, where none is
given). It runs in this process unless an engine is passed, and shows its progress unless it is
given another. Options, printing and advice on what to do next belong to :mod:`earmark.cli`.

Rooms that import torch or a web server are imported inside the functions, because ``scan``,
``write_flags`` and most others do without.

>>> from earmark import pipeline
>>> pipeline.scan.__name__, pipeline.write_flags.__name__
('scan', 'write_flags')
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
