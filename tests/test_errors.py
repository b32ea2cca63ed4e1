from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from earmark.errors import EarmarkError, check_file, first_few, load_library, short_repr


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
