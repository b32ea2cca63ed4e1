"""A file of scores that is not read yet, and an ``.npy`` of scores, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, reading
from earmark.runs import SILENT, Progress, check_unique, map_array

BLOCK_BYTES = 64 << 20
"""Scores in memory at a time during a conversion."""

Convert = Callable[[Path, Progress], None]


@dataclass(frozen=True)
class ScoreFile:
    """A matrix of scores [clip, class] that is not read yet.

    ``clip_ids`` and ``class_ids`` are the names in the file, where it has any. ``npy`` is an
    ``.npy`` that holds the scores as they are; where there is none, ``convert`` writes one.
    """

    path: Path
    shape: tuple[int, int]
    clip_ids: pl.Series | None = None
    class_ids: tuple[str, ...] | None = None
    npy: Path | None = None
    convert: Convert | None = None

    def __post_init__(self) -> None:
        for names, n, what in (
            (self.clip_ids, self.shape[0], "clip"),
            (self.class_ids, self.shape[1], "class"),
        ):
            if names is None:
                continue
            if len(names) != n:
                raise EarmarkError(f"{self.path}: {len(names):,} {what} names for {n:,} scores")
            check_unique(pl.Series(names, dtype=pl.String), f"{self.path}: {what}")

    def write_npy(self, path: Path, progress: Progress = SILENT) -> Path:
        """Return the path of an ``.npy`` with the scores: their own or, converted, the given."""
        if self.npy is not None:
            return self.npy
        assert self.convert is not None
        with reading(self.path, "scores"):
            self.convert(path, progress)
        return path


def map_scores(path: Path) -> NDArray[Any]:
    """Map an ``.npy`` of scores; refuse what is no matrix of floats."""
    scores = map_array(path)
    if scores.ndim != 2:
        raise EarmarkError(f"{path}: expected a matrix [clip, class], got shape {scores.shape}")
    if scores.dtype.kind != "f" or scores.dtype.itemsize > 8:
        raise EarmarkError(f"{path}: expected float16, float32 or float64, got {scores.dtype}")
    return scores


def rows_at_once(n_columns: int) -> int:
    """Return how many rows of so many scores make a block."""
    return max(1, BLOCK_BYTES // max(8 * n_columns, 1))


def row_blocks(path: Path, mode: Literal["r", "r+"] = "r") -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the rows of an ``.npy`` block by block, with the number of each block's first."""
    n_clips, n_classes = map_scores(path).shape
    step = rows_at_once(n_classes)
    for start in range(0, n_clips, step):
        # A fresh map for each block: mapped pages add up in the process's memory.
        yield start, np.lib.format.open_memmap(path, mode=mode)[start : start + step]


def write_blocks(
    path: Path, dtype: np.dtype[Any], shape: Sequence[int], blocks: Iterable[NDArray[Any]]
) -> None:
    """Write an ``.npy`` from blocks of rows."""
    header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)
