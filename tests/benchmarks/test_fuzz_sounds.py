"""Damaged Ogg whose checksums are right: the decoder, not the checksum, meets the damage."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from fuzz_readers import wav
from fuzz_sounds import _pages, odd_ogg, ogg_checksum

pytest.importorskip("soundfile")


def has_right_checksums(content: bytes, pages: list[tuple[int, int]]) -> bool:
    for start, end in pages:
        page = bytearray(content[start:end])
        (told,) = struct.unpack("<I", page[22:26])
        page[22:26] = bytes(4)
        if ogg_checksum(page) != told:
            return False
    return True


def test_checksums_of_odd_pages_are_right() -> None:
    good, rng = wav(0.1, format="OGG"), np.random.default_rng(0)
    pages = _pages(good)
    assert pages[-1][1] == len(good)
    assert has_right_checksums(good, pages)
    odd = [odd_ogg(good, rng) for _ in range(20)]
    assert sum(has_right_checksums(one, pages) for one in odd) == 20
    assert sum(one != good for one in odd) > 15


def test_what_is_no_ogg_is_cut_short() -> None:
    assert len(odd_ogg(b"RIFF1234", np.random.default_rng(0))) <= 8
