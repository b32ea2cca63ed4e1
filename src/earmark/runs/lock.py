"""One writer at a time in a folder.

The lock is a small file in the folder that says who writes: verb, process, machine, since when. It
is made by linking a file that is whole already, which is atomic on local and network file systems
alike. A second writer is refused with what the file says. A lock whose process is dead, as after a
power cut or a kill, is taken over; on another machine nobody can tell, so there the message says
what to delete. Readers never ask.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from earmark.errors import EarmarkError

LOCK = ".lock.json"


@dataclass(frozen=True)
class Holder:
    """Who writes: ``born`` tells a process from a later one with the same number."""

    verb: str
    process: int
    born: str
    host: str
    since: str
    token: str

    @classmethod
    def here(cls, verb: str) -> Holder:
        """Return this process as a holder."""
        process, since = os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(verb, process, _born(process), socket.gethostname(), since, uuid.uuid4().hex)

    @property
    def is_dead(self) -> bool:
        """Whether the process is known to be gone; nobody knows of another machine's."""
        return self.host == socket.gethostname() and _born(self.process) != self.born


class _Held(threading.local):
    """The folders that this thread holds already, so that a stage can call another."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()


_held = _Held()


@contextmanager
def writing(folder: str | Path, verb: str) -> Iterator[None]:
    """Be the only one that writes in a folder; refuse where another process does.

    The folder is made if it is not there. Within, the same thread may ask again.
    """
    place = Path(folder).resolve()
    if place in _held.folders:
        yield
        return
    place.mkdir(parents=True, exist_ok=True)
    holder = Holder.here(verb)
    _take(place / LOCK, holder)
    _held.folders.add(place)
    try:
        yield
    finally:
        _held.folders.discard(place)
        _give_back(place / LOCK, holder)


def _take(lock: Path, holder: Holder) -> None:
    """Take a lock, or that of a dead process; three tries, for others may do the same."""
    for _ in range(3):
        if _link(lock, holder):
            return
        other = _read(lock)
        if other is None:
            continue  # given back between the two
        if not other.is_dead:
            raise EarmarkError(_refusal(lock, other))
        _bury(lock, other)
    raise EarmarkError(f"{lock.parent}: others keep taking its lock; try again")


def _link(lock: Path, holder: Holder) -> bool:
    """Put a whole file in place if there is none; tell whether it worked."""
    aside = lock.with_name(f".{holder.token}.partial")
    try:
        aside.write_text(json.dumps(asdict(holder)), encoding="utf-8")
        os.link(aside, lock)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    return True


def _read(lock: Path) -> Holder | None:
    """Return who holds a lock; None where nobody does. A file that says nothing is nobody's."""
    try:
        told = json.loads(lock.read_text(encoding="utf-8"))
        return Holder(**{name: told[name] for name in Holder.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        raise EarmarkError(
            f"{lock}: says nothing of who holds it; if no other earmark runs here, delete it"
        ) from None


def _bury(lock: Path, dead: Holder) -> None:
    """Take a dead process's lock away. Who claims it may; tokens never come back, so late is safe.

    One process could look, fall asleep, and delete the lock that another has taken meanwhile.
    """
    claim = lock.with_name(f".{dead.token}.buried")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        time.sleep(0.1)  # another is about to
        return
    try:
        if _read(lock) == dead:
            lock.unlink()
    finally:
        claim.unlink(missing_ok=True)


def _give_back(lock: Path, holder: Holder) -> None:
    with suppress(EarmarkError, OSError):
        if _read(lock) == holder:
            lock.unlink()


def _refusal(lock: Path, other: Holder) -> str:
    who = f"the verb {other.verb} (process {other.process} on {other.host}, since {other.since})"
    if other.host == socket.gethostname():
        return f"{lock.parent}: {who} is writing here; wait for it, or stop it first"
    return f"{lock.parent}: {who} is writing here; wait for it. If it is gone, delete {lock}"


def _born(process: int) -> str:
    """Return when a process began, as the system counts; empty where there is none."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        return "alive" if not Path("/proc/self").exists() and _is_alive(process) else ""


def _is_alive(process: int) -> bool:
    """Tell whether a process runs, where there is no /proc."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
