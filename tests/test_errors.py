from __future__ import annotations

import pytest

from earmark.errors import EarmarkError, check_file, first_few, load_library


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
