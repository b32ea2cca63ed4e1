"""Operating points: which per cent of a class's implicit labels is ignored, and above which score.

For class c with n implicit labels and a discard of q per cent, k = floor(q / 100 * n) in exact
decimal arithmetic. The threshold is the (k + 1)-th largest implicit score, and an implicit label
is ignored where its score is strictly greater. So at most k labels are ignored, and ties at the
edge are never split. Operating points are nested: a table of thresholds stands for all their
label sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.compute import Engine
from earmark.config import PAPER_DISCARD_PERCENTS
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.losses import ignored
from earmark.scores import (
    ScoreMatrix,
    ScoresLike,
    find_unscored,
    open_scores,
    passes_by,
    top_scores,
)

_N_SHOWN = 3
"""Operating points that are shown at a prompt."""


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of every operating point and class.

    ``values`` float32 [point, class], +inf where nothing is ignored (k = 0, or the class has no
    scores); ``n_implicit`` int64 [class]; ``n_ignored`` int64 [point, class].
    """

    discard_percents: tuple[float, ...]
    values: NDArray[np.float32]
    n_implicit: NDArray[np.int64]
    n_ignored: NDArray[np.int64]

    def __repr__(self) -> str:
        points = ", ".join(f"{percent:g}" for percent in self.discard_percents[:_N_SHOWN])
        more = ", ..." if len(self.discard_percents) > _N_SHOWN else ""
        ignored = ", ".join(f"{n:,}" for n in self.n_ignored.sum(axis=1)[:_N_SHOWN].tolist())
        return (
            f"Thresholds({len(self.n_implicit):,} classes at {points}{more} %; ignored labels: "
            f"{ignored}{more})"
        )

    def table(self, class_ids: Sequence[str]) -> pl.DataFrame:
        """Return one row per point and class: discard_percent, class_id, n_implicit, ..."""
        n_points, n_classes = self.values.shape
        return pl.DataFrame(
            {
                "discard_percent": np.repeat(np.array(self.discard_percents, float), n_classes),
                "class_id": list(class_ids) * n_points,
                "n_implicit": np.tile(self.n_implicit, n_points),
                "n_ignored": self.n_ignored.ravel(),
                "threshold": self.values.ravel(),
            }
        )

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> Thresholds:
        """Return what :meth:`table` was made of."""
        percents = tuple(table["discard_percent"].unique(maintain_order=True).to_list())
        values, n_implicit, n_ignored = (
            table[name].to_numpy().reshape(len(percents), -1)
            for name in ("threshold", "n_implicit", "n_ignored")
        )
        return cls(percents, values, n_implicit[0], n_ignored)

    def at(self, discard_percents: Sequence[float]) -> Thresholds:
        """Return some of the operating points, in the order in which they are given."""
        points = [self.discard_percents.index(percent) for percent in discard_percents]
        values, n_ignored = self.values[points], self.n_ignored[points]
        return Thresholds(tuple(discard_percents), values, self.n_implicit, n_ignored)

    def joined(self, other: Thresholds) -> Thresholds:
        """Return the operating points of two tables of the same labels and scores."""
        return Thresholds(
            (*self.discard_percents, *other.discard_percents),
            np.concatenate([self.values, other.values]),
            self.n_implicit,
            np.concatenate([self.n_ignored, other.n_ignored]),
        )


def thresholds(
    labels: LabelSet | ArrayLike,
    logits: ScoresLike | ScoreMatrix,
    discard_percents: float | Sequence[float] = PAPER_DISCARD_PERCENTS,
    *,
    engine: Engine | None = None,
) -> Thresholds:
    """Find the exact thresholds t_c of every operating point in two passes over the scores.

    ``labels`` are a label set or states [clip, class]. ``logits`` [clip, class]: an array, a memory
    map or an ``.npy`` path (see :mod:`earmark.scores.matrix`). One number is one operating point. A
    class without implicit labels or without scores gets +inf. With an ``engine`` the passes are its
    tasks, a shard of an ``.npy`` file each.

    >>> labels = LabelSet.from_dense([[0], [0], [0], [1], [0]])
    >>> thresholds(labels, np.array([[4.0], [1.0], [3.0], [9.0], [2.0]]), [25, 50]).values
    array([[3.],
           [2.]], dtype=float32)
    """
    labels = LabelSet.of(labels)
    scores = open_scores(logits, labels)
    percents = tuple(np.atleast_1d(np.asarray(discard_percents, float)).tolist())
    ranks = n_largest(labels, scores, percents)
    found = top_scores(labels, scores, ranks, passes=passes_by(engine), only_ranks=True)
    values, n_ignored = found.values, found.n_greater
    return Thresholds(percents, values, labels.n_implicit, n_ignored)


def n_largest(
    labels: LabelSet, scores: ScoreMatrix, discard_percents: Sequence[float]
) -> NDArray[np.int64]:
    """Return k [point, class] as :func:`n_discarded` does, but 0 in unscored classes."""
    return np.where(find_unscored(scores), 0, n_discarded(labels.n_implicit, discard_percents))


def n_discarded(
    n_implicit: NDArray[np.int64], discard_percents: Sequence[float]
) -> NDArray[np.int64]:
    """Return k = floor(q / 100 * n) [point, class], exact for decimal q.

    >>> n_discarded(np.array([1_000, 505_064, 42_459]), [0.1]).tolist()
    [[1, 505, 42]]
    """
    shares = [_share(percent).as_integer_ratio() for percent in discard_percents]
    n_each = n_implicit.tolist()  # whole numbers of Python's, which have no end
    counts = [[share * n // of for n in n_each] for share, of in shares]
    return np.array(counts, np.int64).reshape(len(shares), len(n_implicit))


def _share(discard_percent: float) -> Fraction:
    if not 0 <= discard_percent <= 100:
        raise EarmarkError(f"a discard percent lies between 0 and 100, got {discard_percent}")
    return Fraction(str(discard_percent)) / 100  # str: 0.1 means a tenth, not its binary neighbour


def judge_flags(
    labels: LabelSet, truth: LabelSet, logits: NDArray[np.float32], found: Thresholds
) -> pl.DataFrame:
    """Count the flags of each operating point that are missing labels, by the known truth.

    ``logits`` [clip, class] are the teacher's. Returns discard_percent, n_flags, n_right (missing
    labels) and n_missing (all of them); the other flags are decoys.
    """
    states = labels.states()
    is_missing = (states == 0) & (truth.states() > 0)
    rows = []
    for percent, row in zip(found.discard_percents, found.values, strict=True):
        is_flagged = ignored(states, logits, row)
        rows.append(
            {
                "discard_percent": float(percent),
                "n_flags": int(is_flagged.sum()),
                "n_right": int((is_flagged & is_missing).sum()),
                "n_missing": int(is_missing.sum()),
            }
        )
    return pl.DataFrame(rows)
