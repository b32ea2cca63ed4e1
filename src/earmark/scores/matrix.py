"""Matrices of scores [clip, class], read a few rows at a time by several threads.

Scores are logits as a numpy array, a memory map or the path of an ``.npy`` file; float16, float32
or float64; C or Fortran order. They are used as float32 throughout: float16 converts exactly, and
float64 in an order-preserving way that may turn close scores into ties (which are never split).

A column of nothing but NaN is an *unscored* class. Any other NaN, and any infinite score, is an
error that names its class and clip.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from earmark.compute import default_workers
from earmark.errors import EarmarkError, short_repr
from earmark.labels import LabelSet
from earmark.storage import as_array, map_array

ScoresLike = NDArray[np.floating] | str | Path
"""An array, a memory map or the path of an ``.npy`` file."""

CHUNK_SCORES = 1 << 17
"""Scores read at a time, few enough to stay in a core's cache."""

COLUMN_SCORES = 1 << 22
"""Scores read at a time from a file in Fortran order, many enough for long reads of a column."""

SAMPLED_COLUMNS = 16
"""Columns in Fortran order from which clips are sampled at a time."""

FINGERPRINT_COLUMNS = 16
"""Classes, spread over all, whose scores tell clips apart."""

T = TypeVar("T")
Chunk = tuple[slice, NDArray[np.float32]]


