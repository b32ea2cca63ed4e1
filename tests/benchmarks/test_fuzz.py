"""The short form of ``benchmarks/fuzz.py``: no damaged file may do harm."""

from __future__ import annotations

from pathlib import Path

import pytest

import fuzz
from earmark.errors import EarmarkError


@pytest.mark.parametrize("name", fuzz.available())
def test_no_damaged_file_does_harm(name: str) -> None:
    outcomes = fuzz.fuzz(name, 60)
    assert [outcome for outcome in outcomes if outcome["outcome"] in fuzz.FAULTS] == []
    assert len(outcomes) == 60


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("odd"), "traceback"),
        (MemoryError(), "memory"),
        (EarmarkError("names no file"), "traceback"),
        (EarmarkError("IN/a.csv: odd"), "refused"),
    ],
)
def test_what_counts_as_a_fault(error: Exception, outcome: str, tmp_path: Path) -> None:
    def read(folder: Path, out: Path) -> None:
        raise type(error)(*(str(part).replace("IN", str(folder)) for part in error.args))

    assert fuzz.judge(read, tmp_path / "in", tmp_path / "out")["outcome"] == outcome


def test_what_is_left_behind_is_seen(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    for each in (folder, out):
        each.mkdir()
    assert fuzz.find_leftover(folder, out, {}) == ""
    (out / ".a.partial").touch()
    assert fuzz.find_leftover(folder, out, {}) == ".a.partial"
    (out / ".a.partial").unlink()
    (folder / "b").touch()
    assert fuzz.find_leftover(folder, out, {}) == "b"
