from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from earmark.errors import (
    EarmarkError,
    EarmarkWarning,
    about,
    check_file,
    first_few,
    load_library,
    reader,
    reading,
    short_repr,
)


def test_first_few_counts_the_rest():
    assert first_few("abcd") == "'a', 'b', 'c' and 1 more"
    assert first_few("a") == "'a'"


def test_a_folder_and_a_missing_file_are_told_apart(tmp_path):
    with pytest.raises(EarmarkError, match="a folder, not a file"):
        check_file(tmp_path)
    with pytest.raises(EarmarkError, match="no such file"):
        check_file(tmp_path / "none.csv")


def test_a_missing_library_and_a_broken_one_are_told_apart(tmp_path, monkeypatch):
    with pytest.raises(EarmarkError, match=r"^art needs the library 'easel'; .*'earmark\[art\]'$"):
        load_library("easel", "art", "art")
    (tmp_path / "palette.py").write_text("import turpentine")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EarmarkError, match=r"cannot be loaded \(No module named 'turpentine'\)"):
        load_library("palette", "art", "art")


@dataclass
class Held:
    path: Path
    table: pl.DataFrame
    names: tuple[str, ...]
    told: str

    __repr__ = short_repr


def test_a_result_is_one_short_line_whatever_it_holds() -> None:
    table = pl.DataFrame({"clip_id": [str(i) for i in range(5_000)]})
    held = Held(Path("work/flags"), table, tuple(table["clip_id"]), "word " * 1_000)
    shown = repr(held)
    assert shown.startswith("Held(path='work/flags', table=<5,000 x 1 table>, names=(")
    assert len(shown) < 300
    assert "\n" not in shown


class PanicException(BaseException):
    """What libraries written in Rust raise: no Exception, and of a class nobody can import."""


@pytest.mark.parametrize(
    "raised", [ValueError("odd\nbytes"), RecursionError(), PanicException("oh")]
)
def test_whatever_bytes_make_a_library_raise_names_the_file(raised):
    refused = pytest.raises(EarmarkError, match=r"^a\.npy: cannot be read as an array \(")
    with refused as told, reading("a.npy", "an array"):
        raise raised
    assert told.value.__cause__ is raised
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "raised",
    [
        EarmarkError("said better"),
        EarmarkWarning("doubtful"),
        KeyboardInterrupt(),
        SystemExit(3),
        OSError(errno.ENOSPC, "No space left on device"),
        ModuleNotFoundError("no torch", name="torch"),
    ],
)
def test_what_is_not_the_fault_of_bytes_passes(raised):
    with pytest.raises(type(raised)) as told, reading("a.npy", "an array"):
        raise raised
    assert told.value is raised


def test_a_reader_names_the_file_that_it_was_given():
    @reader("numbers", "count again", at=1)
    def read(n, path):
        return n / 0

    message = r"^%s: cannot be read as numbers \(ZeroDivisionError: .*\); count again$"
    with pytest.raises(EarmarkError, match=message % "a.txt"):
        read(1, "a.txt")
    with pytest.raises(EarmarkError, match=message % "b.txt"):
        read(n=1, path="b.txt")


def test_an_error_of_ours_gets_the_name_of_the_file_once():
    refused = pytest.raises(EarmarkError, match=r"^a\.csv: classes are listed twice$")
    with refused, about("a.csv"), about("a.csv"):
        raise EarmarkError("classes are listed twice")
