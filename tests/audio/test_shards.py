from __future__ import annotations

import numpy as np
import pytest

from earmark.audio.frame_store import FrameStore, write_store
from earmark.errors import EarmarkError


def test_a_missing_shard_is_named(tmp_path):
    folder = write_store(tmp_path / "s", [("a", np.zeros((3, 2), np.uint8))]).folder
    (folder / "shard-00000.npy").unlink()
    with pytest.raises(EarmarkError, match=r"shard-00000\.npy: the shard is missing"):
        FrameStore.open(folder)


def test_digest_follows_the_content(tmp_path):
    def stored(name: str, value: int) -> str:
        return write_store(tmp_path / name, [("a", np.full((2, 2), value, np.uint8))]).digest

    assert stored("first", 1) == stored("same", 1)
    assert stored("first", 1) != stored("other", 2)


@pytest.mark.parametrize("second", [np.zeros((2, 5), np.uint8), np.zeros((2, 4), np.float32)])
def test_frames_unlike_the_first_are_refused(tmp_path, second):
    with pytest.raises(EarmarkError, match=r"clip 'b'.*expected uint8 \[frame, 4\]"):
        write_store(tmp_path, [("a", np.zeros((2, 4), np.uint8)), ("b", second)])


def test_a_clip_given_twice_is_refused(tmp_path):
    with pytest.raises(EarmarkError, match="'a' is listed twice"):
        write_store(tmp_path, [("a", np.zeros((2, 4), np.uint8))] * 2)
