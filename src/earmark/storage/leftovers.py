"""Unfinished files and folders: their names, and how those of killed writers are removed.

A writer that fails takes its unfinished files away itself. One that is killed cannot, so the next
writer does: what a process of this machine left that is no more, and what one of another machine
left more than a day ago. Whatever has not exactly such a name,
``.FILE.MACHINE-PROCESS.XXXXXXXX.partial``, is somebody else's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from earmark.errors import counted

_NAME = re.compile(r"\..+\.([0-9a-f]{8})-([0-9]{1,10})\.[0-9a-f]{8}\.partial")
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
    """Return a path beside another for what is not finished; nobody else is given the same."""
    writer = f"{_machine()}-{os.getpid()}.{uuid.uuid4().hex[:8]}"
    return path.with_name(f"{_start(path)}{writer}{_SUFFIX}")


def sweep_leftovers(folder: str | Path, but: str = "") -> int:
    """Remove what killed writers left in a folder and all below it; return how many they were.

    ``but`` is a folder in it that is not looked through.
    """
    found: list[Path] = []
    for root, folders, files in os.walk(folder):
        names = [name for name in (*folders, *files) if name.endswith(_SUFFIX)]
        found += filter(_is_leftover, (Path(root, name) for name in names))
        is_first = Path(root) == Path(folder)
        folders[:] = [
            name for name in folders if name not in names and not (is_first and name == but)
        ]
    return _remove(found)


def sweep_beside(path: str | Path) -> int:
    """Remove what killed writers of one file or folder left beside it; return how many."""
    path = Path(path)
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    return _remove(
        [other for other in beside if other.name.startswith(_start(path)) and _is_leftover(other)]
    )


def swept_told(n_swept: int) -> str:
    """Say what was removed."""
    were = "was" if n_swept == 1 else "were"
    return f"{counted(n_swept, 'unfinished file')} of a killed run {were} removed"


def _start(path: Path) -> str:
    """Return how names of what is unfinished begin; names have 255 bytes at most."""
    return f".{path.name.encode(errors='replace')[:150].decode(errors='ignore')}."


def _is_leftover(path: Path) -> bool:
    """Tell whether a path has the name of an unfinished file whose writer is gone."""
    writer = _NAME.fullmatch(path.name)
    if writer is None:
        return False
    if writer[1] == _machine():
        return not _is_alive(int(writer[2]))
    try:
        return time.time() - path.stat().st_mtime > _OLD_SECONDS
    except OSError:
        return False


@cache
def _machine() -> str:
    """Identify this machine, or container: where the numbers of processes mean the same."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/etc/machine-id").read_text())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    try:  # of one that ended, the number lives on until its parent asks for the exit code
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state not in "ZX"


def _remove(paths: Iterable[Path]) -> int:
    n_removed = 0
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        n_removed += not path.exists()
    return n_removed
