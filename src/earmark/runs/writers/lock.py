"""One writer at a time in a folder.

The lock is a small file in the folder that says who writes: verb, owner, process, machine, since
when. It is made by linking a file that is whole already, which is atomic on local and network file
systems alike; where there are no links, by a file that must not be there yet. A second writer is
refused with what the file says, or waits so many seconds as ``EARMARK_WAIT_SECONDS`` has. A lock
whose process is dead, as after a power cut or a kill, is taken over, and what it left unfinished is
removed; on another machine nobody can tell, so there the message says what to delete. Readers
never ask.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from earmark.errors import EarmarkError, EarmarkWarning, quoted
from earmark.runs.writers.leftovers import aside_of, sweep_expected, sweep_leftovers, swept_told
from earmark.runs.writers.processes import Process

LOCK = ".lock.json"
WAIT = "EARMARK_WAIT_SECONDS"
_CLAIM_SECONDS = 60.0


@dataclass(frozen=True)
class Holder:
    """Who writes; ``process`` is the name of a :class:`Process`."""

    verb: str
    owner: str
    host: str
    process: str
    since: str
    token: str

    @classmethod
    def here(cls, verb: str) -> Holder:
        """Return this process as a holder."""
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(
            verb, _owner(), socket.gethostname(), str(Process.here()), since, uuid.uuid4().hex
        )

    @property
    def known(self) -> Process | None:
        """The process, where its name can be read."""
        return Process.named(self.process)

    @property
    def is_dead(self) -> bool:
        """Whether the process is known to be gone; nobody knows of another machine's."""
        return self.known is not None and self.known.is_dead

    @property
    def told(self) -> str:
        """Who it is, in words."""
        number = "" if self.known is None else f"process {self.known.number}, "
        return f"`{self.verb}` ({number}{self.owner} on {self.host}, since {self.since})"


