"""The workspace, and how data gets into it.

A workspace is one folder with the clips, classes and labels of a dataset and all that is made from
them; its paths are named in ``workspace`` alone. Importers bring data of others in (one file or
folder each, one row in ``importer``), ``extraction`` turns sound into frames, ``quarantine`` lists
what could not be used, ``derived`` makes workspaces from others, and ``label_versions`` reads the
labels as given, as corrected and as they truly are.

What a label, a score or a frame is belongs to the rooms below; nothing here trains or flags.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
