"""Matrices of scores [clip, class], read a few rows at a time by several threads.

Scores are logits as a numpy array, a memory map or the path of an ``.npy`` file; float16, float32
or float64; C or Fortran order. They are used as float32 throughout: float16 converts exactly, and
float64 in an order-preserving way that may turn close scores into ties (which are never split).

A column of nothing but NaN is an *unscored* class. Any other NaN, and any infinite score, is an
error that names its class and clip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from earmark.engine import default_workers
from earmark.errors import EarmarkError
from earmark.labels import LabelSet

ScoresLike = NDArray[np.floating] | str | Path
"""An array, a memory map or the path of an ``.npy`` file."""

CHUNK_SCORES = 1 << 20
"""Scores read at a time, few enough to stay in a core's cache."""

SEGMENT_CHUNKS = 4
"""Chunks that a thread takes at a time."""

T = TypeVar("T")
Chunk = tuple[slice, NDArray[np.float32]]


@dataclass(frozen=True)
class ScoreMatrix:
    """Scores [clip, class] in memory or in a file; build it with :func:`open_scores`."""

    array: NDArray[np.floating]
    path: Path | None = None

    @property
    def n_clips(self) -> int:
        """Number of rows."""
        return int(self.array.shape[0])

    @property
    def n_classes(self) -> int:
        """Number of columns."""
        return int(self.array.shape[1])

    def read(self, rows: slice) -> NDArray[np.float32]:
        """Return the scores [len(rows), class] of some clips as float32, unchecked."""
        # A fresh map for each call: mapped pages of a file do not add up in the process's memory.
        array = self.array if self.path is None else _map_file(self.path)
        return _as_float32(array[rows])

    def sample(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [len(rows), class] of scattered clips as float32, unchecked."""
        if self.path is None or not self.array.flags.c_contiguous:
            return _as_float32(self.array[rows])
        scores = np.empty((len(rows), self.n_classes), self.array.dtype)
        with FileIO(self.path) as file:  # quicker than to map a page for every clip
            for row, score in zip(rows.tolist(), scores, strict=True):
                self._read_into(file, row, score)
        return _as_float32(scores)

    def map(self, function: Callable[[slice, Iterator[Chunk]], T]) -> list[T]:
        """Call ``function(rows, chunks)`` on every segment of the clips, in threads.

        A chunk is (rows, scores [clip, class]) and valid until the next one is taken. The results
        come in the order of the clips.
        """
        step = max(1, CHUNK_SCORES // max(self.n_classes, 1))
        starts = range(0, self.n_clips, step * SEGMENT_CHUNKS)
        segments = [range(a, min(a + step * SEGMENT_CHUNKS, self.n_clips), step) for a in starts]
        with ThreadPoolExecutor(default_workers()) as pool:
            spans = [slice(segment.start, segment.stop) for segment in segments]
            return list(pool.map(function, spans, map(self._chunks, segments)))

    def _chunks(self, starts: range) -> Iterator[Chunk]:
        pieces = [slice(start, min(start + starts.step, starts.stop)) for start in starts]
        if self.path is None or not self.array.flags.c_contiguous:
            yield from ((rows, self.read(rows)) for rows in pieces)
            return
        # To read into one warm buffer costs less than to map pages and fault them in.
        buffer = np.empty((starts.step, self.n_classes), self.array.dtype)
        with FileIO(self.path) as file:
            for rows in pieces:
                chunk = buffer[: rows.stop - rows.start]
                self._read_into(file, rows.start, chunk)
                yield rows, _as_float32(chunk)

    def _read_into(self, file: FileIO, row: int, out: NDArray[np.floating]) -> None:
        n_bytes = self.n_classes * self.array.dtype.itemsize
        file.seek(getattr(self.array, "offset", 0) + row * n_bytes)
        if file.readinto(out.view(np.uint8).data) != out.nbytes:
            raise EarmarkError(f"{self.path}: cut short while it was being read; write it again")


def open_scores(logits: ScoresLike | ScoreMatrix, labels: LabelSet) -> ScoreMatrix:
    """Open scores and check that their shape and type fit the labels.

    Give the path of a file rather than a memory map of it to keep the process small.
    """
    if isinstance(logits, ScoreMatrix):
        return logits
    path = Path(logits) if isinstance(logits, str | Path) else None
    array = np.asanyarray(logits) if path is None else _map_file(path)
    name = "scores" if path is None else str(path)
    expected = (labels.n_clips, labels.n_classes)
    if array.shape != expected:
        raise EarmarkError(
            f"{name}: expected shape {expected} [clip, class] to match the labels, got "
            f"{array.shape}{_shape_hint(array.shape, expected)}"
        )
    if array.dtype.kind != "f":
        raise EarmarkError(f"{name}: expected float16, float32 or float64, got {array.dtype}")
    return ScoreMatrix(array, path)


def find_unscored(scores: ScoreMatrix) -> NDArray[np.bool_]:
    """Tell which classes [class] have no scores: NaN for the first clip, hence for all clips."""
    if not scores.n_clips:
        return np.zeros(scores.n_classes, bool)
    return np.asarray(np.isnan(scores.read(slice(0, 1))[0]))


def check_finite(labels: LabelSet, chunk: Chunk, is_unscored: NDArray[np.bool_]) -> None:
    """Refuse NaN and infinite scores, except NaN throughout an unscored class [class]."""
    rows, values = chunk
    # NaN and infinity show in the extremes, which are quicker to find than a mask.
    if np.isfinite(values.min(initial=0)) and np.isfinite(values.max(initial=0)):
        is_odd = np.broadcast_to(is_unscored, values.shape)
    else:
        is_odd = np.isinf(values) | (np.isnan(values) != is_unscored)
    if is_odd.any():
        row, column = (int(place) for place in np.argwhere(is_odd)[0])
        raise EarmarkError(_odd_score(labels, rows.start + row, column, values[row, column]))


def _odd_score(labels: LabelSet, row: int, column: int, value: np.float32) -> str:
    where = f"clip {labels.clip_ids[row]!r} (row {row}), class {labels.class_ids[column]!r}"
    if np.isfinite(value):
        return (
            f"{where}: a score ({value}), but the first clip has none (NaN) in this class; score "
            "a class for all clips or, with NaN throughout, for none"
        )
    hint = "; were probabilities of 0 or 1 turned into logits?" if np.isinf(value) else ""
    return f"{where}: the score is {value}, expected a finite number{hint}"


def _shape_hint(shape: tuple[int, ...], expected: tuple[int, int]) -> str:
    if shape == expected[::-1]:
        return "; transpose them"
    if len(shape) == 2 and shape[1] == expected[1]:
        return "; are clips missing, or are these the scores of another split?"
    return ""


def _map_file(path: Path) -> NDArray[np.floating]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise EarmarkError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise EarmarkError(
            f"{path}: cannot be read as an .npy matrix ({error}); cut short, or another format?"
        ) from None
    if not isinstance(array, np.ndarray):
        raise EarmarkError(f"{path}: expected one .npy matrix, got an archive of arrays")
    return array


def _as_float32(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is refused
        return np.asarray(scores, dtype=np.float32)
