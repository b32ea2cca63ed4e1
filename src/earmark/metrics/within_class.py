"""Metrics within a class: AUC, d' and average precision; also for many resamples at once.

They compare clips within a class, so no offset of a whole class changes them. A class that cannot
be measured (no positives, or no negatives to hold them against) is NaN and is left out of every
mean.

The ``resampled_*`` functions compute the same numbers on many bootstrap resamples. A resample is a
row of weights: how often it drew each clip. Give every student the same weights, and the
difference of two students is paired: both saw the same clips and leave out the same classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special

from earmark.errors import EarmarkError, nearest
from earmark.metrics.matrices import (
    Floats,
    checked,
    checked_weights,
    ratio,
    resample_blocks,
    sortable,
)

Negatives = Literal["explicit", "all"]
"""``explicit``: only what a person marked absent (the paper); ``all``: implicit labels as well."""

_VALUES_PER_BLOCK = 1 << 22


def auc_per_class(
    states: ArrayLike, scores: ArrayLike, negatives: Negatives = "explicit"
) -> Floats:
    """Return the area under the ROC curve [class]: how often a positive outscores a negative.

    A tie counts half (mid-ranks). NaN where a class has no positives or no negatives.

    >>> states, scores = [[1], [1], [-1], [0]], [[3.0], [1.0], [2.0], [1.0]]
    >>> auc_per_class(states, scores), auc_per_class(states, scores, negatives="all")
    (array([0.5]), array([0.625]))
    """
    return _for_each_class(_auc, states, scores, negatives)


def average_precision_per_class(
    states: ArrayLike, scores: ArrayLike, negatives: Negatives = "all"
) -> Floats:
    """Return the average precision [class]: the mean precision at the positives' scores.

    Equal to scikit-learn's ``average_precision_score``, ties included; its mean over classes is
    mAP. NaN where a class has no positives or no negatives.
    """
    return _for_each_class(_average_precision, states, scores, negatives)


def d_prime(auc: ArrayLike, n_positives: ArrayLike, n_negatives: ArrayLike) -> Floats:
    """Return d' = sqrt(2) times the inverse of the normal distribution function at the AUC.

    The AUC is first kept half a pair away from 0 and 1, in [1 / (2 n1 n0), 1 - 1 / (2 n1 n0)]: a
    class whose few labels are ranked without a fault is good, not infinitely good. The arguments
    broadcast. NaN where the AUC is NaN or a count is 0.

    >>> d_prime([0.5, 0.76, 1.0], 10, 50).round(3)
    array([0.   , 0.999, 4.37 ])
    """
    n_pairs = np.multiply(n_positives, n_negatives, dtype=np.float64)
    margin = ratio(0.5, n_pairs)
    clipped = np.clip(np.asarray(auc, np.float64), margin, 1 - margin)
    return np.asarray(np.sqrt(2) * special.ndtri(np.where(n_pairs > 0, clipped, np.nan)))


class Resampled(NamedTuple):
    """Within-class metrics of every resample; all fields are float64 [resample, class]."""

    auc: Floats
    average_precision: Floats
    n_positives: Floats
    n_negatives: Floats


def resampled_auc_and_ap(
    states: ArrayLike, scores: ArrayLike, weights: ArrayLike, negatives: Negatives = "explicit"
) -> Resampled:
    """Return AUC and average precision of many resamples, with the counts that d' needs.

    ``weights`` [resample, clip] are whole numbers: how often a resample drew a clip. The result is
    what the plain metrics give on a matrix with every clip repeated that often.

    Clips are sorted once per class. Between one distinct positive score and the next, all that
    matters of a resample is the weight of the negatives there, so one sparse product sums up 128
    resamples; beside the weights it takes about 12 bytes per label.
    """
    labels, values = checked(states, scores)
    counts = checked_weights(weights, len(labels))
    ladders = [_Ladder.of(*column) for column in _columns(labels, values, negatives)]
    shape = (len(ladders), len(counts))
    result = Resampled(*(np.full(shape, np.nan) for _ in Resampled._fields))
    for chosen, block in resample_blocks(counts):
        for row, ladder in enumerate(ladders):
            for field, numbers in zip(result, _measure(ladder.weigh(block)), strict=True):
                field[row, chosen] = numbers
    return Resampled(*(field.T for field in result))


@dataclass(frozen=True)
class _Steps:
    """Labels counted at the distinct scores of a class's positives, ascending.

    The first axis is the step; a second one, if there is one, the resample.
    """

    positives: NDArray[Any]
    tied: NDArray[Any]
    """Negatives with the same score."""
    above: NDArray[Any]
    """Negatives with a higher score."""
    n_negatives: Any

    @property
    def n_positives(self) -> Any:
        return self.positives.sum(axis=0)


def _measure(steps: _Steps) -> Resampled:
    counts = (steps.n_positives, steps.n_negatives)
    return Resampled(_auc(steps), _average_precision(steps), *counts)


def _auc(steps: _Steps) -> Floats:
    n_lost = (steps.positives * (steps.above + steps.tied / 2)).sum(axis=0)
    return 1 - ratio(n_lost, steps.n_positives * steps.n_negatives)


def _average_precision(steps: _Steps) -> Floats:
    n_hits = _sum_from_top(steps.positives)
    # A step that a resample never drew has nothing at or above it, and counts for nothing.
    n_retrieved = np.maximum(n_hits + steps.above + steps.tied, 1)
    precision = (steps.positives * n_hits / n_retrieved).sum(axis=0)
    return np.where(steps.n_negatives > 0, ratio(precision, steps.n_positives), np.nan)


def _for_each_class(
    metric: Callable[[_Steps], Floats], states: ArrayLike, scores: ArrayLike, negatives: Negatives
) -> Floats:
    columns = _columns(*checked(states, scores), negatives)
    return np.array([metric(_count_steps(*column)) for column in columns], np.float64)


def _count_steps(
    is_positive: NDArray[np.bool_], is_negative: NDArray[np.bool_], scores: NDArray[Any]
) -> _Steps:
    distinct, n_positives = np.unique(scores[is_positive], return_counts=True)
    negatives = np.sort(scores[is_negative])
    n_up_to = np.searchsorted(negatives, distinct, side="right")
    tied = n_up_to - np.searchsorted(negatives, distinct, side="left")
    return _Steps(n_positives, tied, len(negatives) - n_up_to, len(negatives))


@dataclass(frozen=True)
class _Ladder:
    """The labels of one class sorted into rungs, ready to be weighed by any resample.

    ``matrix`` [rung, clip] has a one for each label. Rungs of the negatives come first, upwards:
    below the lowest step, tied with it, between it and the next, tied with that, and so on; then
    a rung for the positives of each step.
    """

    matrix: sparse.csc_array
    n_steps: int

    @classmethod
    def of(
        cls, is_positive: NDArray[np.bool_], is_negative: NDArray[np.bool_], scores: NDArray[Any]
    ) -> _Ladder:
        distinct, steps = np.unique(scores[is_positive], return_inverse=True)
        clips = np.flatnonzero(is_negative)
        clips = clips[np.argsort(scores[clips])]
        edges = [np.searchsorted(scores[clips], distinct, side) for side in ("left", "right")]
        sizes = np.diff(np.stack(edges, axis=1).ravel(), prepend=0, append=len(clips))
        rungs = np.full(len(scores), -1, np.int32)
        rungs[clips] = np.repeat(np.arange(len(sizes)), sizes)
        rungs[is_positive] = len(sizes) + steps
        is_used = rungs >= 0
        starts = np.concatenate([[0], np.cumsum(is_used)]).astype(np.int32)
        ones = np.ones(starts[-1], np.float32)
        shape = (len(sizes) + len(distinct), len(scores))
        return cls(sparse.csc_array((ones, rungs[is_used], starts), shape), len(distinct))

    def weigh(self, block: NDArray[Any]) -> _Steps:
        """Sum weights [clip, resample] up to counts [step, resample]."""
        sums = (self.matrix @ block).astype(np.float64)  # [rung, resample]
        negatives, positives = np.split(sums, [2 * self.n_steps + 1])
        tied, between = negatives[1::2], negatives[2::2]
        above = _sum_from_top(tied + between) - tied
        return _Steps(positives, tied, above, negatives.sum(axis=0))


def _sum_from_top(values: NDArray[Any]) -> NDArray[Any]:
    return values[::-1].cumsum(axis=0)[::-1]


def _columns(
    states: NDArray[Any], scores: NDArray[Any], negatives: Negatives
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[Any]]]:
    """Yield what is positive, what is negative and the scores of each class, a few at a time."""
    if negatives not in get_args(Negatives):
        raise EarmarkError(
            f"no such negatives: {negatives!r}{nearest(negatives, get_args(Negatives))}"
        )
    highest = -1 if negatives == "explicit" else 0
    n_clips, n_classes = scores.shape
    width = max(_VALUES_PER_BLOCK // max(n_clips, 1), 1)
    for start in range(0, n_classes, width):
        block = slice(start, start + width)
        columns = np.ascontiguousarray(states[:, block].T)  # [class, clip]
        values = sortable(scores[:, block].T)
        if negatives == "all":  # explicit labels are few, and picked faster where they are
            values = np.ascontiguousarray(values)
        yield from zip(columns > 0, columns <= highest, values, strict=True)
