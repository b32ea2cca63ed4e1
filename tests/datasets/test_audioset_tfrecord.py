from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audioset_files import crc32c, masked, tfrecord
from earmark.datasets import Damage, Record, is_intact, masked_crc32c, read_records
from earmark.datasets.importers import audioset_features as module

CONTENTS = [b"first record", b"second, longer record", b"third"]


def test_published_check_values() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the test's own twin
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    expected = [masked(0xE3069283), masked(0x8A9136AA)]
    assert masked_crc32c([b"123456789", bytes(32)]).tolist() == expected
    assert doctest.testmod(module).failed == 0


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=6))
def test_checksums_of_many_equal_the_bitwise_definition(contents: list[bytes]) -> None:
    expected = [masked(crc32c(content)) for content in contents]
    assert masked_crc32c(contents).tolist() == expected


def test_records_come_back_with_their_offsets() -> None:
    records = list(read_records("x", tfrecord(CONTENTS)))
    assert all(isinstance(record, Record) for record in records)
    assert [record.content for record in records] == CONTENTS
    assert [record.offset for record in records] == [0, 12 + 12 + 4, 28 + 12 + 21 + 4]
    assert is_intact(records).all()
    assert list(read_records("x", b"")) == []


@given(st.data())
def test_no_flipped_bit_passes(data: st.DataObject) -> None:
    content = bytearray(tfrecord(CONTENTS))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    items = list(read_records("x", bytes(content)))
    records = [item for item in items if isinstance(item, Record)]
    damaged = [item for item in items if isinstance(item, Damage)]
    damaged += [r for r, ok in zip(records, is_intact(records), strict=True) if not ok]
    assert len(damaged) == 1
    assert damaged[0].offset <= place  # the record that was hit is named
    good = [r.content for r, ok in zip(records, is_intact(records), strict=True) if ok]
    assert good == [content for content in CONTENTS if content in good]


@pytest.mark.parametrize("n_kept", [1, 8, 12, 30, 50, 64])
def test_a_truncated_file_says_where(n_kept: int) -> None:
    *records, damage = read_records("a.tfrecord", tfrecord(CONTENTS)[:n_kept])
    assert isinstance(damage, Damage)
    assert damage.offset == (0 if n_kept < 28 else 28)
    assert str(damage).startswith(f"a.tfrecord, byte {damage.offset}: the file ends within")
    assert len(records) == (n_kept >= 28)


def test_records_too_short_or_too_long_are_no_clips() -> None:
    content = tfrecord([b"abc", bytes(70_000), b"good"])
    short, long, good = read_records("x", content)
    assert isinstance(short, Damage)
    assert isinstance(long, Damage)
    assert "70000 bytes" in long.reason
    assert isinstance(good, Record)
