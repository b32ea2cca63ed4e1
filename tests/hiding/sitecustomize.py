"""Make a Python without some libraries: those named in HIDDEN_LIBRARIES cannot be found.

Python runs this file at its start if its folder is on PYTHONPATH; processes that it starts do so
too. To the program it is as if the libraries were not installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

HIDDEN = frozenset(os.environ.get("HIDDEN_LIBRARIES", "").split())


class NearSighted(PathFinder):
    """Finds modules as Python does, except those that are hidden."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in HIDDEN:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path = [NearSighted if finder is PathFinder else finder for finder in sys.meta_path]
