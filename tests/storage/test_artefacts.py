from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.storage import (
    break_seal,
    is_current,
    is_finished,
    new_array,
    read_json,
    read_seal,
    read_sealed,
    read_source,
    read_table,
    seal,
    write_aside,
    write_json,
    write_sealed,
    write_table,
    write_table_blocks,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    write_text(path, "old")

    def write_half() -> None:
        with write_aside(path) as aside:
            aside.write_text("half of the new")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["table.parquet", "table.csv"])
def test_tables_come_back_as_written(tmp_path: Path, name: str) -> None:
    table = pl.DataFrame({"clip_id": ["a", "b, c", 'd"e'], "n": [1, 2, 3]})
    write_table(tmp_path / name, table)
    assert read_table(tmp_path / name).equals(table)


@pytest.mark.parametrize("name", ["broken.parquet", "missing.parquet", "missing.csv"])
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(EarmarkError, match=name):
        read_table(tmp_path / name)


def test_a_folder_is_current_only_with_the_expected_digest(tmp_path: Path) -> None:
    assert not is_current(tmp_path, "abc")
    write_json(tmp_path / "meta.json", {"digest": "abc"})
    assert is_current(tmp_path, "abc")
    assert not is_current(tmp_path, "def")


def test_a_folder_is_finished_while_its_seal_holds(tmp_path: Path) -> None:
    assert not is_finished(tmp_path)
    seal(tmp_path, {"digest": "abc", "n_clips": 3})
    assert is_finished(tmp_path)
    assert read_seal(tmp_path) == {"digest": "abc", "n_clips": 3}
    break_seal(tmp_path)
    break_seal(tmp_path)  # whoever runs twice breaks it twice
    assert not is_finished(tmp_path)


def test_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "same.txt"
    with write_aside(path) as first, write_aside(path) as second:
        first.write_text("one")
        second.write_text("other")
        assert first != second
    assert path.read_text() == "one"  # the last to finish
    assert [each.name for each in tmp_path.iterdir()] == ["same.txt"]


def test_names_with_brackets_and_stars_are_names(tmp_path: Path) -> None:
    for name, number in (("g[1]", 1), ("g1", 2), ("g*", 3), ("g?", 4)):
        for suffix in ("parquet", "csv"):
            write_table(tmp_path / name / f"t.{suffix}", pl.DataFrame({"n": [number]}))
    for name, number in (("g[1]", 1), ("g1", 2), ("g*", 3), ("g?", 4)):
        for suffix in ("parquet", "csv"):
            assert read_table(tmp_path / name / f"t.{suffix}")["n"].to_list() == [number]
            assert read_source(tmp_path / name / f"t.{suffix}").rows["n"].cast(int).to_list() == [
                number
            ]


def test_a_device_or_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(EarmarkError, match="not a file but a folder or a device"):
            write_text(tmp_path / name, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


@pytest.mark.parametrize("text", ["[" * 200_000, "9" * 5_000, "\xff", "{"])
def test_odd_json_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(EarmarkError, match=r"a\.json: cannot be read as JSON"):
        read_json(tmp_path / "a.json")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_full_disk_is_an_error_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Path, "with_name", lambda self, _: Path("/dev/full"))
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    with pytest.raises(OSError, match="No space left") as caught:
        write_table(tmp_path / name, pl.DataFrame({"a": range(100_000)}))
    assert caught.value.errno == errno.ENOSPC
    assert str(tmp_path / name) in str(caught.value)


def test_tables_that_belong_together_are_sealed_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meta.json"
    old, new = (pl.DataFrame({"a": [number]}) for number in (1, 2))
    write_sealed(file, {"x.parquet": old, "y.parquet": old}, {"run": "old"})
    assert read_sealed(file, "y.parquet").equals(old)
    assert read_json(file)["run"] == "old"
    begun = file.read_text()

    def full(path: Path, table: pl.DataFrame) -> None:
        if path.name == "y.parquet":
            raise OSError(errno.ENOSPC, "full", str(path))
        table.write_parquet(path)

    with monkeypatch.context() as patch:
        patch.setattr("earmark.storage.artefacts.write_table", full)
        with pytest.raises(OSError, match="full"):
            write_sealed(file, {"x.parquet": new, "y.parquet": new}, {"run": "new"})
    with pytest.raises(EarmarkError, match=r"y\.parquet: not finished"):
        read_sealed(file, "y.parquet")
    file.write_text(begun)  # a reader that looked at the seal before it was broken
    with pytest.raises(EarmarkError, match=r"x\.parquet: not what meta\.json says"):
        read_sealed(file, "x.parquet")


def test_a_library_that_swallows_the_disk_s_refusal_is_seen_through(tmp_path: Path) -> None:
    def save() -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")

    with pytest.raises(OSError, match="No space left") as caught, write_aside(tmp_path / "a.pt"):
        save()
    assert caught.value.filename == str(tmp_path / "a.pt")
    with pytest.raises(ZeroDivisionError), write_aside(tmp_path / "a.pt"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_a_limit_of_file_sizes_is_seen_through(tmp_path: Path) -> None:
    """As libsndfile, which says no more than that the system failed."""
    code = (
        "import resource, sys\n"
        "from earmark.storage import write_aside\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "with write_aside(sys.argv[1]) as aside:\n"
        "    aside.write_bytes(bytes(9_000))\n"
        "    raise RuntimeError('System error.')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.flac")], capture_output=True, text=True
    )
    assert f"OSError: [Errno {errno.EFBIG}]" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_new_array_on_a_full_disk_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = new_array(tmp_path / "a.npy", (3, 2))
    array[:] = 1
    del array
    assert np.load(tmp_path / "a.npy").sum() == 6

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        new_array(tmp_path / "b.npy", (3, 2))


@pytest.mark.parametrize("n_at_once", [1, 3, 10, 11])
@pytest.mark.parametrize("n_rows", [0, 10])
def test_a_table_of_blocks_is_the_table(tmp_path: Path, n_rows: int, n_at_once: int) -> None:
    values = np.linspace(0, 1, 10, dtype=np.float32)
    table = pl.DataFrame({"name": list('ab",cde\nfg'), "value": values}).head(n_rows)
    table = table.with_columns(pl.when(pl.col("value") != values[3]).then("value"))
    blocks = [table.slice(start, n_at_once) for start in range(0, max(n_rows, 1), n_at_once)]
    write_table(tmp_path / "whole.csv", table)
    write_table_blocks(tmp_path / "blocks.csv", blocks)
    write_table_blocks(tmp_path / "blocks.parquet", blocks)
    assert (tmp_path / "blocks.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    found = read_table(tmp_path / "blocks.parquet")
    assert found.equals(table)
    assert found.schema == table.schema


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_blocks_that_cannot_be_made_leave_no_file(tmp_path: Path, name: str) -> None:
    def blocks() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame({"value": [1]})
        raise EarmarkError("no more of them")

    with pytest.raises(Exception, match="no more of them"):
        write_table_blocks(tmp_path / name, blocks())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_blocks_on_a_full_disk_are_the_disks_error(tmp_path: Path, name: str) -> None:
    code = (
        "import resource, signal, sys\n"
        "import numpy as np, polars as pl\n"
        "from earmark.storage import write_table_blocks\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "blocks = (pl.DataFrame({'a': np.random.default_rng(i).random(9_000)}) for i in range(9))\n"
        "write_table_blocks(sys.argv[1], blocks)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / name)], capture_output=True, text=True
    )
    assert f"OSError: [Errno {errno.EFBIG}]" in done.stderr
    assert not list(tmp_path.iterdir())
