"""What a network file system does to a lock that a local one does not, played here.

There is no NFS in the kernels that run these tests. What is played is what its protocol allows:
answers that are lost and asked for again, files that another machine removed while they were read,
a server whose clock is wrong.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.runs import holder_of, writing
from earmark.runs.writers import lock
from earmark.runs.writers.lock import LOCK, Holder
from earmark.runs.writers.processes import Process


def asked_twice(error: type[OSError], number: int) -> Callable[[Path, Path], None]:
    """Make a link, lose the answer, and answer what the second asking finds."""
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        raise error(number, os.strerror(number))

    return twice


@pytest.mark.parametrize(
    ("error", "number"), [(FileExistsError, errno.EEXIST), (OSError, errno.EIO)]
)
def test_a_link_whose_answer_was_lost_is_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError], number: int
) -> None:
    monkeypatch.setattr(os, "link", asked_twice(error, number))
    with writing(tmp_path, "score"):
        found = holder_of(tmp_path)
        assert found is not None
        assert found.verb == "score"
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_given_back_while_it_is_read_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is open here, gone on the server: its handle is stale."""
    read_text, n_read = Path.read_text, []
    theirs = tmp_path / LOCK
    theirs.write_text("whatever")

    def stale(path: Path, *told: Any, **named: Any) -> str:
        if path.name == LOCK and not n_read:
            n_read.append(path)
            theirs.unlink()
            raise OSError(errno.ESTALE, "Stale file handle")
        return read_text(path, *told, **named)

    monkeypatch.setattr(Path, "read_text", stale)
    with writing(tmp_path, "score"):
        assert n_read == [theirs]


def dead_holder(folder: Path) -> Holder:
    """Leave the lock of a process of this machine that is no more."""
    here = Process.here()
    gone = Holder("flag", "ann", "here", str(Process(here.place, 1, "0")), "today", "token")
    lock._put(folder / LOCK, gone)
    return gone


@pytest.mark.parametrize(("age_seconds", "is_taken"), [(0, False), (3_600, True)])
def test_claims_are_as_old_as_the_disk_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_seconds: float, is_taken: bool
) -> None:
    """The clock of this machine runs an hour before the server's, whose times are the files'."""
    gone, now = dead_holder(tmp_path), time.time()
    claim = tmp_path / f".{gone.token}.buried"
    claim.touch()
    os.utime(claim, (now - age_seconds,) * 2)
    monkeypatch.setattr(time, "time", lambda: now + 3_600)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    if is_taken:
        with pytest.warns(EarmarkWarning, match="was killed here"), writing(tmp_path, "score"):
            pass
    else:
        with pytest.raises(EarmarkError, match="keep taking its lock"), writing(tmp_path, "score"):
            pass
