"""Where work runs: this process, the cores of this machine, or a Ray cluster; and its progress."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
