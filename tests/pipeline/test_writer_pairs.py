"""Every pair of verbs that write, as processes: one is halted while it writes, the others come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from earmark.storage import holder_of
from torture import STAGES, write_answers, write_inputs
from writing_verbs import WRITERS

pytestmark = pytest.mark.slow

PATH = (
    (STAGES["embeddings"], "V"),
    ("import workspace V --splits 80,10,10", "V"),
    (STAGES["own scores"], "V"),
    (STAGES["flag"], "V"),
    (STAGES["queue"], "V"),
    (STAGES["answers"], None),
    ("answers V", "V"),
    (STAGES["relabel"], "V"),
    ("import workspace V --work S --train-share 0.2", "S"),
    (STAGES["import"], "W"),
    ("import workspace W --work H --assume-complete --recall 0.1,0.5", "H"),
    (STAGES["features"], "W"),
    ("train W", "W"),
    (STAGES["score"], "W"),
    ("flag W", "W"),
    (STAGES["sweep"], "W"),
    (STAGES["compare"], "W"),
    (STAGES["report"], "W"),
    ("run tiny.toml --work R", "R"),
)
"""Verbs in an order in which each has what it needs, and the folder whose lock it holds.

A second scan holds it for an instant, in which nobody can halt them.
"""

OF_ITS_OWN = "scores of your own"
"""Why a teacher's scores are refused, whoever writes."""


def start(place: Path, words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "earmark", *words.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=place, text=True, start_new_session=True, **pipes)


@contextmanager
def halted(place: Path, words: str, folder: Path) -> Iterator[str]:
    """Run a verb, halt it while it has the lock, let it end after that; yield its name."""
    process = start(place, words)
    while (holder := holder_of(folder)) is None or f"process {process.pid}," not in holder.told:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGSTOP)
    try:
        holder = holder_of(folder)
        assert holder is not None, f"{words}: over before it could be halted"
        assert f"process {process.pid}," in holder.told
        yield holder.told
    finally:
        os.killpg(process.pid, signal.SIGCONT)
        told, _ = process.communicate()
    assert process.returncode == 0, told
    assert holder_of(folder) is None


def told_by(place: Path, words: str) -> str:
    """Run a verb that comes second; return what it says, which has to be no more than an error."""
    process = start(place, words)
    told, _ = process.communicate()
    assert process.returncode == 2, (words, told)
    assert "Traceback" not in told, (words, told)
    return " ".join(told.split())


def test_every_pair_of_writers(tmp_path: Path) -> None:
    """Whichever verb writes, every other is refused with a word on it, and it ends well."""
    place = tmp_path / "place"
    write_inputs(place)
    unnamed = []
    for words, folder in PATH:
        if words == STAGES["answers"]:
            write_answers(place)
        if folder is None:
            first = start(place, words)
            assert "earmark:" not in first.communicate()[0]
            assert first.returncode == 0
            continue
        others = [one.replace("OTHER", "V").replace("W", folder) for one in WRITERS]
        with halted(place, words, place / folder) as holder, ThreadPoolExecutor(2) as pool:
            told = list(pool.map(partial(told_by, place), others))
        unnamed += [
            (words, other, what)
            for other, what in zip(others, told, strict=True)
            if f"{holder} is writing here; wait for it" not in what and OF_ITS_OWN not in what
        ]
    assert not unnamed
