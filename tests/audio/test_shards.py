from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.audio import (
    FrameFormat,
    FrameStore,
    Row,
    damage,
    open_shard,
    part_path,
    shard_path,
    write_store,
)
from earmark.errors import EarmarkError
from earmark.storage import read_table


def test_a_missing_shard_is_named(tmp_path):
    folder = write_store(tmp_path / "s", [("a", np.zeros((3, 2), np.uint8))]).folder
    (folder / "shard-00000.npy").unlink()
    with pytest.raises(EarmarkError, match=r"shard-00000\.npy: the shard is missing"):
        FrameStore.open(folder)


@pytest.mark.parametrize("second", [np.zeros((2, 5), np.uint8), np.zeros((2, 4), np.float32)])
def test_frames_unlike_the_first_are_refused(tmp_path, second):
    with pytest.raises(EarmarkError, match=r"clip 'b'.*expected uint8 \[frame, 4\]"):
        write_store(tmp_path, [("a", np.zeros((2, 4), np.uint8)), ("b", second)])


def test_a_clip_given_twice_is_refused(tmp_path):
    with pytest.raises(EarmarkError, match="'a' is listed twice"):
        write_store(tmp_path, [("a", np.zeros((2, 4), np.uint8))] * 2)


FORMAT = FrameFormat(n_bands=2, dtype="float32", patch_frames=1, patch_hop_frames=1)


def rows(*lengths: int) -> list[Row]:
    return [
        Row(f"c{i}", np.full((n, 2), i, np.float32), f"source{i}") for i, n in enumerate(lengths)
    ]


def test_a_shard_is_written_row_by_row(tmp_path):
    with open_shard(tmp_path, 3, "digest", FORMAT) as add:
        for row in [*rows(2, 0, 1), Row("bad", None, None, "no sound")]:
            add(row)
            assert not shard_path(tmp_path, 3).exists(), "in place only when it is whole"
            assert not part_path(tmp_path, 3).exists()
    assert np.load(shard_path(tmp_path, 3)).tolist() == [[0, 0], [0, 0], [2, 2]]
    part = read_table(part_path(tmp_path, 3))
    assert part["clip_id"].to_list() == ["c0", "c1", "c2", "bad"]
    assert part["first_frame"].to_list() == [0, 2, 2, 3]
    assert part["n_frames"].to_list() == [2, 0, 1, 0]
    assert part["reason"].to_list() == [None, None, None, "no sound"]
    assert set(part["digest"]) == {"digest"}
    assert damage(shard_path(tmp_path, 3), 3, FORMAT) is None


def write_half(folder: Path, number: int, error: BaseException) -> None:
    with open_shard(folder, number, "e", FORMAT) as add:
        add(rows(5)[0])
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, EarmarkError])
def test_an_error_leaves_an_older_shard_as_it_was(tmp_path, error):
    with open_shard(tmp_path, 0, "d", FORMAT) as add:
        add(rows(2)[0])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for number in (0, 1):
        with pytest.raises(error, match="half way"):
            write_half(tmp_path, number, error("half way"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
