"""How many labels of a class are missing.

The implicit scores of a class mix negatives with *missing* labels: sounds that are there but that
nobody was asked about. The missing ones score like the class's explicit positives, or a little
lower where faint sounds are labelled less often; :mod:`earmark.flags.mixture` tells them from
negatives.

- ``n_missing``, ``low`` and ``high``: the median of what the scores leave possible, and 90 % of
  it. Before the scores are seen, a class misses one label per positive, give or take a factor of
  ten; a weak teacher of a rare class changes little about that, and the interval stays wide.
- ``upper_bound`` (95 %): above any score there are no more missing labels than implicit ones, and
  the positives tell which share of the missing lies there; exact bounds, the best of nine scores,
  that hold even if the odds of being labelled are e times lower for each sd of the score.

A class with fewer than 30 explicit positives is not estimable, nor one that the scores do not know
(:mod:`earmark.flags.knowledge`). An audit by ear is better than any of these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.errors import short_repr
from earmark.flags.chances.by_score import find_by_score
from earmark.flags.chances.chances import Chances, find_chances
from earmark.flags.chances.clues import find_clues
from earmark.flags.chances.learnt import Answers
from earmark.flags.chances.relatives import Relatives
from earmark.flags.counts_by_ear import count_by_ear, total_by_ear
from earmark.flags.histograms import (
    N_BINS,
    Histograms,
    Matrix,
    moments,
    quantile_bins,
    score_histograms,
    smoothed,
)
from earmark.flags.knowledge import Knowledge, find_knowledge
from earmark.flags.mixture import (
    EXPECTED_PER_POSITIVE,
    EXPECTED_SD,
    MIN_POSITIVES,
    mixture,
    quantiles_of_missing,
)
from earmark.labels import LabelSet, Ontology
from earmark.metrics import least_share, most_expected
from earmark.scores import ScoreMatrix, ScoresLike, Summary, find_unscored, open_scores

MIN_NEGATIVES = 30
"""Explicit negatives among the positives' scores from which ``method`` names them."""

VAGUE = 10.0
"""How many times ``low`` ``high`` may be before the number is called an expectation (100 times
where the scores tell nothing at all)."""

LOWEST_SHARE = 0.02
"""What the model leaves out at either end of an interval. It takes 96 % of what the model thinks
possible to hold the truth in 90 % of the classes of recorded sounds: it is a model."""

EXPECTED_FACTOR = 10.0
"""How many times more, or fewer, labels than positives a class may miss if scores do not tell."""

TOTAL_CORRELATION = 0.85
"""How far the errors of two classes' numbers go together: who labels one class well labels others
well, too."""

MOST_TILT = 1.0
"""Fall in the log-odds of being labelled, per sd of the score, under which the bound holds."""

Names = NDArray[np.object_]

COUNT_SCHEMA = {
    "class_id": pl.String,
    "n_positives": pl.Int64,
    "n_implicit": pl.Int64,
    "n_missing": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "upper_bound": pl.Float64,
    "method": pl.String,
    "reason": pl.String,
}


@dataclass(frozen=True)
class Counts:
    """What is known about the missing labels of every class: how many, and how likely each is."""

    labels: LabelSet
    is_scored: NDArray[np.bool_]
    histograms: Histograms
    knowledge: Knowledge
    chances: Chances

    __repr__ = short_repr

    @cached_property
    def table(self) -> pl.DataFrame:
        """The numbers of missing labels.

        class_id, n_positives, n_implicit, n_missing, low and high (90 % interval), upper_bound
        (never below high), method and reason. The method is ``expectation`` where the scores tell
        little and the number is mostly what is expected of any class; else ``negatives`` where
        explicit negatives were heard, or ``shapes``. Where a class is not estimable, the reason
        says why and the numbers are null (the upper bound needs one positive only). By ear the
        method is ``ears``, and every class with chances has numbers.
        """
        return _table(self)

    @property
    def is_heard(self) -> bool:
        """Whether numbers and chances were learnt by ear."""
        return self.chances.is_learnt

    @cached_property
    def total(self) -> tuple[float, float, float]:
        """Low, middle and high (90 % interval) of all classes that can be estimated."""
        return total_by_ear(self.chances) if self.is_heard else total_missing(self.table)


