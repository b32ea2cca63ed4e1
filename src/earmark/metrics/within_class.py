"""Metrics within a class: AUC, d' and average precision; also for many resamples at once.

They compare clips within a class, so no offset of a whole class changes them. A class that cannot
be measured (no positives, or no negatives to hold them against) is NaN and is left out of every
mean.

The ``resampled_*`` functions compute the same numbers on many bootstrap resamples. A resample is a
row of weights: how often it drew each clip. Give every student the same weights, and the
difference of two students is paired: both saw the same clips and leave out the same classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from earmark.errors import EarmarkError, nearest
from earmark.metrics.matrices import (
    RESAMPLES_PER_BLOCK,
    Floats,
    checked,
    checked_weights,
    ratio,
    resample_blocks,
    sortable,
)
from earmark.native import climb_ladders

Negatives = Literal["explicit", "all"]
"""``explicit``: only what a person marked absent (the paper); ``all``: implicit labels as well."""

_VALUES_PER_BLOCK = 1 << 20


def auc_per_class(
    states: ArrayLike, scores: ArrayLike, negatives: Negatives = "explicit"
) -> Floats:
    """Return the area under the ROC curve [class]: how often a positive outscores a negative.

    A tie counts half (mid-ranks). NaN where a class has no positives or no negatives.

    >>> states, scores = [[1], [1], [-1], [0]], [[3.0], [1.0], [2.0], [1.0]]
    >>> auc_per_class(states, scores), auc_per_class(states, scores, negatives="all")
    (array([0.5]), array([0.625]))
    """
    return auc_and_ap_per_class(states, scores, negatives)[0]


def average_precision_per_class(
    states: ArrayLike, scores: ArrayLike, negatives: Negatives = "all"
) -> Floats:
    """Return the average precision [class]: the mean precision at the positives' scores.

    Equal to scikit-learn's ``average_precision_score``, ties included; its mean over classes is
    mAP. NaN where a class has no positives or no negatives.
    """
    return auc_and_ap_per_class(states, scores, negatives)[1]


def auc_and_ap_per_class(
    states: ArrayLike, scores: ArrayLike, negatives: Negatives
) -> tuple[Floats, Floats]:
    """Return the AUC and the average precision [class], for which clips are sorted once."""
    once = np.ones((1, len(np.asarray(scores))), np.uint8)
    measured = resampled_auc_and_ap(states, scores, once, negatives)
    return measured.auc[0], measured.average_precision[0]


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
    matters of a resample is the weight of the negatives there, which a loop in C sums up for 64
    resamples at a time; beside the weights it takes at most 4 bytes per label.
    """
    labels, values = checked(states, scores)
    counts = checked_weights(weights, len(labels))
    ladders = _Ladders.of(_columns(labels, values, negatives), labels.size)
    totals = np.zeros(-(-len(counts) // RESAMPLES_PER_BLOCK) * RESAMPLES_PER_BLOCK, np.uint32)
    totals[: len(counts)] = counts.sum(axis=1)
    result = Resampled(*np.empty((len(Resampled._fields), len(ladders), len(counts))))
    for chosen, block in resample_blocks(counts):
        found = ladders.measure(block, totals[chosen.start :][:RESAMPLES_PER_BLOCK])
        for field, numbers in zip(result, found, strict=True):
            field[:, chosen] = numbers[:, : chosen.stop - chosen.start]
    return Resampled(*(field.T for field in result))


@dataclass(frozen=True)
class _Ladders:
    """The labels of all classes sorted into rungs, ready to be weighed by any resample.

    :func:`earmark.native.climb_ladders` says what the fields are.
    """

    clips: NDArray[np.int32]
    ends: NDArray[np.int64]
    rungs: NDArray[np.int64]
    is_rest_outside: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rungs)

    @classmethod
    def of(
        cls,
        columns: Iterable[tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[Any]]],
        n_labels: int,
    ) -> _Ladders:
        """Sort what is positive, what is negative and the scores of each class."""
        clips, n_clips = np.empty(n_labels, np.int32), 0
        sizes, is_outside = [np.empty(0, np.int64)], []
        for column in columns:
            own, of_rungs, is_rest_outside = _ladder(*column)
            clips[n_clips : n_clips + len(own)] = own
            n_clips += len(own)
            sizes.append(of_rungs)
            is_outside.append(is_rest_outside)
        rungs = np.array([len(of_rungs) for of_rungs in sizes[1:]], np.int64).cumsum()
        ends = np.concatenate(sizes).cumsum()
        return cls(clips[:n_clips], ends, rungs, np.array(is_outside, np.bool_))

    def measure(self, block: NDArray[Any], totals: NDArray[np.uint32]) -> Resampled:
        """Return all metrics [class, resample] of the resamples of a block."""
        shape = (len(Resampled._fields), len(self), RESAMPLES_PER_BLOCK)
        found = Resampled(*np.empty(shape))
        climb_ladders(
            block, self.clips, self.ends, self.rungs, self.is_rest_outside, totals, *found
        )
        return found


def _ladder(
    is_positive: NDArray[np.bool_], is_negative: NDArray[np.bool_], scores: NDArray[Any]
) -> tuple[NDArray[np.int32], NDArray[np.int64], bool]:
    """Return a class's clips from the top rung down, the rungs' sizes, and what the rest is."""
    positives = np.flatnonzero(is_positive)
    positives = positives[np.argsort(scores[positives])[::-1]]
    distinct, n_tied = np.unique(scores[positives], return_counts=True)  # ascending
    is_high = is_negative & (scores >= distinct[0]) if len(distinct) else np.zeros_like(is_negative)
    negatives = np.flatnonzero(is_high)
    negatives = negatives[np.argsort(scores[negatives])]
    edges = [np.searchsorted(scores[negatives], distinct, side) for side in ("right", "left")]
    is_below, is_outside = is_negative & ~is_high, ~(is_negative | is_positive)
    is_rest_outside = bool(np.count_nonzero(is_outside) < np.count_nonzero(is_below))
    rest = np.flatnonzero(is_outside if is_rest_outside else is_below)
    sizes = np.empty((len(distinct), 3), np.int64)
    falls = np.stack(edges, axis=1)[::-1].ravel()  # where rungs of negatives begin, from the top
    sizes[:, :2] = -np.diff(falls, prepend=len(negatives)).reshape(-1, 2)
    sizes[:, 2] = n_tied[::-1]
    is_own = np.repeat(np.tile([False, False, True], len(distinct)), sizes.ravel())
    clips = np.empty(len(is_own) + len(rest), np.int32)
    clips[: len(is_own)][is_own] = positives
    clips[: len(is_own)][~is_own] = negatives[::-1]
    clips[len(is_own) :] = rest
    return clips, np.append(sizes.ravel(), len(rest)), is_rest_outside


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