@dataclass(frozen=True)
class ScoreMatrix:
    """Scores [clip, class] in memory or in a file; build it with :func:`open_scores`."""

    array: NDArray[np.floating]
    path: Path | None = None

    __repr__ = short_repr

    @property
    def n_clips(self) -> int:
        """Number of rows."""
        return int(self.array.shape[0])

    @property
    def n_classes(self) -> int:
        """Number of columns."""
        return int(self.array.shape[1])

    @property
    def is_by_columns(self) -> bool:
        """Whether the scores of a class, rather than those of a clip, lie side by side."""
        return not self.array.flags.c_contiguous and bool(self.array.flags.f_contiguous)

    def read(self, rows: slice) -> NDArray[np.float32]:
        """Return the scores [len(rows), class] of some clips as float32, unchecked."""
        start, stop, _ = rows.indices(self.n_clips)
        [(_, values)] = self._chunks(deque([slice(start, stop)]))
        return values

    def sample(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [len(rows), class] of scattered clips as float32, unchecked."""
        if self.path is None:
            return _as_float32(self.array[rows])
        scores = np.empty((len(rows), self.n_classes), self.array.dtype)
        if not self.is_by_columns:
            # A map would bring in sixteen pages for every row, which count as the process's memory.
            with FileIO(self.path) as file:
                for row, values in zip(rows.tolist(), scores, strict=True):
                    self._read_items(file, row * self.n_classes, values)
            return _as_float32(scores)
        # A fresh map each time: mapped pages add up in the process's memory.
        for start in range(0, self.n_classes, SAMPLED_COLUMNS):
            columns = slice(start, start + SAMPLED_COLUMNS)
            scores[:, columns] = map_array(self.path)[:, columns][rows]
        return _as_float32(scores)

    def sample_rows(self, n_rows: int, among: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return some clips, all if there are no more, chosen by their scores.

        The same clips are chosen whatever their order, so that nothing found from them depends on
        it. They come in an order that is theirs, too.
        """
        if among is None:
            every = self.n_clips <= n_rows
            return np.arange(self.n_clips) if every else _lowest(self.fingerprints, n_rows)
        return np.asarray(among[_lowest(self.fingerprints[among], n_rows)])

    @property
    def fingerprints(self) -> NDArray[np.uint64]:
        """Numbers [clip] that depend on a clip's scores alone and look drawn at random."""
        return self._looked_over[0]

    @property
    def odd_rows(self) -> list[slice]:
        """Clips in a row among whose scores some are infinite or NaN."""
        return self._looked_over[1]

    @cached_property
    def _looked_over(self) -> tuple[NDArray[np.uint64], list[slice]]:
        """Fingerprints and odd rows, which a pass over the scores finds."""
        last = max(self.n_classes - 1, 0)
        columns = np.unique(np.linspace(0, last, FINGERPRINT_COLUMNS).astype(np.int32))
        columns = columns[: self.n_classes]
        factors = np.random.default_rng(0).integers(1 << 63, size=len(columns), dtype=np.uint64)
        fingerprints = np.empty(self.n_clips, np.uint64)

        def look_over(chunks: Iterator[Chunk]) -> list[slice]:
            odd_rows = []
            for rows, values in chunks:
                fingerprints[rows] = _fingerprints(values[:, columns], factors * 2 + 1)
                if not np.isfinite(values).all():
                    odd_rows.append(rows)
            return odd_rows

        return fingerprints, [rows for part in self.map(look_over) for rows in part]

    def map(self, function: Callable[[Iterator[Chunk]], T]) -> list[T]:
        """Call ``function(chunks)`` in several threads that share the chunks among themselves.

        A chunk is (rows, scores [clip, class]), C-contiguous, only to be read, and valid until the
        next one is taken. Each chunk goes to one of the calls, in no certain order. An error in one
        call ends the others.
        """
        n_scores = COLUMN_SCORES if self.is_by_columns else CHUNK_SCORES
        n_clips, step = self.n_clips, max(1, n_scores // max(self.n_classes, 1))
        starts = range(0, n_clips, step)
        waiting = deque(slice(start, min(start + step, n_clips)) for start in starts)

        def work(_: int) -> T:
            try:
                return function(self._chunks(waiting))
            finally:
                waiting.clear()

        n_workers = max(1, min(default_workers(), len(waiting)))
        with ThreadPoolExecutor(n_workers) as pool:
            return list(pool.map(work, range(n_workers)))

    def _chunks(self, waiting: deque[slice]) -> Iterator[Chunk]:
        """Yield chunks as long as some are waiting, all in one buffer.

        It stays in the core's cache, where loops go over it strip by strip: to map the file, or to
        look at an array where it lies, takes as long as to copy it there and leaves every loop to
        wait for memory.
        """
        with contextlib.ExitStack() as stack:
            file = None if self.path is None else stack.enter_context(FileIO(self.path))
            buffer = np.empty(0, np.float32)
            raw = np.empty(0, self.array.dtype)
            while rows := _next(waiting):
                n_scores = (rows.stop - rows.start) * self.n_classes
                if len(buffer) < n_scores:
                    buffer = np.empty(n_scores, np.float32)
                    raw = np.empty(n_scores, raw.dtype)
                values = buffer[:n_scores].reshape(rows.stop - rows.start, self.n_classes)
                self._fill(values, file, rows, raw[:n_scores])
                yield rows, values

    @property
    def _offset(self) -> int:
        return int(getattr(self.array, "offset", 0))

    def _fill(
        self,
        values: NDArray[np.float32],
        file: FileIO | None,
        rows: slice,
        raw: NDArray[np.floating],
    ) -> None:
        """Bring the scores of some clips into ``values``, by way of ``raw`` where they differ."""
        if file is None:
            _copy(self.array[rows], values)
        elif self.is_by_columns:
            columns = raw.reshape(values.shape[::-1])
            for column, scores in enumerate(columns):
                self._read_items(file, column * self.n_clips + rows.start, scores)
            _copy(columns.T, values)
        elif raw.dtype == np.float32:
            self._read_items(file, rows.start * self.n_classes, values.reshape(-1))
        else:
            self._read_items(file, rows.start * self.n_classes, raw)
            _copy(raw.reshape(values.shape), values)

    def _read_items(self, file: FileIO, first: int, out: NDArray[np.floating]) -> None:
        file.seek(self._offset + first * out.itemsize)
        left = out.view(np.uint8).data
        while left and (n_read := file.readinto(left)):  # two gigabytes at the most
            left = left[n_read:]
        if left:
            raise EarmarkError(f"{self.path}: cut short while it was being read; write it again")


@dataclass(frozen=True)
class MappedScores:
    """A matrix [clip, class] of scores, or of chances as log-odds, on disk; what identifies it."""

    path: Path
    digest: str

    def open(self) -> NDArray[np.float32]:
        """Map the matrix."""
        logits: NDArray[np.float32] = np.load(self.path, mmap_mode="r")
        return logits


@dataclass(frozen=True)
class HeldScores:
    """The same in memory, or mapped by whoever gave it; of any floating type."""

    array: NDArray[np.floating]
    digest: str

    __repr__ = short_repr

    def open(self) -> NDArray[np.floating]:
        """Return the matrix."""
        return self.array


TeacherScores = MappedScores | HeldScores
"""Scores that students are told by."""


def _fingerprints(scores: NDArray[np.float32], factors: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each clip's scores [clip, class] into one number; 0.0 and -0.0 are alike."""
    bits = (scores + np.float32(0)).view(np.uint32)
    mixed = (bits * factors).sum(axis=1, dtype=np.uint64)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(mixed ^ (mixed >> np.uint64(27)))


def _lowest(numbers: NDArray[np.uint64], n: int) -> NDArray[np.int64]:
    """Return where the n lowest numbers are, all if there are no more, from the lowest on.

    Of equal ones the first come first.
    """
    if n >= len(numbers):
        return np.argsort(numbers, kind="stable")
    highest = np.partition(numbers, n)[n]
    places = np.flatnonzero(numbers <= highest)
    return places[np.argsort(numbers[places], kind="stable")[:n]]


def _next(waiting: deque[slice]) -> slice | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def open_scores(logits: ScoresLike | ScoreMatrix, labels: LabelSet) -> ScoreMatrix:
    """Open scores and check that their shape and type fit the labels.

    Give the path of a file rather than a memory map of it to keep the process small.
    """
    if isinstance(logits, ScoreMatrix):
        return logits
    path = Path(logits) if isinstance(logits, str | Path) else None
    array = as_array(logits) if path is None else map_array(path)
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


def refuse_odd_score(
    labels: LabelSet, row: int, values: NDArray[np.float32], is_unscored: NDArray[np.bool_]
) -> NoReturn:
    """Name the first score [class] of a clip that is infinite, or NaN in a class with scores."""
    is_odd = np.isinf(values) | (np.isnan(values) != is_unscored)
    column = int(is_odd.argmax())
    raise EarmarkError(_odd_score(labels, row, column, values[column]))


def _odd_score(labels: LabelSet, row: int, column: int, value: np.float32) -> str:
    where = f"clip {labels.clip_ids[row]!r} (row {row}), class {labels.class_ids[column]!r}"
    if np.isfinite(value):
        return (
            f"{where}: a score ({value}), but the first clip has none (NaN) in this class; score "
            "a class for all clips or, with NaN throughout, for none; leave unscored clips out"
        )
    hint = "; were probabilities of 0 or 1 turned into logits?" if np.isinf(value) else ""
    return f"{where}: the score is {value}, expected a finite number{hint}"


def _shape_hint(shape: tuple[int, ...], expected: tuple[int, int]) -> str:
    if shape == expected[::-1]:
        return "; transpose them"
    if len(shape) == 2 and shape[1] == expected[1]:
        return "; are clips missing, or are these the scores of another split?"
    return ""


def _copy(scores: NDArray[np.floating], out: NDArray[np.float32]) -> None:
    with np.errstate(over="ignore"):
        np.copyto(out, scores, casting="same_kind")


def _as_float32(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is refused
        return np.asarray(scores, dtype=np.float32)