def count_missing(
    labels: LabelSet | ArrayLike,
    logits: ScoresLike | ScoreMatrix,
    summary: Summary | None = None,
    *,
    ontology: Ontology | None = None,
    answers: Answers | None = None,
) -> Counts:
    """Estimate how many labels of each class are missing, and the chance that a given one is.

    ``labels`` are a label set or states [clip, class]; ``logits`` [clip, class] are an array, a
    memory map or an ``.npy`` path. It takes one pass over the
    scores, or none with an earlier one's ``summary``; chances take a pass of their own when they
    are asked for. With an ``ontology``, what is labelled below a class counts; with ``answers``,
    what was heard. The numbers are in :attr:`Counts.table`, made when it is asked for.
    """
    labels = LabelSet.of(labels)
    scores = open_scores(logits, labels)
    is_scored = ~find_unscored(scores)
    histograms = score_histograms(labels, scores, summary)
    knowledge = find_knowledge(labels, scores, histograms)
    has_both = is_scored & (np.minimum(labels.n_positives, labels.n_implicit) > 0)
    by_score = find_by_score(histograms, has_both & knowledge.is_enough)
    clues = find_clues(labels, by_score, Relatives.of(labels.class_ids, ontology))
    chances = find_chances(clues, scores, answers)
    return Counts(labels, is_scored, histograms, knowledge, chances)


def _table(counts: Counts) -> pl.DataFrame:
    """Count the missing labels of estimable classes, and say why others are not."""
    labels = counts.labels
    numbers, upper, method, reason = _by_ear(counts) if counts.is_heard else _by_scores(counts)
    columns = {
        "class_id": list(labels.class_ids),
        "n_positives": labels.n_positives,
        "n_implicit": labels.n_implicit,
        **dict(zip(("low", "n_missing", "high"), numbers, strict=True)),
        "upper_bound": np.where(np.isfinite(upper), upper, np.nan),
        "method": method.tolist(),
        "reason": reason.tolist(),
    }
    return pl.DataFrame({name: columns[name] for name in COUNT_SCHEMA}, COUNT_SCHEMA).fill_nan(None)


def _by_ear(counts: Counts) -> tuple[Matrix, Matrix, Names, Names]:
    """Return low, middle and high [3, class], upper bound, method and reason [class], by ear."""
    labels, has_chances = counts.labels, counts.chances.clues.by_score.has_chances
    numbers = count_by_ear(counts.chances)
    method, reason = (np.full(labels.n_classes, None, object) for _ in range(2))
    method[has_chances] = "ears"
    reason[~has_chances] = "no explicit positives, or no implicit labels"
    reason[~counts.is_scored] = "no scores"
    return numbers, numbers[2], method, reason


def _by_scores(counts: Counts) -> tuple[Matrix, Matrix, Names, Names]:
    """Return the same by labels and scores alone."""
    labels, is_scored, histograms = counts.labels, counts.is_scored, counts.histograms
    is_large = is_scored & (np.minimum(labels.n_positives, labels.n_implicit) >= MIN_POSITIVES)
    is_told = counts.knowledge.is_class_known & counts.knowledge.is_enough
    is_known = is_large & is_told
    bound = _upper_bound(histograms)
    most = np.where(np.isfinite(bound), np.minimum(bound, labels.n_implicit), np.nan)
    upper = np.where(is_scored & counts.knowledge.is_enough, most, np.nan)
    numbers = np.full((3, labels.n_classes), np.nan)
    numbers[:, is_known] = _count(histograms.of(is_known), upper[is_known])
    method, reason = (np.full(labels.n_classes, None, object) for _ in range(2))
    by_scores = np.where(_hears_negatives(histograms), "negatives", "shapes")
    is_vague = numbers[2] > VAGUE * numbers[0]  # low is 0, high is 2
    numbers[:, is_vague] = _widened(numbers, labels.n_positives, upper)[:, is_vague]
    method[is_known] = np.where(is_vague, "expectation", by_scores)[is_known]
    reason[is_large & ~is_told] = "the scores do not know this class"
    reason[labels.n_positives < MIN_POSITIVES] = f"fewer than {MIN_POSITIVES} explicit positives"
    reason[labels.n_implicit < MIN_POSITIVES] = f"fewer than {MIN_POSITIVES} implicit labels"
    reason[~is_scored] = "no scores"
    if not counts.knowledge.is_enough:
        reason[is_scored] = "the scores do not know the labels"
    return numbers, upper, method, reason


