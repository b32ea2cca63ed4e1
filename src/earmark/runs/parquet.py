"""What a Parquet file claims to hold, looked at before anybody believes it.

Polars makes room for as many values as a file says it has. Where a damaged page claims 2^61 of them
the whole process ends, with no error that could be caught; and a file of a kilobyte may claim, and
have, more rows than memory. Both are told by the file's footer and by the headers of its pages:
structures of Thrift's compact protocol, of which we need the numbers. They take milliseconds to
read: 20 for a file of 200 MB, which polars reads in 400.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from earmark.errors import EarmarkError

_MAGIC, _TAIL = b"PAR1", 8
_LEAST_LIMIT, _MOST_GROWN = 2**29, 1_000
"""Bytes that are never too much, and how many times its size a file may grow in memory."""

_DEEPEST, _MOST_PAGES = 32, 100_000
_BYTES_OF_TYPE = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 16, 7: 16}
"""Of one value in memory, by Parquet's physical types; texts are views of 16 bytes."""


def check_parquet(path: Path) -> None:
    """Refuse a Parquet file that claims more than it can hold; other damage is left to polars."""
    n_bytes = path.stat().st_size
    if n_bytes < 2 * _TAIL:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            columns = list(_columns(content))
        except (IndexError, ValueError):
            # Polars skips what it does not know there, and goes on.
            raise EarmarkError(
                f"{path}: cannot be read as Parquet (its footer is no list of columns); is it "
                "damaged?"
            ) from None
        grown = sum(max(_number(one, 6), _grown(one)) for one in columns)
        if grown > max(_LEAST_LIMIT, n_bytes * _MOST_GROWN):
            raise EarmarkError(
                f"{path}: {n_bytes:,} bytes that claim to be {grown:,} in memory; damaged, or made "
                "to fill it"
            )
        for column in columns:
            if not _is_sound(content, column):
                raise EarmarkError(
                    f"{path}: cannot be read as Parquet (a page claims more values than its column "
                    "has, or is none); is it damaged?"
                )


def _columns(content: mmap.mmap) -> Iterator[dict[int, Any]]:
    """Yield what the footer says of each column in each group of rows; nothing without a footer.

    Raises IndexError or ValueError where it is none.
    """
    length = int.from_bytes(content[-_TAIL:-4], "little")
    if content[-4:] != _MAGIC or length + _TAIL > len(content):
        return
    footer = _Compact(content, len(content) - _TAIL - length).struct()
    for group in _list(footer, 4):
        for chunk in _list(group, 1):
            meta = chunk.get(3) if isinstance(chunk, dict) else None
            if isinstance(meta, dict):
                yield meta


def _grown(column: dict[int, Any]) -> int:
    return _number(column, 5) * _BYTES_OF_TYPE.get(_number(column, 1), 16)


def _is_sound(content: mmap.mmap, column: dict[int, Any]) -> bool:
    """Tell whether the pages of a column claim no more values than the column, and none below 0.

    Pages are looked at until they have the column's values together: after that polars stops.
    """
    place = min(filter(None, (_number(column, 9), _number(column, 11))), default=0)
    end, n_values = place + _number(column, 7), _number(column, 5)
    n_seen = 0
    for _ in range(_MOST_PAGES):
        if n_seen >= n_values or not 0 < place < min(end, len(content)):
            return n_seen <= n_values
        reader = _Compact(content, place)
        try:
            header = reader.struct()
        except (IndexError, ValueError):
            return False
        in_memory, on_disk = header.get(2, 0), header.get(3, 0)
        claims = [_claim(header, 5), _claim(header, 8)]
        if min(in_memory, on_disk, *claims, _claim(header, 7)) < 0 or max(claims) > n_values:
            return False
        if _claim(header, 7) > max(in_memory, n_values):
            return False
        n_seen += max(claims)
        place = reader.place + on_disk
    return True


def _claim(header: dict[int, Any], kind: int) -> int:
    page = header.get(kind)
    found = page.get(1, 0) if isinstance(page, dict) else 0
    return found if isinstance(found, int) else 0


def _number(record: dict[int, Any], field: int) -> int:
    found = record.get(field)
    return found if isinstance(found, int) else 0


def _list(record: Any, field: int) -> list[Any]:
    found = record.get(field) if isinstance(record, dict) else None
    return found if isinstance(found, list) else []


class _Compact:
    """A reader of Thrift's compact protocol: structures as dicts by the numbers of their fields."""

    def __init__(self, content: mmap.mmap, place: int) -> None:
        self.content, self.place = content, place

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read a structure; ValueError or IndexError where it is none."""
        if depth > _DEEPEST:
            raise ValueError("too deep")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._zigzag()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind in (7, 8):
            self._skip(8 if kind == 7 else self._varint())
            return None
        if kind in (9, 10):
            head = self._byte()
            n_values = head >> 4 if head >> 4 < 15 else self._varint()
            if n_values > len(self.content):
                raise ValueError("a list that is longer than the file")
            return [self._value(head & 15, depth + 1) for _ in range(n_values)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"no type {kind} in Parquet")

    def _skip(self, n_bytes: int) -> None:
        if self.place + n_bytes > len(self.content):
            raise IndexError("beyond the end")
        self.place += n_bytes

    def _byte(self) -> int:
        found = self.content[self.place]
        self.place += 1
        return found

    def _varint(self) -> int:
        found = shift = 0
        while shift < 70:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
        raise ValueError("a number of too many bytes")

    def _zigzag(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)
