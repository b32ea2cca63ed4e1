"""Confidence intervals: bootstrap over clips, seeds and classes, p-values, and binomial intervals.

Clips are resampled, and every student is measured on the same resamples, so the difference of two
students is paired. A resample repeats clips, which makes ranking easier and raises d' and average
precision; so an interval has the spread of the resamples and is centred on the value.

Seeds are a random effect (:func:`with_seeds`). Proportions have Wilson's interval; proportions
over several strata have :func:`stratified`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.errors import EarmarkError
from earmark.metrics.matrices import Floats, mean_over_classes

BORROWED_JUDGEMENTS = 2.0
"""How many judgements of the whole a cell's variance borrows: a few answers alike prove little."""


class Interval(NamedTuple):
    """A number and the ends of its interval."""

    value: float
    low: float
    high: float


class Proportions(NamedTuple):
    """Estimated shares with their intervals; all fields are float64 [group]."""

    value: Floats
    low: Floats
    high: Floats


class Draws(NamedTuple):
    """A number as measured, and as measured on every resample [resample]."""

    value: float
    resamples: Floats

    def __sub__(self, other: Draws) -> Draws:
        """Return the paired difference of two numbers measured on the same resamples."""
        return Draws(self.value - other.value, self.resamples - other.resamples)

    def interval(self, level: float = 0.9) -> Interval:
        """Return the number with its bootstrap interval."""
        return Interval(self.value, *interval(self.value, self.resamples, level))

    @property
    def error(self) -> float:
        """The standard error: how far resamples spread."""
        return float(np.nanstd(self.resamples)) if np.isfinite(self.resamples).any() else np.nan


def resample_weights(n_clips: int, n_resamples: int, seed: int) -> NDArray[np.uint8]:
    """Draw how often each resample contains each clip: uint8 [resample, clip].

    A resample draws ``n_clips`` clips with replacement, so each row adds up to ``n_clips``. More
    resamples with the same seed begin with the same rows. That a clip is drawn 256 times has a
    chance of 1 in 10 ** 500.
    """
    if n_clips < 1:
        raise EarmarkError("there are no clips to draw from")
    random = np.random.default_rng(seed)
    weights = np.empty((n_resamples, n_clips), np.uint8)
    for row in weights:
        row[:] = np.bincount(random.integers(n_clips, size=n_clips), minlength=n_clips)
    return weights


def interval(value: float, resamples: ArrayLike, level: float = 0.9) -> tuple[float, float]:
    """Return the bootstrap interval of a number measured on resamples [resample].

    It is as wide as the resamples spread, and stands around the value: a resample holds clips
    twice, which makes ranking easier, so that all of them may lie above a d' or a mAP. Resamples
    that could not be measured (NaN) are left out; with none left it is (NaN, NaN).

    >>> interval(10.0, [9.0, 10.0, 11.0, 12.0, 18.0], level=0.5)
    (8.0, 10.0)
    """
    check_level(level)
    array = np.asarray(resamples, np.float64)
    measured = array[~np.isnan(array)]
    if not len(measured):
        return float("nan"), float("nan")
    low, high = np.quantile(measured, [(1 - level) / 2, (1 + level) / 2])
    centre = measured.mean()
    return float(value + low - centre), float(value + high - centre)


def with_seeds(
    runs: Sequence[Draws], seed: int = 0, alike: Sequence[Sequence[Draws]] = ()
) -> Draws:
    """Return the mean over training runs that differ by their seed, and how it varies.

    Every run was measured on the same resamples. Their mean moves with the clips, and also because
    other seeds would have given other runs: by t * sqrt(v / n), with t drawn from Student's
    distribution for each resample (from ``seed``), and v the variance between runs beyond what the
    clips explain. With one run nothing is known of v, and it is left out. With two or three, v is
    so uncertain that little can be said, and three that agree by chance look sure: ``alike`` are
    the runs of everything that strays as much, these among it, and v their mean, which is known as
    well as all of them together tell it.
    """
    mean = np.mean([run.resamples for run in runs], axis=0)
    n = len(runs)
    if n > 1:
        known = [own for own in alike if len(own) > 1] or [runs]
        freedoms = [len(own) - 1 for own in known]
        between = max(np.average([_between(own) for own in known], weights=freedoms), 0.0)
        t = np.random.default_rng([seed, n]).standard_t(sum(freedoms), len(mean))
        mean = mean + np.sqrt(between / n) * t
    return Draws(float(np.mean([run.value for run in runs])), mean)


def _between(runs: Sequence[Draws]) -> float:
    """Return the variance between runs beyond what the clips explain; below zero by chance."""
    resamples = np.stack([run.resamples for run in runs])  # [run, resample]
    n = len(runs)
    by_clips = (resamples - resamples.mean(axis=0)).var(axis=1).mean() * n / (n - 1)
    return float(np.var([run.value for run in runs], ddof=1) - by_clips)


