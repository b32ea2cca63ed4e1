"""The workspace, and how data gets into it.

A workspace is one folder with the clips, classes and labels of a dataset and all that is made from
them; its paths are named in ``workspace`` alone. ``importers`` bring data of others in,
``audio_files`` finds sound in folders and archives, ``extraction`` turns sound into frames and
lists what could not be used, ``derived`` makes workspaces from others, ``label_versions`` reads the
labels as given, as corrected and as they truly are, and ``stamps`` tells what has become stale.

What a label, a score or a frame is belongs to the packages below; nothing here trains or flags.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
