"""What killed writers left behind: unfinished files and folders, which bear their writer's name.

A writer that fails takes them away itself. One that is killed cannot, so the next does: what a
process of this machine left that is no more, and what any other left more than a day ago. What had
made way for a folder that never came is put back.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from earmark.errors import EarmarkWarning, counted
from earmark.runs.writers.processes import Process

EARLIER = "earlier"
"""Where an unfinished folder keeps what makes way for it, under its own name."""

_SUFFIX = ".partial"
_OLD_SECONDS = 86_400.0


_workers_ended = threading.Event()


def expect_leftovers() -> None:
    """Note that workers of this process were ended, who may have been writing."""
    _workers_ended.set()


def sweep_expected(folder: str | Path) -> None:
    """Remove what ended workers of this process left in a folder; without any, look nowhere."""
    if _workers_ended.is_set():
        _workers_ended.clear()
        sweep_leftovers(folder)


def aside_of(path: Path) -> Path:
    """Return a place beside a path for what is not finished; it is nobody else's."""
    return path.with_name(f"{_start(path)}{Process.here()}.{uuid.uuid4().hex[:8]}{_SUFFIX}")


def find_leftovers(folder: str | Path, but: str = "") -> Iterator[Path]:
    """Yield what killed writers left in a folder and all below it, ``but`` for one folder in it."""
    for root, folders, files in os.walk(folder):
        names = [name for name in (*folders, *files) if name.endswith(_SUFFIX)]
        yield from _left(Path(root, name) for name in names)
        is_first = Path(root) == Path(folder)
        folders[:] = [one for one in folders if one not in names and not (is_first and one == but)]


def sweep_leftovers(folder: str | Path, but: str = "") -> int:
    """Remove what killed writers left in a folder and all below it; return how many they were."""
    return _remove(list(find_leftovers(folder, but)))


def sweep_beside(path: str | Path) -> int:
    """Remove what killed writers of one file or folder left beside it; return how many."""
    path = Path(path)
    if not path.parent.is_dir():
        return 0
    start = _start(path)
    return _remove(list(_left(one for one in path.parent.iterdir() if one.name.startswith(start))))


def put_back(scratch: Path) -> list[Path]:
    """Put what made way for an unfinished folder back where nothing came; return what was."""
    back = []
    for path in (scratch / EARLIER).glob("*"):
        place = scratch.with_name(path.name)
        if not place.exists():
            path.rename(place)
            back.append(place)
    return back


def swept_told(n_swept: int) -> str:
    """Say what was removed."""
    return f"{counted(n_swept, 'unfinished file')} of a killed run {_were(n_swept)} removed"


def _start(path: Path) -> str:
    """Return how names of what is unfinished begin; names have 255 bytes at most."""
    return f".{path.name.encode(errors='replace')[:150].decode(errors='ignore')}."


def _were(n_swept: int) -> str:
    return "was" if n_swept == 1 else "were"


def _left(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        found = re.search(r"\.([^.]+)\.[0-9a-f]{8}\.partial$", path.name)
        process = Process.named(found[1]) if found else None
        is_dead = process is not None and process.is_dead
        if path.name.endswith(_SUFFIX) and (is_dead or _is_old(path, process)):
            yield path


def _is_old(path: Path, process: Process | None) -> bool:
    """Tell whether something of an unknown writer is old enough to be nobody's."""
    if process is not None and process.is_here:
        return False
    try:
        return time.time() - path.stat().st_mtime > _OLD_SECONDS
    except OSError:
        return False


def _remove(paths: Iterable[Path]) -> int:
    n_removed = 0
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            _tell_put_back(put_back(path))
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        n_removed += not path.exists()
    return n_removed


def _tell_put_back(places: Iterable[Path]) -> None:
    for place in places:
        told = f"{place}: put back; what was to replace it was killed before it came"
        warnings.warn(told, EarmarkWarning, stacklevel=5)
