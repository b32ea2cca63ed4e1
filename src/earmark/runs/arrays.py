"""Arrays that other programs wrote, as numpy's ``.npy`` and ``.npz``, opened with care.

Whatever is wrong with a file, it raises :class:`~earmark.errors.EarmarkError`, names the file and
says what was expected. Nothing is ever unpickled.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, check_file, nearest

_ARRAY_ERRORS = (
    OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError, TypeError, LookupError,
    AttributeError, ArithmeticError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy's parser of headers, zipfile and zlib raise on damaged files."""


def as_array(values: Any) -> NDArray[Any]:
    """Return an array of values, those of a torch tensor included, wherever it lies.

    numpy has no bfloat16: such a tensor becomes float32.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if "bfloat16" in str(values.dtype) else values
    return np.asanyarray(values)


def map_array(path: Path) -> NDArray[Any]:
    """Map an ``.npy`` file without reading it; no pickles."""
    check_file(path)
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except _ARRAY_ERRORS as error:
        raise EarmarkError(
            f"{path}: cannot be read as numpy's .npy ({error}); cut short, or another format?"
        ) from None


@contextmanager
def open_archive(path: Path) -> Iterator[dict[str, Member]]:
    """Open the arrays of an ``.npz`` by name; nothing is read yet, and no pickle ever."""
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            yield {name.removesuffix(".npy"): Member(archive, name) for name in names}
    except _ARRAY_ERRORS as error:
        raise EarmarkError(
            f"{path}: cannot be read as numpy's .npz ({error}); cut short, or another format?"
        ) from None


@dataclass(frozen=True)
class Member:
    """One array in an open archive."""

    archive: zipfile.ZipFile
    name: str

    def open(self) -> IO[bytes]:
        """Open the array's ``.npy`` file."""
        return self.archive.open(self.name)

    def shape(self) -> tuple[int, ...]:
        """Read the shape only."""
        with self.open() as file:
            if np.lib.format.read_magic(file) == (1, 0):
                return np.lib.format.read_array_header_1_0(file)[0]
            return np.lib.format.read_array_header_2_0(file)[0]

    def read(self) -> NDArray[Any]:
        """Read the array."""
        with self.open() as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


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
        raise EarmarkError(f"{name}: expected a list of texts, got {listed.dtype} {listed.shape}")
    texts = np.char.decode(listed, "utf-8", "replace") if listed.dtype.kind == "S" else listed
    return pl.Series(name.removesuffix("s"), [str(text) for text in texts.tolist()], pl.String)
