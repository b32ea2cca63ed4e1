"""What a pass over the chances of all labels finds: sums of every class, and the likeliest labels.

Blocks of clips are added by a loop in C, and what several threads found is added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.flags.chances.clues import N_CLUES
from earmark.flags.histograms import Matrix
from earmark.scores import add_chances

LOWEST, STEP, N_STEPS = -16.0, 1 / 16, 512
"""Log-odds are counted in bins from -16 to 16; what is beyond counts in the outer ones."""

N_LIKELIEST = 1 << 16
"""Labels, the likeliest, that a pass over all keeps, so that those in most demand take no other."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Listed:
    """Some implicit labels, in no certain order: clip, class, score and log-odds of each."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int32]
    logits: Floats
    log_odds: Floats

    def where(self, chosen: NDArray[np.bool_]) -> Listed:
        """Return some of them."""
        return Listed(*(getattr(self, name)[chosen] for name in _LISTED))

    @classmethod
    def none(cls) -> Listed:
        """Return a list without labels."""
        floats = np.empty(0, np.float32)
        return cls(np.empty(0, np.int64), np.empty(0, np.int32), floats, floats)

    @classmethod
    def joined(cls, parts: Sequence[Listed]) -> Listed:
        """Return the labels of several lists."""
        return cls(*(np.concatenate([getattr(one, name) for one in parts]) for name in _LISTED))


_LISTED = ("rows", "columns", "logits", "log_odds")


@dataclass(frozen=True)
class Sums:
    """What a pass finds, for every class.

    ``counts`` [class, step] of implicit labels by their log-odds, ``n_expected`` [class] the sum of
    their chances, ``doubt`` [class] that of chance * (1 - chance), and ``slopes`` [class, clue] the
    sum of the clues by the same weight. ``likeliest`` are all labels whose log-odds are at least
    ``likely``, about N_LIKELIEST or fewer.
    """

    counts: NDArray[np.int64]
    n_expected: Matrix
    doubt: Matrix
    slopes: Matrix
    likeliest: Listed
    likely: float

    def __add__(self, other: Sums) -> Sums:
        likely = max(self.likely, other.likely)
        both = Listed.joined([self.likeliest, other.likeliest])
        return Sums(
            self.counts + other.counts,
            self.n_expected + other.n_expected,
            self.doubt + other.doubt,
            self.slopes + other.slopes,
            both.where(both.log_odds >= likely),
            likely,
        )


class Adding:
    """Sums to which blocks of clips are added, and places for the likeliest labels."""

    def __init__(self, n_classes: int) -> None:
        self._counts = np.zeros((n_classes, N_STEPS), np.int32)
        self._n_expected, self._doubt = np.zeros(n_classes), np.zeros(n_classes)
        self.slopes = np.zeros((n_classes, N_CLUES))
        n = max(N_LIKELIEST, 2 * n_classes)
        floats = (np.empty(n, np.float32) for _ in range(2))
        self._kept = Listed(np.empty(n, np.int64), np.empty(n, np.int32), *floats)
        self._state = np.zeros(2, np.int64)  # the lowest step that is kept, and how many are

    def add(
        self,
        rows: slice,
        scores: Floats,
        log_odds: Floats,
        starts: NDArray[np.int64],
        explicit: NDArray[np.int32],
    ) -> None:
        """Add some clips, whose explicit labels are ``explicit[starts[i]:starts[i + 1]]``."""
        add_chances(
            scores,
            np.ascontiguousarray(log_odds),
            np.ascontiguousarray(starts, np.int64),
            explicit,
            self._counts,
            self._n_expected,
            self._doubt,
            self._state,
            self._kept.rows,
            self._kept.columns,
            self._kept.logits,
            self._kept.log_odds,
            rows.start,
            LOWEST,
            1 / STEP,
        )

    @property
    def sums(self) -> Sums:
        """What was added."""
        first, n = self._state.tolist()
        likely = LOWEST + STEP * first if first else -np.inf  # the first step has no lower end
        listed = self._kept.where(np.arange(len(self._kept.rows)) < n)
        counts = self._counts.astype(np.int64)
        return Sums(counts, self._n_expected, self._doubt, self.slopes, listed, likely)
