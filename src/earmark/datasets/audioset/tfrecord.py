"""TFRecord files without TensorFlow: cut into records, checksums verified.

A file is a row of records: length (8 bytes, little endian), its checksum, the content, its
checksum. Checksums are CRC-32C, masked. They are computed in numpy for thousands of records at
once, about 150 MB/s, so that no compiled library is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_LARGEST_RECORD_BYTES = 1 << 16
"""A longer record is no clip of embeddings; refusing it bounds the memory of a batch."""

_POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
_MASK_DELTA = 0xA282EAD8


@dataclass(frozen=True)
class Record:
    """The content of one record of a TFRecord file, and the checksum that it should have."""

    file: str
    offset: int
    content: bytes
    checksum: int


@dataclass(frozen=True)
class Damage:
    """A place in a file that cannot be read, and why."""

    file: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset:,}: {self.reason}"


def read_records(file: str, content: bytes) -> Iterator[Record | Damage]:
    """Cut a TFRecord file into records; ``file`` is its name for messages.

    Lengths are checked here. Behind a wrong one, or where the file ends early, nothing more can be
    found, and the last item is the damage. Contents are checked by :func:`is_intact`.
    """
    offset = 0
    while offset < len(content):
        length, start = content[offset : offset + 8], offset + 12
        n_bytes = int.from_bytes(length, "little")
        end = start + n_bytes
        if start <= len(content) and _masked_crc32c_of(length) != _number(content, start - 4):
            yield Damage(file, offset, "a record's length fails its checksum; the rest is lost")
            return
        if end + 4 > len(content):
            yield Damage(file, offset, "the file ends within a record: was it cut off?")
            return
        if not 4 <= n_bytes <= _LARGEST_RECORD_BYTES:
            yield Damage(file, offset, f"a record of {n_bytes} bytes is no clip")
        else:
            yield Record(file, offset, content[start:end], _number(content, end))
        offset = end + 4


def is_intact(records: Sequence[Record]) -> NDArray[np.bool_]:
    """Tell of each record whether its content has the checksum that it should have [record]."""
    expected = np.array([record.checksum for record in records], np.uint32)
    actual = masked_crc32c([record.content for record in records])
    return np.equal(actual, expected)


def masked_crc32c(contents: Sequence[bytes]) -> NDArray[np.uint32]:
    """Compute TFRecord's masked CRC-32C of many byte strings at once [string], uint32.

    The register starts at 0 and leading zeros leave it there, so strings are aligned at their ends
    and stepped through together, two bytes at a time. The standard's start value, all ones, is the
    same as the first four bytes inverted; so every string must have four bytes at least.

    >>> hex(masked_crc32c([b"123456789"])[0])  # CRC-32C 0xe3069283
    '0xc78ab0e5'
    """
    if not contents:
        return np.empty(0, np.uint32)
    n_columns = -(-max(map(len, contents)) // 2) * 2
    aligned = np.zeros((len(contents), n_columns), np.uint8)
    for row, content in zip(aligned, contents, strict=True):
        start = n_columns - len(content)
        row[start:] = np.frombuffer(content, np.uint8)
        row[start : start + 4] ^= 0xFF
    table = _crc_table()
    crc = np.zeros(len(contents), np.uint32)
    for pair in aligned.view("<u2").T.astype(np.uint32):  # [string] for each two bytes
        crc = table[(crc ^ pair) & 0xFFFF] ^ (crc >> 16)
    crc = ~crc
    return np.asarray(((crc >> 15) | (crc << 17)) + np.uint32(_MASK_DELTA), np.uint32)


@cache
def _masked_crc32c_of(length: bytes) -> int:
    """Compute the checksum of one length; a release has few different ones."""
    return int(masked_crc32c([length])[0])


def _number(content: bytes, offset: int) -> int:
    return int.from_bytes(content[offset : offset + 4], "little")


@cache
def _crc_table() -> NDArray[np.uint32]:
    """Return what 16 steps of the register do to each of its low 16 bits' states."""
    table = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(16):
        table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    return table
