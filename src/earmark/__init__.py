"""Find the labels that a large multi-label sound dataset is missing, and train unhurt by them.

The package follows Fonseca et al. 2020 and reads like it: a few rooms, each with a noun of the
paper, and each importing only the rooms below it (ARCHITECTURE.md has the tree, the layers and four
walks through them).

- ``cli``: options and printing; ``pipeline``: every verb's work as one Python function
- ``report``: numbers into words, tables, figures and pages
- ``experiments``: students, compared; ``review``: flags heard by people, and labels corrected
- ``training``: one loop for teachers and students; ``networks``: what is trained
- ``flags``: which labels are suspect, how many, how likely; ``datasets``: the workspace and how
  data gets into it
- ``scores``: what a teacher said; ``metrics``: how good that is; ``audio``: sound to frames
- ``labels``: what people said; ``losses``: equations (1) and (2)
- ``runs``: parameters, recipes, files on disk, tasks; ``errors``: users' mistakes
"""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__version__ = "0.1.0"  # the one place: pyproject.toml and `earmark --version` read it here


@functools.cache
def _read_stub() -> tuple[Callable[[str], object], object, list[str]]:
    """Read from ``__init__.pyi`` where each public name lives.

    lazy_loader takes a while to load, and the command line sets its signal handlers before that.
    """
    import lazy_loader

    return lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Load a public name; say which extra brings a library that it cannot do without."""
    load, _, names = _read_stub()
    if name == "__all__":
        return names
    try:
        return load(name)
    except ModuleNotFoundError as error:
        from earmark.errors import missing_library

        raise missing_library(error, f"earmark.{name}") or error from None


def __dir__() -> list[str]:
    """List the public names and no others, for a prompt's completion."""
    return _read_stub()[2]
