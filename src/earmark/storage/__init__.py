"""Files: whole or not there, with manifests, tables, arrays, and the lock of a workspace.

Readers of tables and arrays that others wrote check what a file claims before they read it.
Nothing here knows what a label, a score or a sound is.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
