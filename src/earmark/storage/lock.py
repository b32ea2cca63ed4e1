"""One writer at a time in a folder: every function that changes a workspace holds its lock.

The lock is that of the operating system on the file ``.lock`` (by filelock), which frees it when
its process ends, however it ends. Beside it ``.lock.json`` says who writes: verb, owner, process,
host, since when. A second writer is refused with what that file says, or waits so many seconds as
``EARMARK_WAIT_SECONDS`` has. Writers may call one another. Readers ask for no lock, and neither
does the listening page, whose answers and blocks are kept by SQLite.
"""

from __future__ import annotations

import functools
import getpass
import inspect
import json
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.storage.artefacts import make_folder, write_json
from earmark.storage.leftovers import sweep_expected, sweep_leftovers, swept_told

if TYPE_CHECKING:
    from filelock import FileLock

LOCK = ".lock"
HOLDER = ".lock.json"
WAIT = "EARMARK_WAIT_SECONDS"

INSIDE = "workspace"
"""Where the folder of a scan keeps its workspace."""

_SEAL = "labels.parquet"
"""What a folder has that is itself a workspace."""

_LEAST_SECONDS = 0.3
"""How long every writer waits: a reader that looks who writes has the lock for an instant."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Rooted(Protocol):
    """A workspace, of which no more is known here than its folder."""

    @property
    def root(self) -> Path:
        """The folder."""


@dataclass(frozen=True)
class Holder:
    """Who writes."""

    verb: str
    owner: str
    host: str
    process: str
    since: str

    @classmethod
    def here(cls, verb: str) -> Holder:
        """Return this process as a holder."""
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            owner = getpass.getuser()
        except (KeyError, OSError):  # a user without a name, as in containers
            owner = str(os.getuid())
        return cls(verb, owner, socket.gethostname(), str(os.getpid()), since)

    @property
    def told(self) -> str:
        """Who it is, in words."""
        return (
            f"`{self.verb}` (process {self.process}, {self.owner} on {self.host}, "
            f"since {self.since})"
        )


UNKNOWN = Holder("an unknown command", "somebody", "an unknown host", "unknown", "an unknown time")
"""Whoever holds a lock whose ``.lock.json`` is missing or damaged."""


_held = threading.local()
"""``folders`` are those that this thread holds already, so that a stage can call another."""


@contextmanager
def writing(folder: str | Path, verb: str) -> Iterator[None]:
    """Be the only one that writes in a folder; refuse where another process does.

    The folder is made if it is not there. Within, the same thread may ask again. Of processes that
    train one network together the first asks for all.
    """
    folder = Path(folder).resolve()
    if folder in _held_folders() or os.environ.get("RANK", "0") != "0":
        yield
        return
    is_new, process = not folder.is_dir(), os.getpid()
    try:
        make_folder(folder)
    except (FileExistsError, NotADirectoryError):
        raise EarmarkError(
            f"{folder}: a file is where a folder should be; give another name"
        ) from None
    lock = _acquire(folder)
    _held_folders().add(folder)
    try:
        _clean(folder)
        write_json(folder / HOLDER, asdict(Holder.here(verb)))
        yield
    except BaseException:
        sweep_expected(folder)
        raise
    finally:
        _held_folders().discard(folder)
        if os.getpid() == process:  # and no fork of it
            _release(folder, lock, is_new)


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


def holder_of(folder: str | Path) -> Holder | None:
    """Return who writes in a folder now; None where nobody does."""
    folder = Path(folder).resolve()
    if folder in _held_folders():
        return _read_holder(folder)
    if not (folder / LOCK).exists():
        return None
    from filelock import FileLock, Timeout  # loads asyncio, which readers need not wait for

    try:
        with FileLock(folder / LOCK, timeout=0):
            return None
    except Timeout:
        return _read_holder(folder) or UNKNOWN
    except OSError:  # somebody else's folder, in which this user may not ask
        return _read_holder(folder)


def refuse_written(folder: str | Path) -> None:
    """Refuse a folder in which another process writes just now, for want of what it writes."""
    folder = Path(folder).resolve()
    other = None if folder in _held_folders() else holder_of(folder)
    if other is not None:
        raise EarmarkError(_refusal(folder, other))


def _held_folders() -> set[Path]:
    folders: set[Path] = _held.__dict__.setdefault("folders", set())
    return folders


def _acquire(folder: Path) -> FileLock:
    """Take the lock as soon as it can be had; refuse when time is up."""
    from filelock import FileLock, Timeout  # loads asyncio, which readers need not wait for

    lock, patience_seconds = FileLock(folder / LOCK, thread_local=False), _patience_seconds()
    for timeout_seconds in (_LEAST_SECONDS, patience_seconds):
        try:
            lock.acquire(timeout=timeout_seconds)
            return lock
        except Timeout:
            other = _read_holder(folder) or UNKNOWN
            if patience_seconds and timeout_seconds == _LEAST_SECONDS:
                warnings.warn(f"waiting for {other.told}", EarmarkWarning, stacklevel=4)
    raise EarmarkError(_refusal(folder, other))


def _read_holder(folder: Path) -> Holder | None:
    """Return who says to write in a folder; None where nobody does."""
    try:
        noted = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        return Holder(**{field.name: str(noted[field.name]) for field in fields(Holder)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        return UNKNOWN


def _clean(folder: Path) -> None:
    """Remove what killed writers left; without a killed one sounds are too many to look through."""
    killed = _read_holder(folder)
    n_swept = sweep_leftovers(folder, but="audio" if killed is None else "")
    notes = [f"{killed.told} was killed here; what it finished is kept"] if killed else []
    notes += [swept_told(n_swept)] if n_swept else []
    if notes:
        warnings.warn(f"{folder}: {'; '.join(notes)}", EarmarkWarning, stacklevel=4)


def _release(folder: Path, lock: FileLock, is_new: bool) -> None:
    with suppress(OSError):
        (folder / HOLDER).unlink(missing_ok=True)
        if is_new and os.listdir(folder) == [LOCK]:  # nothing came of it
            (folder / LOCK).unlink()
            folder.rmdir()
    lock.release()


def _refusal(folder: Path, other: Holder) -> str:
    return (
        f"{folder}: {other.told} is writing here; wait for it, or stop it first "
        f"({WAIT}=600 waits ten minutes)."
    )


def _patience_seconds() -> float:
    text = os.environ.get(WAIT, "0")
    try:
        return max(float(text), 0.0)
    except ValueError:
        raise EarmarkError(f"{WAIT}={text!r}: not a number of seconds") from None
