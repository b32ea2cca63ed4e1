"""Arrays that other programs wrote, as numpy's ``.npy`` and ``.npz``, opened with care.

Whatever is wrong with a file, it raises :class:`~earmark.errors.EarmarkError`, names the file and
says what was expected. Nothing is ever unpickled, and nothing is read that is larger than its file
can reasonably make it: a header may claim terabytes, and a kilobyte may be zipped from a megabyte.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, check_file, nearest, reader, reading
from earmark.storage.artefacts import write_aside

_LEAST_LIMIT, _MOST_SHRUNK = 2**28, 100
"""Bytes that are never too much, and how many times smaller an array may be in an archive."""

_MOST_NAMES = 10_000_000
"""Rows or columns that are never too many, whatever a small archive says."""

_PACKED_BY = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_READ_FIRST = np.lib.format.read_array_header_1_0

_CUT = "cut short, or another format?"


def as_array(values: Any) -> NDArray[Any]:
    """Return an array of values, those of a torch tensor included, wherever it lies.

    numpy has no bfloat16: such a tensor becomes float32.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if "bfloat16" in str(values.dtype) else values
    return np.asanyarray(values)


@reader("numpy's .npy", _CUT)
def map_array(path: Path) -> NDArray[Any]:
    """Map an ``.npy`` file without reading it; no pickles."""
    check_file(path)
    refuse_long_header(path)
    array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    _refuse_emptiness(array.shape, array.dtype, path.stat().st_size)
    return array


def refuse_long_header(path: Path) -> None:
    """Raise ValueError where a header claims to be longer than its file.

    numpy asks for as much memory as the header claims, up to 4 GB, before it looks at the file.
    """
    with path.open("rb") as file:
        head, n_bytes = file.read(12), os.fstat(file.fileno()).st_size
    length = int.from_bytes(head[8:12], "little")
    if head.startswith(b"\x93NUMPY") and head[6:7] > b"\x01" and length > n_bytes:
        raise ValueError(f"its header claims {length:,} bytes of {n_bytes:,}")


def write_array(path: str | Path, array: NDArray[Any]) -> None:
    """Write an ``.npy`` file whole or not at all.

    ``np.save`` into a file loses the last block without a word where the disk has no room for it.
    """
    with write_aside(path) as aside, aside.open("wb") as file:
        np.lib.format.write_array(_ByPython(file), array, allow_pickle=False)


@dataclass(frozen=True)
class _ByPython:
    """A file of which numpy does not know that it is one, so that Python writes it."""

    file: IO[bytes]

    def write(self, content: bytes) -> int:
        return self.file.write(content)


def new_array(path: Path, shape: tuple[int, ...], dtype: type = np.float32) -> NDArray[Any]:
    """Map a new ``.npy`` file; a full disk is an error now, and kills no process later."""
    array: NDArray[Any] = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


@contextmanager
def open_archive(path: Path) -> Iterator[dict[str, Member]]:
    """Open the arrays of an ``.npz`` by name; nothing is read yet, and no pickle ever."""
    check_file(path)
    with reading(path, "numpy's .npz", _CUT), zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        yield {name.removesuffix(".npy"): Member(archive, name) for name in names}


@dataclass(frozen=True)
class Member:
    """One array in an open archive."""

    archive: zipfile.ZipFile
    name: str

    def open(self) -> IO[bytes]:
        """Open the array's ``.npy`` file; refuse one that would be too large to be true."""
        listed = self.archive.getinfo(self.name)
        if listed.file_size > max(_LEAST_LIMIT, _MOST_SHRUNK * listed.compress_size):
            raise ValueError(
                f"{self.name} would be {listed.file_size:,} bytes, unpacked from "
                f"{listed.compress_size:,}"
            )
        return self._opened()

    def shape(self) -> tuple[int, ...]:
        """Read the shape only."""
        with self._opened() as file:
            return self._header(file)[0]

    def read(self) -> NDArray[Any]:
        """Read the array."""
        with self.open() as file:
            self._header(file)
        with self.open() as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))

    def read_rows(self, n_rows: int) -> Iterator[NDArray[Any]]:
        """Yield so many rows of the array at a time, which may shrink to next to nothing."""
        with self._opened() as file:
            shape, is_by_columns, dtype = self._header(file)
            row = dtype.itemsize * math.prod(shape[1:])
            for start in range(0, 0 if is_by_columns else shape[0], n_rows):
                n_wanted = min(n_rows, shape[0] - start)
                content = file.read(n_wanted * row)
                yield np.frombuffer(content, dtype).reshape(n_wanted, *shape[1:])
        if is_by_columns:
            yield self.read()

    def _opened(self) -> IO[bytes]:
        if self.archive.getinfo(self.name).compress_type not in _PACKED_BY:
            raise ValueError(f"{self.name} is packed in a way that numpy never packs")
        return self.archive.open(self.name)

    def _header(self, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        """Return shape, order and type; refuse what the archive cannot hold."""
        is_first = np.lib.format.read_magic(file) == (1, 0)
        read = _READ_FIRST if is_first else np.lib.format.read_array_header_2_0
        shape, is_by_columns, dtype = read(file)
        n_bytes = self.archive.getinfo(self.name).file_size
        if math.prod(shape) * dtype.itemsize > n_bytes and not dtype.hasobject:
            raise ValueError(f"{self.name} claims {shape} of {dtype}, but has {n_bytes:,} bytes")
        _refuse_emptiness(shape, dtype, self.archive.getinfo(self.name).compress_size)
        return shape, is_by_columns, dtype


def _refuse_emptiness(shape: tuple[int, ...], dtype: np.dtype[Any], n_bytes: int) -> None:
    """Refuse many rows or columns of nothing: they take no bytes, but their names would."""
    if min(shape, default=0) < 0 or max(shape, default=0) > max(_MOST_NAMES, n_bytes):
        raise ValueError(f"it claims the shape {shape} in {n_bytes:,} bytes")
    if not dtype.itemsize:
        raise ValueError(f"it holds nothing ({dtype})")


def choose_key(
    path: Path, shapes: dict[str, tuple[int, ...]], key: str | None, usual: Sequence[str]
) -> str:
    """Return the key of an archive's matrix: the one asked for, a usual one, or the only one."""
    if key is not None:
        if key not in shapes:
            raise EarmarkError(f"{path}: there is no array {key!r}{nearest(key, shapes)}")
        return key
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    chosen = [name for name in matrices if name in usual] or matrices
    if len(chosen) != 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "nothing"
        raise EarmarkError(
            f"{path}: expected one matrix [clip, class], found {listed}; name the one to use"
        )
    return chosen[0]


def names_in(members: dict[str, Member], name: str) -> pl.Series | None:
    """Return the identifiers that an archive lists under a name; None where there are none."""
    if name not in members:
        return None
    listed = members[name].read()
    if listed.ndim != 1 or listed.dtype.kind not in "USiu":
        raise ValueError(f"{name} should be a list of texts, but is {listed.dtype} {listed.shape}")
    texts = np.char.decode(listed, "utf-8", "replace") if listed.dtype.kind == "S" else listed
    # Half a character, which numpy can hold, is an error of pl.Series, and so of the archive.
    return pl.Series(name.removesuffix("s"), [str(text) for text in texts.tolist()], pl.String)
