"""Which implicit labels are suspect: thresholds, ignored labels, flags.

For class c with n implicit labels and a discard of q per cent, k = floor(q / 100 * n) in exact
decimal arithmetic. The threshold is the (k + 1)-th largest implicit score, and an implicit label
is ignored where its score is strictly greater. So at most k labels are ignored, and ties at the
edge are never split. Operating points are nested: a table of thresholds stands for all their
label sets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from earmark.bracketing import Bounds, Summary, collect, summarise, top_scores
from earmark.counting import MIN_POSITIVES, Counts, estimate_missing, score_histograms
from earmark.errors import EarmarkError
from earmark.labels import IMPLICIT, LabelSet
from earmark.ontology import Ontology
from earmark.params import PAPER_DISCARD_PERCENTS
from earmark.scores import ScoreMatrix, ScoresLike, find_unscored, open_scores

IN_SAMPLE_RATIO = 0.05
"""Implicit labels per positive, above the positives' median, that make scores look in-sample."""

FLAG_SCHEMA = {
    "clip_id": pl.String,
    "class_id": pl.String,
    "logit": pl.Float32,
    "rank": pl.Int64,
    "chance": pl.Float64,
}


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


def thresholds(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    discard_percents: Sequence[float] = PAPER_DISCARD_PERCENTS,
) -> Thresholds:
    """Find the exact thresholds t_c of every operating point in one pass over the scores.

    ``logits`` [clip, class]: an array, a memory map or an ``.npy`` path (see
    :mod:`earmark.scores`). A class without implicit labels or without scores gets +inf.

    >>> labels = LabelSet.from_dense([[0], [0], [0], [1], [0]])
    >>> thresholds(labels, np.array([[4.0], [1.0], [3.0], [9.0], [2.0]]), [25, 50]).values
    array([[3.],
           [2.]], dtype=float32)
    """
    scores = open_scores(logits, labels)
    n_largest = _n_largest(labels, scores, discard_percents)
    found = top_scores(labels, scores, n_largest)
    values, n_ignored = found.values, found.n_greater
    return Thresholds(tuple(discard_percents), values, labels.n_implicit, n_ignored)


def _n_largest(
    labels: LabelSet, scores: ScoreMatrix, discard_percents: Sequence[float]
) -> NDArray[np.int64]:
    """Return k [point, class]: 0 in unscored classes."""
    return np.where(find_unscored(scores), 0, n_discarded(labels.n_implicit, discard_percents))