def over_classes(per_class: ArrayLike, n_resamples: int, seed: int = 0) -> Draws:
    """Return the mean over classes [class], and how it would vary with other classes.

    Classes are drawn with replacement; NaN, a class that cannot be measured, is left out.
    """
    values = np.asarray(per_class, np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        return Draws(float("nan"), np.full(n_resamples, np.nan))
    chosen = np.random.default_rng(seed).integers(len(values), size=(n_resamples, len(values)))
    return Draws(float(values.mean()), mean_over_classes(values[chosen]))


def p_value(difference: Draws) -> float:
    """Return the two-sided p-value of a difference: how often chance alone goes as far from 0.

    Resamples stray from the number as it would stray from 0 if nothing had changed. At least
    1 / (resamples + 1); 1 for a difference of exactly 0, and NaN where it was not measured.
    """
    strays = np.abs(difference.resamples - difference.value)
    strays = strays[~np.isnan(strays)]
    if not len(strays) or np.isnan(difference.value):
        return float("nan")
    return float((1 + (strays >= abs(difference.value)).sum()) / (len(strays) + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for being several (Holm 1979); NaN stays and is not counted.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, np.float64)
    order = [place for place in np.argsort(given) if not np.isnan(given[place])]
    corrected, lowest = given.copy(), 0.0
    for rank, place in enumerate(order):
        lowest = max(lowest, min((len(order) - rank) * given[place], 1.0))
        corrected[place] = lowest
    return [float(value) for value in corrected]


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
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (successes + z**2 / 2) / (trials + z**2)
    variance = successes * failures / np.maximum(trials, 1) + z**2 / 4
    half_width = z * np.sqrt(variance) / (trials + z**2)
    low = np.where(successes == 0, 0, centre - half_width)
    return low, np.where(failures == 0, 1, centre + half_width)


def check_level(level: float) -> None:
    """Refuse an interval's level that is not a share between 0 and 1."""
    if not 0 < level < 1:
        raise EarmarkError(f"an interval's level lies between 0 and 1 (0.9 is 90 %), got {level}")


def stratified(
    n_present: ArrayLike,
    n_judged: ArrayLike,
    n_labels: ArrayLike,
    groups: ArrayLike | None = None,
    level: float = 0.95,
) -> Proportions:
    """Estimate shares of labels present from simple random samples of several cells.

    The first three arrays [cell] count present answers, judgements and labels of each cell;
    ``groups`` int [cell] numbers, from 0, the sums that cells belong to (by default one sum). Cells
    that nobody judged are left out: a group of nothing else is NaN with the interval (0, 1).

    The estimate is the mean of the cells' shares p weighted by their sizes, W = N / sum(N). Its
    variance is sum W^2 p (1 - p) / n (N - n) / (N - 1), where p borrows a few judgements from the
    estimate. The interval is Wilson's for as many judgements as would give that variance in one
    sample. A single large cell has Wilson's own; a cell heard in full adds no uncertainty.

    >>> [round(float(ends[0]), 2) for ends in stratified([20], [25], [10**6])]
    [0.8, 0.61, 0.91]
    """
    x, n, size = (np.asarray(values, np.float64) for values in (n_present, n_judged, n_labels))
    own = np.zeros(len(n), np.int64) if groups is None else np.asarray(groups, np.int64)
    n_groups = int(own.max(initial=0)) + 1
    is_judged = n > 0
    x, n, size = (values[is_judged] for values in (x, n, size))
    own = own[is_judged]
    weights = size / _total(own, size, n_groups)[own]
    share = _total(own, weights * x / n, n_groups)
    p = (x + BORROWED_JUDGEMENTS * share[own]) / (n + BORROWED_JUDGEMENTS)
    whole = (share * (1 - share))[own]
    # Relative to one judgement of the whole; answers all alike leave nothing to compare.
    spread = np.where(whole > 0, p * (1 - p) / np.where(whole > 0, whole, 1), 1)
    left = (size - n) / np.maximum(size - 1, 1)
    variance = _total(own, weights**2 * spread * left / n, n_groups)
    return _wilson(share, variance, np.bincount(own, minlength=n_groups) > 0, level)


def _total(groups: NDArray[np.int64], values: Floats, n_groups: int) -> Floats:
    return np.bincount(groups, values, n_groups).astype(np.float64)


def _wilson(
    share: Floats, variance: Floats, is_known: NDArray[np.bool_], level: float
) -> Proportions:
    """Return Wilson's interval for 1 / variance judgements; none of them leaves (0, 1)."""
    share = share.clip(0, 1)  # a sum of weights may miss 1 by a rounding
    n = np.divide(1, variance, out=np.zeros_like(variance), where=variance > 0)
    low, high = wilson_interval(share * n, n, level)
    is_census = is_known & (variance <= 0)
    return Proportions(
        np.where(is_known, share, np.nan),
        np.where(is_census, share, low),
        np.where(is_census, share, high),
    )