def _widened(numbers: Matrix, n_positives: NDArray[np.int64], upper: Matrix) -> Matrix:
    """Return low, median and high [3, class] where low and high are at least what is expected.

    Where scores tell little, they do not narrow down what is expected of any class either.
    """
    low, middle, high = numbers
    widest = np.minimum(EXPECTED_FACTOR * n_positives, upper)
    return np.stack([np.minimum(low, n_positives / EXPECTED_FACTOR), middle, np.fmax(high, widest)])


def total_missing(table: pl.DataFrame) -> tuple[float, float, float]:
    """Return low, median and high of the missing labels of all classes that can be estimated.

    A class's number is taken for log-normal, downwards and upwards each with a spread of its own,
    and so is their sum; the errors of the classes go together for the most part.
    """
    known = table.filter(pl.col("n_missing") > 0)
    if known.is_empty():
        return 0.0, 0.0, 0.0
    low, middle, high = (known[name].to_numpy().clip(1e-3) for name in ("low", "n_missing", "high"))
    total = middle.sum()
    lowest = total / _total_factor(middle, np.log(middle / low))
    highest = total * _total_factor(middle, np.log(high / middle))
    return float(max(lowest, low.sum())), float(total), float(min(highest, high.sum()))


def _total_factor(middle: Matrix, reach: Matrix) -> float:
    """Return how many times off a sum may be whose parts have given medians and reaches."""
    sd = reach / NormalDist().inv_cdf(1 - LOWEST_SHARE)
    together = np.full((len(sd), len(sd)), TOTAL_CORRELATION)
    np.fill_diagonal(together, 1.0)
    mean = middle * np.exp(sd**2 / 2)
    variance = mean @ np.expm1(together * np.outer(sd, sd)) @ mean
    return float(np.exp(NormalDist().inv_cdf(0.95) * np.sqrt(np.log1p(variance / mean.sum() ** 2))))


def _count(histograms: Histograms, upper: Matrix) -> Matrix:
    """Return low, median and high [3, class] of the number of missing labels."""
    n_expected = EXPECTED_PER_POSITIVE * histograms.positives.sum(axis=1)
    model = mixture(histograms, smoothed(histograms.positives), n_expected, EXPECTED_SD)
    return quantiles_of_missing(model, np.array([LOWEST_SHARE, 0.5, 1 - LOWEST_SHARE]), upper)


def _hears_negatives(histograms: Histograms) -> NDArray[np.bool_]:
    """Tell in which classes people said "not present" where three quarters of positives score."""
    is_high = np.arange(N_BINS) >= quantile_bins(histograms.positives, 0.25)[:, None]
    return np.asarray((histograms.negatives * is_high).sum(axis=1) >= MIN_NEGATIVES)


def _upper_bound(histograms: Histograms, error: float = 0.05) -> Matrix:
    """Return the lowest of nine exact upper bounds [class]; infinite without positives."""
    shares = np.arange(0.1, 0.95, 0.1)
    is_high = np.stack(
        [np.arange(N_BINS) >= quantile_bins(histograms.positives, q)[:, None] for q in shares]
    )
    n_implicit = (histograms.implicit * is_high).sum(axis=2)  # [share, class]
    each = error / len(shares)
    least = _least_share(histograms.positives, is_high, each)
    with np.errstate(invalid="ignore", divide="ignore"):
        bounds = most_expected(n_implicit, each) / least
    return np.asarray(np.fmin.reduce(bounds, axis=0, initial=np.inf))


def _least_share(positives: Matrix, is_high: NDArray[np.bool_], error: float) -> Matrix:
    """Return the least share [share, class] of missing labels in high bins [share, class, bin].

    That is given where positives are: an exact binomial bound, whose odds are then turned by the
    greatest tilt. NaN without positives.
    """
    n, n_high = positives.sum(axis=1), (positives * is_high).sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, variance = moments(positives)
        tilt = np.exp(-MOST_TILT * (np.arange(N_BINS) - mean[:, None]) / np.sqrt(variance)[:, None])
        above = (positives * tilt * is_high).sum(axis=2) / n_high
        below = (positives * tilt * ~is_high).sum(axis=2) / np.maximum(n - n_high, 1)
        share = least_share(n_high, n, error)
        return np.asarray(share * above / (share * above + (1 - share) * below))