def n_discarded(
    n_implicit: NDArray[np.int64], discard_percents: Sequence[float]
) -> NDArray[np.int64]:
    """Return k = floor(q / 100 * n) [point, class], exact for decimal q.

    >>> n_discarded(np.array([1_000, 505_064, 42_459]), [0.1]).tolist()
    [[1, 505, 42]]
    """
    shares = [_share(percent) for percent in discard_percents]
    counts = [
        [share.numerator * n // share.denominator for n in n_implicit.tolist()] for share in shares
    ]
    return np.array(counts, np.int64).reshape(len(shares), len(n_implicit))


def _share(discard_percent: float) -> Fraction:
    if not 0 <= discard_percent <= 100:
        raise EarmarkError(f"a discard percent lies between 0 and 100, got {discard_percent}")
    return Fraction(str(discard_percent)) / 100  # str: 0.1 means a tenth, not its binary neighbour


def ignored(
    states: NDArray[np.int8], logits: NDArray[np.floating], thresholds_row: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Tell which labels [clip, class] are ignored: implicit, and scored above t_c.

    The complement of equation (2)'s mask. ``thresholds_row`` float32 [class] is one row of
    :attr:`Thresholds.values`; NaN scores are never ignored.
    """
    scores = np.asarray(logits)
    if scores.shape != np.shape(states):
        raise EarmarkError(f"states have shape {np.shape(states)}, scores {scores.shape}")
    with np.errstate(over="ignore"):
        is_above = scores.astype(np.float32, copy=False) > thresholds_row
    return np.asarray(is_above & (np.asarray(states) == IMPLICIT))


@dataclass(frozen=True)
class Choice:
    """What a policy decides: how many labels of each class to flag, or above which score.

    Exactly one of ``n_flags`` int64 [class] and ``thresholds`` float32 [class] is given.
    ``n_most`` keeps the best by chance times ``weights`` float64 [class]; ``gate`` keeps
    clips where a parent or child is labelled.
    """

    n_flags: NDArray[np.int64] | None = None
    thresholds: NDArray[np.float32] | None = None
    n_most: int | None = None
    weights: NDArray[np.float64] | None = None
    gate: Ontology | None = None
    counts: Counts | None = None


def flag(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    policy: str = "percentile",
    with_chance: bool = True,
    **options: Any,
) -> pl.DataFrame:
    """List the implicit labels that are suspected to be missing.

    Returns clip_id, class_id, logit, rank (within the class, from 1; equal scores in the clips'
    order) and chance (the estimated probability that the label is missing; null where the class
    is not estimable), sorted by class and rank. An explicit label is never flagged.

    Policies and their options:

    - ``percentile`` (discard_percent=1.0): the highest per cent of each class; the paper's rule
    - ``count``: as many as are estimated to be missing
    - ``precision`` (target=0.5): those whose chance is at least the target
    - ``budget`` (n_flags, balance=0.0): the best overall by chance; what a team can listen to.
      With balance 1, recall overall and the mean recall over classes count alike; with more, small
      classes count more
    - ``positives_quantile`` (quantile="mean" or a number, gate=None): above a quantile of the
      class's own positives; with an ontology as gate, only where a parent or child is labelled
    - ``confident``: probable (p > 0.5) and above the positives' mean, as the confident joint has it
    - ``global`` (probability=0.6): above one probability for all classes

    >>> labels = LabelSet.from_dense([[0], [0], [0], [1], [0]])
    >>> scores = np.array([[4.0], [1.0], [3.0], [9.0], [2.0]])
    >>> flag(labels, scores, discard_percent=25)["clip_id"].to_list()
    ['0']
    """
    scores = open_scores(logits, labels)
    choice = _choose(policy, options)(labels, scores, **options)
    found = _list_chosen(labels, scores, choice)
    counts = choice.counts
    if counts is None and with_chance:
        counts = estimate_missing(labels, scores, summary=found, n_resamples=0)
    flags = _listed(found, counts)
    if choice.gate is not None:
        flags = flags.filter(_is_related(labels, choice.gate, flags))
    if choice.n_most is not None:
        flags = _best(flags, choice.n_most, choice.weights)
    return _named(labels, flags)


def _choose(policy: str, options: Mapping[str, Any]) -> Callable[..., Choice]:
    if policy not in POLICIES:
        raise EarmarkError(f"there is no policy {policy!r}; the choices are {', '.join(POLICIES)}")
    known = list(inspect.signature(POLICIES[policy]).parameters)[2:]
    for option in options:
        if option not in known:
            raise EarmarkError(
                f"policy {policy!r} has no option {option!r}; "
                + (f"the choices are {', '.join(known)}" if known else "it has none")
            )
    return POLICIES[policy]


def _percentile(labels: LabelSet, scores: ScoreMatrix, discard_percent: float = 1.0) -> Choice:
    return Choice(n_flags=_n_largest(labels, scores, [discard_percent])[0])


def _count(labels: LabelSet, scores: ScoreMatrix) -> Choice:
    counts = estimate_missing(labels, scores, n_resamples=0)
    n_missing = counts.table["n_missing"].fill_null(0).round().cast(pl.Int64).to_numpy()
    return Choice(n_flags=np.minimum(n_missing, labels.n_implicit), counts=counts)


def _precision(labels: LabelSet, scores: ScoreMatrix, target: float = 0.5) -> Choice:
    _check_share("target", target)
    counts = estimate_missing(labels, scores, n_resamples=0)
    return Choice(thresholds=counts.score_at(target), counts=counts)


def _budget(labels: LabelSet, scores: ScoreMatrix, n_flags: int, balance: float = 0.0) -> Choice:
    if n_flags < 0 or balance < 0:
        raise EarmarkError(f"n_flags and balance must not be negative, got {n_flags} and {balance}")
    counts = estimate_missing(labels, scores, n_resamples=0)
    n_expected = counts.n_expected
    # A label found adds 1 / all missing to recall, and 1 / the class's to the mean over classes.
    weights = 1 + balance * n_expected.mean() / np.maximum(n_expected, 1)
    thresholds = counts.score_at(counts.chance_of_best(n_flags, weights))
    return Choice(thresholds=thresholds, n_most=n_flags, weights=weights, counts=counts)


def _positives_quantile(
    labels: LabelSet,
    scores: ScoreMatrix,
    quantile: float | Literal["mean"] = "mean",
    gate: Ontology | None = None,
) -> Choice:
    if quantile == "mean":
        return Choice(thresholds=_mean_of_positives(labels, scores), gate=gate)
    _check_share("quantile", quantile)
    columns, logits = _positives(labels, scores)
    thresholds = [
        np.quantile(values, quantile) if len(values) else np.inf
        for values in _by_class(columns, logits, labels.n_classes)
    ]
    return Choice(thresholds=np.array(thresholds, np.float32), gate=gate)


def _confident(labels: LabelSet, scores: ScoreMatrix) -> Choice:
    return Choice(thresholds=np.maximum(_mean_of_positives(labels, scores), np.float32(0)))


def _global(labels: LabelSet, scores: ScoreMatrix, probability: float = 0.6) -> Choice:
    del scores
    _check_share("probability", probability)
    return Choice(thresholds=np.full(labels.n_classes, logit(probability), np.float32))


POLICIES: dict[str, Callable[..., Choice]] = {
    "percentile": _percentile,
    "count": _count,
    "precision": _precision,
    "budget": _budget,
    "positives_quantile": _positives_quantile,
    "confident": _confident,
    "global": _global,
}
"""The rules by which labels are flagged: (labels, scores, options) to a :class:`Choice`."""


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise EarmarkError(f"{name} lies between 0 and 1, got {value}")


def _positives(
    labels: LabelSet, scores: ScoreMatrix
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return class and score of every explicit positive."""
    explicit = _explicit(labels, scores)
    chosen = labels.present & ~np.isnan(explicit)
    return labels.columns[chosen], explicit[chosen]


def _explicit(labels: LabelSet, scores: ScoreMatrix) -> NDArray[np.float32]:
    """Return the score of every explicit label."""
    return collect(labels, scores, Bounds.above(np.full(labels.n_classes, np.inf))).explicit


def _mean_of_positives(labels: LabelSet, scores: ScoreMatrix) -> NDArray[np.float32]:
    """Return the logit of the positives' mean probability [class]; +inf without positives."""
    columns, logits = _positives(labels, scores)
    n = np.bincount(columns, minlength=labels.n_classes)
    total = np.bincount(columns, weights=expit(logits), minlength=labels.n_classes)
    return np.where(n > 0, logit(total / np.maximum(n, 1)), np.inf).astype(np.float32)


def _by_class(
    columns: NDArray[np.int32], values: NDArray[np.float32], n_classes: int
) -> list[NDArray[np.float32]]:
    order = np.argsort(columns, kind="stable")
    edges = np.searchsorted(columns[order], np.arange(1, n_classes))
    return np.split(values[order], edges)


def _list_chosen(labels: LabelSet, scores: ScoreMatrix, choice: Choice) -> Summary:
    """List the labels that a policy chose; their number is the first order statistic's."""
    if choice.n_flags is not None:
        return top_scores(labels, scores, choice.n_flags[None], choice.n_flags)
    assert choice.thresholds is not None
    tops = collect(labels, scores, Bounds.above(choice.thresholds))
    found = [summarise(top, np.array([len(top.listed)]), len(top.listed)) for top in tops.classes]
    return Summary(1, tuple(found), tops.explicit)


def _listed(found: Summary, counts: Counts | None) -> pl.DataFrame:
    """Tabulate the listed labels above each class's first order statistic."""
    n_flags = [int(one.n_greater[0]) for one in found.classes]
    pairs = list(zip(found.classes, n_flags, strict=True))
    columns = np.repeat(np.arange(len(n_flags), dtype=np.int32), n_flags)
    rows = np.concatenate([np.empty(0, np.int32), *(one.rows[:n] for one, n in pairs)])
    logits = np.concatenate([np.empty(0, np.float32), *(one.listed[:n] for one, n in pairs)])
    chances = pl.Series([None], dtype=pl.Float64).new_from_index(0, len(rows))
    if counts is not None:
        chances = pl.Series(counts.chance(columns, logits)).fill_nan(None)
    return pl.DataFrame({"column": columns, "row": rows, "logit": logits, "chance": chances})


def _best(flags: pl.DataFrame, n_most: int, weights: NDArray[np.float64] | None) -> pl.DataFrame:
    """Keep the flags of the highest chance times weight, in their order."""
    weight = 1.0 if weights is None else pl.Series(weights[flags["column"].to_numpy()])
    worth = flags.with_columns(worth=flags["chance"] * weight).with_row_index("place")
    best = worth.sort("worth", "logit", descending=True, nulls_last=True).head(n_most)
    return best.sort("place").drop("place", "worth")


def _is_related(labels: LabelSet, ontology: Ontology, flags: pl.DataFrame) -> pl.Series:
    """Tell whether a parent or a child of each flag's class is an explicit positive of its clip."""
    places = labels.clip_rows * labels.n_classes + labels.columns  # ascending
    positives = places[labels.present]
    columns, rows = flags["column"].to_numpy(), flags["row"].to_numpy().astype(np.int64)
    is_related = np.zeros(len(flags), bool)
    index = {class_id: column for column, class_id in enumerate(labels.class_ids)}
    for column, class_id in enumerate(labels.class_ids):
        related = {*ontology.parents.get(class_id, ()), *ontology.children(class_id)}
        mine = np.flatnonzero(columns == column)
        for other in related & index.keys():
            is_related[mine] |= np.isin(rows[mine] * labels.n_classes + index[other], positives)
    return pl.Series(is_related)


def _named(labels: LabelSet, flags: pl.DataFrame) -> pl.DataFrame:
    """Replace numbers by identifiers, and rank the flags of each class."""
    columns = flags["column"].to_numpy()
    n_flags = np.bincount(columns, minlength=labels.n_classes)
    starts = np.cumsum(n_flags) - n_flags
    return pl.DataFrame(
        {
            "clip_id": labels.clip_ids.gather(flags["row"]),
            "class_id": pl.Series(labels.class_ids, dtype=pl.String).gather(flags["column"]),
            "logit": flags["logit"],
            "rank": np.arange(1, len(columns) + 1) - starts[columns],
            "chance": flags["chance"],
        },
        schema=FLAG_SCHEMA,
    )


def survey(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    discard_percents: Sequence[float] = PAPER_DISCARD_PERCENTS,
    flag_percent: float = 1.0,
    with_chance: bool = True,
) -> tuple[Thresholds, pl.DataFrame]:
    """Find the thresholds of all operating points and the flags of one, in a single pass.

    The same results as :func:`thresholds` and :func:`flag`.
    """
    scores = open_scores(logits, labels)
    n_largest = _n_largest(labels, scores, [flag_percent, *discard_percents])
    found = top_scores(labels, scores, n_largest, n_largest[0])
    counts = None
    if with_chance:
        counts = estimate_missing(labels, scores, summary=found, n_resamples=0)
    values, n_ignored = found.values[1:], found.n_greater[1:]
    points = Thresholds(tuple(discard_percents), values, labels.n_implicit, n_ignored)
    return points, _named(labels, _listed(found, counts))


def suspicious_positives(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    n_per_class: int | None = None,
    percent: float | None = None,
) -> pl.DataFrame:
    """List the lowest-scored explicit positives of each class: labels that may be wrong.

    Give a number per class or a per cent of the class's positives (rounded down). Returns clip_id,
    class_id, logit, rank (from 1, the lowest), sorted by class and rank.
    """
    if (n_per_class is None) == (percent is None):
        raise EarmarkError("give either n_per_class or percent")
    scores = open_scores(logits, labels)
    explicit = _explicit(labels, scores)
    chosen = np.flatnonzero(labels.present & ~np.isnan(explicit))
    order = chosen[np.lexsort((chosen, explicit[chosen], labels.columns[chosen]))]
    columns = labels.columns[order]
    n_positives = np.bincount(columns, minlength=labels.n_classes)
    ranks = np.arange(len(order)) - (np.cumsum(n_positives) - n_positives)[columns] + 1
    if percent is not None:
        n_most = n_discarded(n_positives, [percent])[0]
    else:
        n_most = np.full(labels.n_classes, n_per_class)
    is_low = ranks <= n_most[columns]
    return pl.DataFrame(
        {
            "clip_id": labels.clip_ids.gather(labels.clip_rows[order[is_low]]),
            "class_id": pl.Series(labels.class_ids, dtype=pl.String).gather(columns[is_low]),
            "logit": explicit[order[is_low]],
            "rank": ranks[is_low],
        },
        schema={name: FLAG_SCHEMA[name] for name in ("clip_id", "class_id", "logit", "rank")},
    )


def in_sample_warning(labels: LabelSet, logits: ScoresLike | ScoreMatrix) -> str | None:
    """Say so if the scores look as if the teacher had been trained on these very labels.

    A teacher that saw the missing labels as negatives has pushed their scores down. So look at how
    many implicit labels score above the median of their class's positives, relative to the
    positives there; in half of the classes with at least 30 positives that is under one in twenty
    only if the teacher has learnt the labels by heart, or if hardly a label is missing.
    """
    histograms = score_histograms(labels, logits)
    is_large = labels.n_positives >= MIN_POSITIVES
    ratios = histograms.of(is_large).implicit_per_positive(0.5)
    if not len(ratios) or np.median(ratios) >= IN_SAMPLE_RATIO:
        return None
    return (
        f"in half of the classes fewer than {IN_SAMPLE_RATIO:.0%} as many implicit labels as "
        "positives score above the positives' median: either hardly a label is missing, or the "
        "teacher was trained on these labels and hides what is missing; score out of fold"
    )
