"""How ``fuzz.py`` damages sounds whose checksums would give any damage away.

Every page of Ogg carries one over all of its bytes: a page is made odd inside and its checksum made
right again, so that the decoder gets to see what is odd.
"""

from __future__ import annotations

import struct

import numpy as np

Rng = np.random.Generator

_HEADER_BYTES, _CHECKSUM_AT = 27, 22


def _remainder(byte: int) -> int:
    value = byte << 24
    for _ in range(8):
        value = (value << 1) ^ (0x04C11DB7 if value & 0x80000000 else 0)
    return value & 0xFFFFFFFF


_REMAINDERS = [_remainder(byte) for byte in range(256)]


def odd_ogg(content: bytes, rng: Rng) -> bytes:
    """Change some bytes of a page of Ogg, and make its checksum right."""
    pages = _pages(content)
    if not pages:
        return content[: int(rng.integers(len(content) + 1))]
    start, end = pages[int(rng.integers(len(pages)))]
    page = bytearray(content[start:end])
    for _ in range(int(rng.choice((1, 1, 2, 8)))):
        page[_odd_place(len(page), rng)] = int(rng.choice((0, 1, 0x7F, 0x80, 0xFF, *rng.bytes(3))))
    page[_CHECKSUM_AT : _CHECKSUM_AT + 4] = bytes(4)
    page[_CHECKSUM_AT : _CHECKSUM_AT + 4] = struct.pack("<I", ogg_checksum(page))
    return content[:start] + bytes(page) + content[end:]


def _pages(content: bytes) -> list[tuple[int, int]]:
    """Return where pages begin and end, as far as their headers tell."""
    found, start = [], 0
    while content[start : start + 4] == b"OggS" and start + _HEADER_BYTES <= len(content):
        n_segments = content[start + 26]
        lengths = content[start + _HEADER_BYTES : start + _HEADER_BYTES + n_segments]
        end = start + _HEADER_BYTES + n_segments + sum(lengths)
        if end > len(content):
            break
        found.append((start, end))
        start = end
    return found


def _odd_place(n_bytes: int, rng: Rng) -> int:
    """Return a place after the mark of a page; the header comes up more often."""
    return int(rng.integers(4, min(n_bytes, 64) if rng.random() < 0.3 else n_bytes))


def ogg_checksum(page: bytes | bytearray) -> int:
    """Return the checksum of a page in which its place is zero.

    >>> ogg_checksum(b"OggS")
    1605413199
    """
    value = 0
    for byte in page:
        value = ((value << 8) & 0xFFFFFFFF) ^ _REMAINDERS[(value >> 24) ^ byte]
    return value
