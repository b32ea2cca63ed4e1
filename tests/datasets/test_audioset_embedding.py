from __future__ import annotations

import numpy as np
import pytest

from audioset_files import entry, message, sequence_example, varint
from earmark.datasets import parse_embedding


def test_labels_above_127_packed_or_not() -> None:
    content = sequence_example("abcdefghijk", 0, 10, [137, 434, 526], np.ones((7, 128), np.uint8))
    assert parse_embedding(content).class_indices == (137, 434, 526)
    unpacked = b"".join(b"\x08" + varint(label) for label in (5, 300))
    content += message(1, entry("labels", message(3, unpacked)))  # a later entry replaces
    assert parse_embedding(content).class_indices == (5, 300)


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a\x05ab",
        b"\x0f\x01",
        b"\xff",
        message(1, entry("video_id", b"")),
        message(1, message(1, b"")),
        sequence_example("abcdefghijk", 0, 10, [1], np.empty((0, 128), np.uint8)),
        sequence_example("abcdefghijk", 0, 10, [1], np.zeros((2, 127), np.uint8)),
        sequence_example("abcdefghijk", 0, 10, [1], np.zeros((2, 64), np.uint8)),
    ],
)
def test_what_is_no_clip_of_the_release_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_embedding(content)
