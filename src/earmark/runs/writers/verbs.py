"""Who may write in a workspace: one verb at a time.

Every function that changes a workspace holds its lock (:mod:`earmark.runs.writers.lock`) while it
runs, and may call others that do. Readers ask for none, and neither does the listening page, whose
answers and blocks are kept by SQLite.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from earmark.runs.writers.lock import writing

INSIDE = "workspace"
"""Where the folder of a scan keeps its workspace."""

_SEAL = "labels.parquet"
"""What a folder has that is itself a workspace."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Rooted(Protocol):
    """A workspace, of which no more is known here than its folder."""

    @property
    def root(self) -> Path:
        """The folder."""


@contextmanager
def writing_in(work: str | Path | Rooted, verb: str, *, makes: bool = False) -> Iterator[None]:
    """Be the only one that writes in a workspace; refuse where another process does.

    Where there is no such folder it is made if the verb ``makes`` workspaces, and else left to the
    verb to refuse.
    """
    root = Path(work if isinstance(work, str | Path) else work.root)
    inside = root / INSIDE
    if not makes and inside.is_dir() and not (root / _SEAL).exists():
        root = inside
    if not makes and not root.is_dir():
        yield
        return
    with writing(root, verb):
        yield


def writes(
    verb: str, into: str = "work", *, makes: bool = False
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Have a function hold the lock of the workspace that its parameter ``into`` names.

    ``verb`` is what others are told about who writes; for ``makes`` see :func:`writing_in`.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def alone(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            work: Any = given.arguments[into]
            with writing_in(work, verb, makes=makes):
                return function(*args, **kwargs)

        alone.writes = verb  # type: ignore[attr-defined]
        return alone

    return decorate