class _Held(threading.local):
    """The folders that this thread holds already, so that a stage can call another."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()


_held = _Held()


@contextmanager
def writing(folder: str | Path, verb: str) -> Iterator[None]:
    """Be the only one that writes in a folder; refuse where another process does.

    The folder is made if it is not there. Within, the same thread may ask again. Of processes that
    train one network together the first asks for all.
    """
    place = Path(folder).resolve()
    if place in _held.folders or os.environ.get("RANK", "0") != "0":
        yield
        return
    is_new = _make(place)
    holder = Holder.here(verb)
    _take(place, holder)
    _held.folders.add(place)
    try:
        _tidy(place)
        yield
    except BaseException:
        sweep_expected(place)
        raise
    finally:
        _held.folders.discard(place)
        _give_back(place / LOCK, holder)
        if is_new:
            with suppress(OSError):
                place.rmdir()  # nothing came of it


def holder_of(folder: str | Path) -> Holder | None:
    """Return who writes in a folder, dead or alive; None where nobody does."""
    return _read(Path(folder) / LOCK)


def refuse_written(folder: str | Path) -> None:
    """Refuse a folder in which another process writes just now, for want of what it writes."""
    place = Path(folder).resolve()
    other = None if place in _held.folders else holder_of(place)
    if other is not None and not other.is_dead:
        raise EarmarkError(_refusal(place / LOCK, other))


def _make(place: Path) -> bool:
    """Make a folder; tell whether it was not there."""
    if place.is_dir():
        return False
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise EarmarkError(
            f"{place}: a file is where a folder should be; give another name"
        ) from None
    return True


def _take(place: Path, holder: Holder) -> None:
    """Take a lock, or that of a dead process, as soon as it can be had; refuse when time is up."""
    deadline, is_told = time.monotonic() + _patience_seconds(), False
    while (other := _tried(place, holder)) is not None:
        if time.monotonic() >= deadline:
            raise EarmarkError(_refusal(place / LOCK, other))
        if not is_told:
            warnings.warn(f"waiting for {other.told}", EarmarkWarning, stacklevel=4)
        is_told = True
        time.sleep(0.2)


def _tried(place: Path, holder: Holder) -> Holder | None:
    """Take a lock, and return None; or return who has it. Others may do the same meanwhile."""
    lock = place / LOCK
    for _ in range(20):
        if _put(lock, holder):
            return None
        other = _read(lock)
        if other is None:
            continue  # given back between the two
        if other == holder:  # over a network: it worked, the answer was lost and asked for again
            return None
        if not other.is_dead:
            return other
        if _bury(lock, other):
            _clean(place, other)
    raise EarmarkError(f"{place}: others keep taking its lock; try again")


def _put(lock: Path, holder: Holder) -> bool:
    """Put a whole file in place if there is none; tell whether it worked."""
    aside = aside_of(lock)
    text = json.dumps(asdict(holder), indent=1)
    try:
        aside.write_text(text, encoding="utf-8")
        os.link(aside, lock)
    except FileExistsError:
        return False
    except (PermissionError, NotImplementedError, OSError) as error:
        if aside.exists() and aside.stat().st_nlink == 2:  # it worked, and the answer was lost
            return True
        if not aside.exists() or aside.stat().st_size != len(text.encode()):
            raise
        return _create(lock, text, error)
    finally:
        aside.unlink(missing_ok=True)
    return True


def _create(lock: Path, text: str, error: BaseException) -> bool:
    """Make the lock where a file system has no links."""
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    except OSError:
        raise error from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return True


def _read(lock: Path) -> Holder | None:
    """Return who holds a lock; None where nobody does. A file that says nothing is nobody's."""
    try:
        told = json.loads(lock.read_text(encoding="utf-8"))
        return Holder(**{name: str(told[name]) for name in Holder.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, OSError) and error.errno == errno.ESTALE:
            return None  # another machine removed it while it was read
        raise EarmarkError(
            f"{lock}: says nothing of who holds it; if no other earmark runs here, delete it"
        ) from None


def _bury(lock: Path, dead: Holder) -> bool:
    """Take a dead process's lock away. Who claims it may; tokens never come back, so late is safe.

    One process could look, fall asleep, and delete the lock that another has taken meanwhile.
    """
    claim = lock.with_name(f".{dead.token}.buried")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        time.sleep(0.1)  # another is about to, unless it was killed
        with suppress(FileNotFoundError):
            if _disk_time(lock) - claim.stat().st_mtime > _CLAIM_SECONDS:
                claim.unlink()
        return False
    try:
        is_there = _read(lock) == dead
        if is_there:
            lock.unlink()
        return is_there
    finally:
        claim.unlink(missing_ok=True)


def _disk_time(lock: Path) -> float:
    """Return what time it is where the files are: a server's clock may not be this machine's."""
    aside = aside_of(lock)
    try:
        aside.touch()
        return aside.stat().st_mtime
    finally:
        aside.unlink(missing_ok=True)


def _clean(place: Path, dead: Holder) -> None:
    n_swept = sweep_leftovers(place)
    swept = f"; {swept_told(n_swept)}" if n_swept else ""
    told = f"{place}: {dead.told} was killed here; what it finished is kept{swept}"
    warnings.warn(told, EarmarkWarning, stacklevel=6)


def _tidy(place: Path) -> None:
    """Remove what others left who held no lock; sounds may be too many to look through."""
    if n_swept := sweep_leftovers(place, but="audio"):
        warnings.warn(f"{place}: {swept_told(n_swept)}", EarmarkWarning, stacklevel=4)


def _give_back(lock: Path, holder: Holder) -> None:
    is_own = holder.known is not None and holder.known.number == os.getpid()  # and no fork of it
    with suppress(EarmarkError, OSError):
        if is_own and _read(lock) == holder:
            lock.unlink()


def _refusal(lock: Path, other: Holder) -> str:
    is_here = other.known is not None and other.known.is_here
    gone = "" if is_here else f" If it is gone: rm {quoted(lock)}"
    return (
        f"{lock.parent}: {other.told} is writing here; wait for it, or stop it first "
        f"({WAIT}=600 waits ten minutes).{gone}"
    )


def _patience_seconds() -> float:
    text = os.environ.get(WAIT, "0")
    try:
        return max(float(text), 0.0)
    except ValueError:
        raise EarmarkError(f"{WAIT}={text!r}: not a number of seconds") from None


def _owner() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return str(os.getuid())
