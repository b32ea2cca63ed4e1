"""Metrics per class: lwlrap, AUC, d' and average precision; also for many resamples at once.

Every function takes labels and scores [clip, class] in the same order of clips and classes. Labels
are states (+1 present, -1 not present, 0 nobody was asked) or, where only positives matter,
booleans. Scores are anything that ranks, logits or probabilities: float16, float32 or float64, in
memory or memory-mapped, in either memory order. Infinities rank; NaN is refused.

lwlrap compares classes within a clip; AUC, d' and average precision compare clips within a class.
A class that cannot be measured (no positives, or no negatives to hold them against) is NaN and is
left out of every mean.

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

Negatives = Literal["explicit", "all"]
"""``explicit``: only what a person marked absent (the paper); ``all``: implicit labels as well."""

Floats = NDArray[np.float64]

# Blocks are small enough for their working set to stay in the processor's cache, and bound what a
# memory-mapped or very large matrix needs beside itself.
_PAIRS_PER_BLOCK = 256
_RESAMPLES_PER_BLOCK = 128
_CLIPS_PER_BLOCK = 4096
_VALUES_PER_BLOCK = 1 << 22


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
    return _ratio(sums, np.bincount(pairs.classes, minlength=pairs.n_classes))


def lwlrap(positives: ArrayLike, scores: ArrayLike) -> float:
    """Return the equal-weight mean of lwlrap over classes with positives (the paper's overall)."""
    return float(mean_over_classes(lwlrap_per_class(positives, scores)))


def lwlrap_label_weighted(positives: ArrayLike, scores: ArrayLike) -> float:
    """Return the mean of lwlrap over positive pairs, so that large classes weigh more.

    This is DCASE 2019's overall figure. NaN without positives.
    """
    precisions = _positive_pairs(positives, scores).precisions
    return float(_ratio(precisions.sum(), len(precisions)))


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
    margin = _ratio(0.5, n_pairs)
    clipped = np.clip(np.asarray(auc, np.float64), margin, 1 - margin)
    return np.asarray(np.sqrt(2) * special.ndtri(np.where(n_pairs > 0, clipped, np.nan)))


def mean_over_classes(values: ArrayLike) -> Floats:
    """Return the equal-weight mean over the last axis without its NaN; NaN if nothing is left."""
    array = np.asarray(values, np.float64)
    is_measured = ~np.isnan(array)
    return _ratio(np.where(is_measured, array, 0).sum(axis=-1), is_measured.sum(axis=-1))


def wilson_interval(
    n_successes: ArrayLike, n: ArrayLike, level: float = 0.9
) -> tuple[Floats, Floats]:
    """Return Wilson's score interval (low, high) of a proportion; the arguments broadcast.

    Where nothing was tried (n = 0) nothing is known: (0, 1).

    >>> [round(float(end), 3) for end in wilson_interval(8, 10)]
    [0.541, 0.931]
    """
    check_level(level)
    successes, trials = np.asarray(n_successes, np.float64), np.asarray(n, np.float64)
    failures = trials - successes
    if not np.all((successes >= 0) & (failures >= 0)):
        raise EarmarkError(f"expected 0 <= n_successes <= n, got {n_successes!r} of {n!r}")
    z = special.ndtri((1 + level) / 2)
    centre = (successes + z**2 / 2) / (trials + z**2)
    variance = successes * failures / np.maximum(trials, 1) + z**2 / 4
    half_width = z * np.sqrt(variance) / (trials + z**2)
    low = np.where(successes == 0, 0, centre - half_width)
    return low, np.where(failures == 0, 1, centre + half_width)


def check_level(level: float) -> None:
    """Refuse an interval's level that is not a share between 0 and 1."""
    if not 0 < level < 1:
        raise EarmarkError(f"an interval's level lies between 0 and 1 (0.9 is 90 %), got {level}")


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
    labels, values = _checked(states, scores)
    counts = _checked_weights(weights, len(labels))
    ladders = [_Ladder.of(*column) for column in _columns(labels, values, negatives)]
    shape = (len(ladders), len(counts))
    result = Resampled(*(np.full(shape, np.nan) for _ in Resampled._fields))
    for chosen, block in _resample_blocks(counts):
        for row, ladder in enumerate(ladders):
            for field, numbers in zip(result, _measure(ladder.weigh(block)), strict=True):
                field[row, chosen] = numbers
    return Resampled(*(field.T for field in result))


def resampled_lwlrap_per_class(
    positives: ArrayLike, scores: ArrayLike, weights: ArrayLike
) -> Floats:
    """Return lwlrap [resample, class] of many resamples with ``weights`` [resample, clip].

    A pair's precision depends on its own clip alone, so a resample only weighs the pairs anew.
    """
    pairs = _positive_pairs(positives, scores)
    counts = _checked_weights(weights, pairs.n_clips)
    shape, places = (pairs.n_classes, pairs.n_clips), (pairs.classes, pairs.clips)
    precisions = sparse.csr_array((pairs.precisions, places), shape)
    is_positive = sparse.csr_array((np.ones(len(pairs.clips)), places), shape)
    result = np.empty((len(counts), pairs.n_classes))
    for chosen, block in _resample_blocks(counts):
        result[chosen] = _ratio(precisions @ block, is_positive @ block).T
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
    labels, values = _checked(positives, scores)
    n_clips, n_classes = labels.shape
    is_positive = labels if labels.dtype == bool else labels > 0
    clips, classes = np.divmod(np.flatnonzero(is_positive), max(n_classes, 1))
    own = _sortable(values[clips, classes])
    ranks = np.empty(len(own))
    for start in range(0, len(own), _PAIRS_PER_BLOCK):
        block = slice(start, start + _PAIRS_PER_BLOCK)
        rivals = _sortable(values[clips[block]])  # [pair, class]
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
    return 1 - _ratio(n_lost, steps.n_positives * steps.n_negatives)


def _average_precision(steps: _Steps) -> Floats:
    n_hits = _sum_from_top(steps.positives)
    # A step that a resample never drew has nothing at or above it, and counts for nothing.
    n_retrieved = np.maximum(n_hits + steps.above + steps.tied, 1)
    precision = (steps.positives * n_hits / n_retrieved).sum(axis=0)
    return np.where(steps.n_negatives > 0, _ratio(precision, steps.n_positives), np.nan)


def _for_each_class(
    metric: Callable[[_Steps], Floats], states: ArrayLike, scores: ArrayLike, negatives: Negatives
) -> Floats:
    columns = _columns(*_checked(states, scores), negatives)
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
        values = _sortable(scores[:, block].T)
        if negatives == "all":  # explicit labels are few, and picked faster where they are
            values = np.ascontiguousarray(values)
        yield from zip(columns > 0, columns <= highest, values, strict=True)


def _resample_blocks(weights: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield resamples as float columns [clip, resample], a few at a time."""
    heaviest = weights.sum(axis=1).max(initial=0)
    # Whole numbers add up exactly in float32 as long as no sum passes 2 ** 24.
    kind = np.float32 if heaviest <= 1 << 24 else np.float64
    for start in range(0, len(weights), _RESAMPLES_PER_BLOCK):
        block = slice(start, start + _RESAMPLES_PER_BLOCK)
        yield block, np.ascontiguousarray(weights[block].T, dtype=kind)


def _checked(labels: ArrayLike, scores: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return labels and scores as arrays of the same shape, or say what does not fit."""
    states, values = np.asarray(labels), np.asarray(scores)
    if values.ndim != 2 or states.shape != values.shape:
        raise EarmarkError(
            "labels and scores must be matrices [clip, class] of one shape, got "
            f"{states.shape} and {values.shape}; are they of the same clips, and not transposed?"
        )
    is_whole = states.dtype.kind in "biu"
    if not is_whole or (states.size and not -1 <= states.min() <= states.max() <= 1):
        came = f"values up to {states.max()}" if is_whole else f"type {states.dtype}"
        raise EarmarkError(
            f"labels must be booleans or whole numbers +1, -1 and 0, got {came}; were labels and "
            "scores swapped?"
        )
    if values.dtype.kind not in "biuf":
        raise EarmarkError(f"scores must be numbers, got {values.dtype}")
    _check_no_nan(values)
    return states, values


def _check_no_nan(scores: NDArray[Any]) -> None:
    if scores.dtype.kind != "f":
        return
    for start in range(0, len(scores), _CLIPS_PER_BLOCK):
        is_nan = np.isnan(scores[start : start + _CLIPS_PER_BLOCK])
        if is_nan.any():
            row, column = np.argwhere(is_nan)[0]
            raise EarmarkError(
                f"the score of clip {start + row}, class {column} (counted from 0) is NaN; leave "
                "that clip or class out, or mend the model that scored it"
            )


def _checked_weights(weights: ArrayLike, n_clips: int) -> NDArray[Any]:
    counts = np.asarray(weights)
    if counts.ndim != 2 or counts.shape[1] != n_clips:
        raise EarmarkError(
            f"weights must be a matrix [resample, clip] for {n_clips} clips, got {counts.shape}"
        )
    if counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise EarmarkError(
            f"weights count how often a clip was drawn: 0, 1, ...; got {counts.dtype}"
        )
    return counts


def _sortable(scores: NDArray[Any]) -> NDArray[Any]:
    """Widen float16, which most processors compare slowly; no value changes."""
    return scores.astype(np.float32) if scores.dtype == np.float16 else scores


def _ratio(numerator: Any, denominator: Any) -> Floats:
    """Divide; what cannot be divided is NaN or infinite without a warning."""
    with np.errstate(invalid="ignore", divide="ignore"):
        quotient: Floats = np.true_divide(numerator, denominator)
    return quotient
