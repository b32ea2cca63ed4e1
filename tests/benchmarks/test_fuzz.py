"""The short form of ``benchmarks/fuzz.py``: no damaged file may do harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fuzz
from earmark.errors import EarmarkError
from fuzz_readers import QUICK, Reader


@pytest.mark.parametrize(("is_quick", "n_inputs"), [(True, 80), (False, 10)])
def test_no_damaged_file_does_harm(is_quick: bool, n_inputs: int) -> None:
    names = [name for name in fuzz.available([]) if (name in QUICK) == is_quick]
    tallies = {name: fuzz.Tally() for name in names}
    done = list(fuzz.fuzz(tallies, n_inputs, seconds=600))
    assert done == names
    assert {name: one.faults for name, one in tallies.items() if one.n_faults} == {}
    assert sum(one.outcomes["refused"] for one in tallies.values()) > 0


def judged(read: Callable[[Path, Path], object], tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    reader = Reader("made up", lambda folder: None, read)
    return fuzz._judged(reader, tmp_path / "in", tmp_path / "out")


def fails(error: BaseException) -> Callable[[Path, Path], object]:
    def read(folder: Path, work: Path) -> None:
        raise error

    return read


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (lambda folder, work: None, "read"),
        (fails(ValueError("odd")), "traceback"),
        (fails(MemoryError()), "memory"),
        (fails(EarmarkError("names no file")), "traceback"),
    ],
)
def test_what_counts_as_a_fault(
    read: Callable[[Path, Path], object], outcome: str, tmp_path: Path
) -> None:
    assert judged(read, tmp_path)["outcome"] == outcome


def test_a_refusal_that_names_the_file_is_none(tmp_path: Path) -> None:
    told = judged(fails(EarmarkError(f"{tmp_path}/in/a.csv: odd")), tmp_path)
    assert told["outcome"] == "refused"


def test_what_is_left_behind_is_seen(tmp_path: Path) -> None:
    folder, work = tmp_path / "in", tmp_path / "out"
    for each in (folder, work):
        each.mkdir()
    assert fuzz._left(folder, work, {}) == ""
    (work / ".a.partial").touch()
    assert fuzz._left(folder, work, {}) == ".a.partial"
    (work / ".a.partial").unlink()
    (folder / "b").touch()
    assert fuzz._left(folder, work, {}) == "b"
