"""lwlrap: how high a clip's positives rank among its classes; also for many resamples at once.

It compares classes within a clip, so what lifts rare classes against frequent ones raises it,
missing labels or not. A class without positives is NaN, and left out of every mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.metrics.matrices import (
    RESAMPLES_PER_BLOCK,
    Floats,
    checked,
    checked_weights,
    mean_over_classes,
    ratio,
    resample_blocks,
    sortable,
)
from earmark.native import weigh_pairs

_PAIRS_PER_BLOCK = 256


def lwlrap_per_class(positives: ArrayLike, scores: ArrayLike) -> Floats:
    """Return the label-weighted label-ranking average precision [class].

    Take a positive (clip, class) pair and the classes that score at least as high in its clip:
    the pair's precision is the share of positives among them, so ties take the worst rank. A
    class's lwlrap is the mean over its pairs, NaN without any. ``positives`` [clip, class] is
    boolean, or states of which only +1 counts.

    >>> lwlrap_per_class([[True, False], [True, True]], [[0.1, 0.9], [0.8, 0.7]])
    array([0.75, 1.  ])
    """
    pairs = _positive_pairs(positives, scores)
    sums = np.bincount(pairs.classes, pairs.precisions, pairs.n_classes)
    return ratio(sums, np.bincount(pairs.classes, minlength=pairs.n_classes))


def lwlrap(positives: ArrayLike, scores: ArrayLike) -> float:
    """Return the equal-weight mean of lwlrap over classes with positives (the paper's overall)."""
    return float(mean_over_classes(lwlrap_per_class(positives, scores)))


def lwlrap_label_weighted(positives: ArrayLike, scores: ArrayLike) -> float:
    """Return the mean of lwlrap over positive pairs, so that large classes weigh more.

    This is DCASE 2019's overall figure. NaN without positives.
    """
    precisions = _positive_pairs(positives, scores).precisions
    return float(ratio(precisions.sum(), len(precisions)))


def resampled_lwlrap_per_class(
    positives: ArrayLike, scores: ArrayLike, weights: ArrayLike
) -> Floats:
    """Return lwlrap [resample, class] of many resamples with ``weights`` [resample, clip].

    A pair's precision depends on its own clip alone, so a resample only weighs the pairs anew.
    """
    pairs = _positive_pairs(positives, scores)
    counts = checked_weights(weights, pairs.n_clips)
    order = np.argsort(pairs.classes, kind="stable")
    clips, precisions = pairs.clips[order].astype(np.int32), pairs.precisions[order]
    ends = np.bincount(pairs.classes, minlength=pairs.n_classes).cumsum()
    result = np.empty((len(counts), pairs.n_classes))
    sums, n_drawn = np.empty((2, pairs.n_classes, RESAMPLES_PER_BLOCK))
    for chosen, block in resample_blocks(counts):
        weigh_pairs(block, clips, precisions, ends, sums, n_drawn)
        result[chosen] = ratio(sums, n_drawn).T[: chosen.stop - chosen.start]
    return result


@dataclass(frozen=True)
class _Pairs:
    """The positive pairs in the order of clips, and the precision at each one's rank."""

    clips: NDArray[np.int64]
    classes: NDArray[np.int64]
    precisions: Floats
    n_clips: int
    n_classes: int


def _positive_pairs(positives: ArrayLike, scores: ArrayLike) -> _Pairs:
    labels, values = checked(positives, scores)
    n_clips, n_classes = labels.shape
    is_positive = labels if labels.dtype == bool else labels > 0
    clips, classes = np.divmod(np.flatnonzero(is_positive), max(n_classes, 1))
    own = sortable(values[clips, classes])
    ranks = np.empty(len(own))
    for start in range(0, len(own), _PAIRS_PER_BLOCK):
        block = slice(start, start + _PAIRS_PER_BLOCK)
        rivals = sortable(values[clips[block]])  # [pair, class]
        ranks[block] = (rivals >= own[block, None]).sum(axis=1, dtype=np.int32)
    return _Pairs(clips, classes, _n_hits(clips, own) / ranks, n_clips, n_classes)


def _n_hits(clips: NDArray[np.int64], own: NDArray[Any]) -> NDArray[np.int64]:
    """Count, for each pair, the positives of its clip that score at least as high, itself too."""
    n_hits = np.ones(len(own), np.int64)
    # Pairs of one clip are neighbours, so those ``lag`` places apart are compared all at once.
    for lag in range(1, np.bincount(clips).max(initial=0)):
        is_same_clip = clips[lag:] == clips[:-lag]
        n_hits[:-lag] += is_same_clip & (own[lag:] >= own[:-lag])
        n_hits[lag:] += is_same_clip & (own[:-lag] >= own[lag:])
    return n_hits
