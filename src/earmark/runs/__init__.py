"""What a run is made of: its parameters, its files on disk, and where its work is done.

Here live the frozen parameter records with their digests, recipes, artefacts that are either whole
or not there, readers of the tables and arrays that others wrote (with the words that people write
for present and not present), what a cell of an audio column may open, progress, and the engines
that run tasks: this process, the cores of this machine, or a Ray cluster.

Nothing here knows what a label, a score or a sound is; every other room may use it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
