"""The rules by which implicit labels are flagged: the paper's, ours, and the rivals'.

A policy looks at :class:`Evidence` and makes a :class:`Choice`; it flags nothing itself. To add
one, write a function from the evidence and its options to a choice, and give it a row in
``POLICIES``: all that students, `earmark flag` and pages know of a policy is there.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from earmark.errors import EarmarkError
from earmark.flags.chances.highest import Highest
from earmark.flags.chances.learnt import Answers
from earmark.flags.chances.sums import Listed
from earmark.flags.counts import Counts, count_missing
from earmark.flags.suspects import Suspects
from earmark.flags.thresholds import n_largest
from earmark.labels import LabelSet, Ontology
from earmark.scores import ScoreMatrix, Summary

MOST_IN_A_BUDGET = 1_000
"""Flags of a budget that nobody stated, unless fewer labels are expected to be missing."""

LEAST_IN_A_BUDGET = 0.1
"""The lowest chance of such a flag: below, ten clips are heard for less than one missing label."""


LISTED_FOR_A_BUDGET, LISTED_IN_ALL = 1_250, 1 << 22
"""Labels of each class, and of all, the highest-scored: a few more than a budget, which are sure to
be among them unless many are as likely as the last."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Labels, scores, and what a first look at them found.

    The tails of ``summary`` reach down to the deepest operating point, and ``listed`` are the
    highest-scored labels of each class. Counts are found when they are first asked for.
    """

    labels: LabelSet
    scores: ScoreMatrix
    summary: Summary
    listed: Suspects
    ontology: Ontology | None = None
    answers: Answers | None = None

    @cached_property
    def counts(self) -> Counts:
        """Numbers and chances of missing labels."""
        return count_missing(
            self.labels,
            self.scores,
            summary=self.summary,
            ontology=self.ontology,
            answers=self.answers,
        )

    @property
    def positives(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Class and score of every explicit positive that has a score."""
        explicit = self.summary.explicit
        chosen = self.labels.present & ~np.isnan(explicit)
        return self.labels.columns[chosen], explicit[chosen]


@dataclass(frozen=True)
class Choice:
    """What a policy decides: how many labels of each class to flag, or above which limit.

    By the score: ``n_flags`` int64 [class], or ``limits`` float32 [class]; ``gate`` keeps clips
    where a parent or child is labelled. By the chance: ``log_odds`` float64 [class] are the limits,
    or ``listed`` the labels that are known to be likely enough, of which ``n_each`` int64 [class]
    keeps the best of a class and ``n_most`` the best of all, by chance times ``weights`` float64
    [class]. ``counts`` are those that it was made from, if any.
    """

    n_flags: NDArray[np.int64] | None = None
    limits: NDArray[np.float32] | None = None
    gate: Ontology | None = None
    log_odds: NDArray[np.float64] | None = None
    listed: Listed | None = None
    n_each: NDArray[np.int64] | None = None
    n_most: int | None = None
    weights: NDArray[np.float64] | None = None
    counts: Counts | None = None


def choose(policy: str | None, evidence: Evidence, options: Mapping[str, Any]) -> Choice:
    """Ask a policy by its name; an unknown one, or an unknown option, is an error.

    Where none is asked for, the likeliest are chosen (``budget``), or the paper's, one of each
    class at least, where the scores know too little for chances.
    """
    check_policy(policy, options)
    if policy is not None:
        return POLICIES[policy].choose(evidence, **options)
    if evidence.counts.knowledge.is_enough:
        return _budget(evidence)
    paper, every = (percentile_flags(evidence.labels, evidence.scores, q) for q in (1.0, 100.0))
    return Choice(n_flags=np.maximum(paper, np.minimum(every, 1)))


def default_told(counts: Counts) -> str:
    """Say which labels are flagged where no policy is asked for."""
    if counts.knowledge.is_enough:
        return policy_told("budget", {})
    return f"{policy_told('percentile', {})}, one at least, by rank"


def check_policy(policy: str | None, options: Mapping[str, Any]) -> None:
    """Refuse a policy that there is not, an option that it lacks, and a value out of range."""
    policy = policy or "budget"
    if policy not in POLICIES:
        raise EarmarkError(f"there is no policy {policy!r}; the choices are {', '.join(POLICIES)}")
    known = _defaults(policy)
    for option, value in options.items():
        if option not in known:
            raise EarmarkError(
                f"policy {policy!r} has no option {option!r}; "
                + (f"the choices are {', '.join(known)}" if known else "it has none")
            )
        expected, is_right = _EXPECTED[option]
        if not is_right(value):
            raise EarmarkError(f"{option} {expected}, got {value!r}")


def policy_with(options: Mapping[str, Any]) -> str | None:
    """Return the policy that has some options; None where there are no options, or nobody's.

    >>> policy_with({}), policy_with({"discard_percent": 1})
    (None, 'percentile')
    """
    owners = (name for name in POLICIES if options.keys() <= _defaults(name).keys())
    return next(owners, None) if options else None


def policy_told(policy: str, options: Mapping[str, Any]) -> str:
    """Say which labels a policy flags, its defaults included.

    >>> policy_told("budget", {"n_flags": 1_000})
    'the 1,000 likeliest of all classes'
    """
    check_policy(policy, options)
    return POLICIES[policy].describe(**{**_defaults(policy), **options})


def _defaults(policy: str) -> dict[str, Any]:
    """Return the options of a policy with their defaults."""
    parameters = list(inspect.signature(POLICIES[policy].choose).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters}


def n_to_list(
    policy: str | None,
    labels: LabelSet,
    scores: ScoreMatrix,
    options: Mapping[str, Any],
    n_deepest: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return how many of each class's highest-scored labels [class] a policy will look at.

    The policy ``percentile`` flags just these; for a budget they save a pass over all chances, and
    are no more than ``n_deepest`` [class], which are counted closely anyway.
    """
    if policy == "percentile":
        return percentile_flags(labels, scores, **options)
    if policy not in (None, "budget") or options.get("balance"):
        return np.zeros(labels.n_classes, np.int64)
    n_each = min(LISTED_FOR_A_BUDGET, LISTED_IN_ALL // max(labels.n_classes, 1))
    return np.minimum(n_deepest, n_each)


def percentile_flags(
    labels: LabelSet, scores: ScoreMatrix, discard_percent: float = 1.0
) -> NDArray[np.int64]:
    """Return how many labels of each class the policy ``percentile`` flags, ties aside."""
    return np.asarray(n_largest(labels, scores, [discard_percent])[0])


def _percentile(evidence: Evidence, discard_percent: float = 1.0) -> Choice:
    return Choice(n_flags=percentile_flags(evidence.labels, evidence.scores, discard_percent))


def _count(evidence: Evidence) -> Choice:
    counts = _known_counts(evidence)
    # A number that the scores do not tell jumps about; the chances add up to a steady one.
    expected = pl.Series(counts.chances.sums.n_expected)
    told = pl.when(pl.col("method") == "expectation").then(expected)
    chosen = counts.table.select(told.otherwise("n_missing").fill_null(0).round().cast(pl.Int64))
    n_each = np.minimum(chosen.to_series().to_numpy(), evidence.labels.n_implicit)
    return Choice(log_odds=counts.chances.limits_of_counts(n_each), n_each=n_each, counts=counts)


def _precision(evidence: Evidence, target: float = 0.5) -> Choice:
    counts = _known_counts(evidence)
    return Choice(log_odds=counts.chances.limits_surely(target), counts=counts)


def _budget(evidence: Evidence, n_flags: int | None = None, balance: float = 0.0) -> Choice:
    counts = _known_counts(evidence)
    if not balance and (chosen := _among_highest(evidence, n_flags)):
        return chosen
    chances, n_expected = counts.chances, counts.chances.sums.n_expected
    least = 0.0 if n_flags is not None else LEAST_IN_A_BUDGET
    if n_flags is None:
        n_flags = min(round(n_expected.sum()), MOST_IN_A_BUDGET)
    # A label found adds 1 / all missing to recall, and 1 / the class's to the mean over classes.
    weights = 1 + balance * n_expected.mean() / np.maximum(n_expected, 1)
    limits = chances.limits_of_best(n_flags, weights, least)
    limits[counts.histograms.is_constant] = np.inf  # nothing tells one such label from another
    return Choice(log_odds=limits, n_most=n_flags, weights=weights, counts=counts)


def _among_highest(evidence: Evidence, n_flags: int | None) -> Choice | None:
    """Choose the same from the highest-scored labels of each class, where those are enough."""
    counts = evidence.counts
    has_chances = counts.chances.clues.by_score.has_chances
    is_constant = counts.histograms.is_constant & has_chances
    if counts.is_heard or n_flags == 0 or is_constant.any():
        return None
    highest = Highest(evidence.listed, counts.chances)
    if n_flags is None and highest.n_expected < MOST_IN_A_BUDGET + 1:
        return None  # perhaps fewer are missing, and how many takes a look at all
    n_most = MOST_IN_A_BUDGET if n_flags is None else n_flags
    least = float(logit(LEAST_IN_A_BUDGET)) if n_flags is None else -np.inf
    listed = highest.best(n_most, least)
    return None if listed is None else Choice(listed=listed, n_most=n_most, counts=counts)


def _positives_quantile(
    evidence: Evidence,
    quantile: float | Literal["mean"] = "mean",
    gate: Ontology | None = None,
) -> Choice:
    if isinstance(gate, bool):
        raise EarmarkError(f"gate is an ontology, or None, got {gate}")
    if quantile == "mean":
        return Choice(limits=_mean_of_positives(evidence), gate=gate)
    columns, logits = evidence.positives
    order = np.argsort(columns, kind="stable")
    edges = np.searchsorted(columns[order], np.arange(1, evidence.labels.n_classes))
    limits = [
        np.quantile(values, quantile) if len(values) else np.inf
        for values in np.split(logits[order], edges)
    ]
    return Choice(limits=np.array(limits, np.float32), gate=gate)


def _confident(evidence: Evidence) -> Choice:
    return Choice(limits=np.maximum(_mean_of_positives(evidence), np.float32(0)))


def _global(evidence: Evidence, probability: float = 0.6) -> Choice:
    return Choice(limits=np.full(evidence.labels.n_classes, logit(probability), np.float32))


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and isfinite(value)


def _is_count(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= 0


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 < value < 1


_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "discard_percent": (
        "is a number between 0 and 100",
        lambda value: _is_number(value) and 0 <= value <= 100,
    ),
    "target": ("lies between 0 and 1", _is_share),
    "n_flags": ("is a whole number from 0", lambda value: value is None or _is_count(value)),
    "balance": ("is a number from 0", lambda value: _is_number(value) and value >= 0),
    "quantile": (
        "is 'mean', or lies between 0 and 1",
        lambda value: value == "mean" if isinstance(value, str) else _is_share(value),
    ),
    "gate": (
        "is an ontology, or says whether there is one",
        lambda value: value is None or isinstance(value, bool | Ontology),
    ),
    "probability": ("lies between 0 and 1", _is_share),
}
"""What each option of a policy may be, in words and as a test."""


@dataclass(frozen=True)
class Policy:
    """A rule that chooses flags, by its name in :data:`POLICIES`."""

    choose: Callable[..., Choice]
    """A function of the evidence and the policy's options, whose defaults are in its signature."""
    describe: Callable[..., str]
    """Says in words which labels are flagged, by all of the options."""
    point: str | None = None
    """The option that students' operating points set."""
    points: tuple[float, ...] | None = (1.0,)
    """Students' operating points, mildest first. None: the recipe's percentages, of the implicit
    labels of each class, or of all where the option is a number of flags."""


POLICIES: dict[str, Policy] = {
    "percentile": Policy(
        _percentile,
        lambda discard_percent: (
            f"the highest-scored {discard_percent:g} % of each class's implicit labels"
        ),
        "discard_percent",
        None,
    ),
    "count": Policy(_count, lambda: "as many of each class as are estimated to be missing"),
    "precision": Policy(
        _precision,
        lambda target: (
            f"those whose chance is at least {100 * target:g} %, even if few labels are missing"
        ),
        "target",
        (0.9, 0.7, 0.5, 0.3),
    ),
    "budget": Policy(
        _budget,
        lambda n_flags, balance: (
            (
                f"the {n_flags:,} likeliest of all classes"
                if n_flags is not None
                else f"the likeliest of all classes ({MOST_IN_A_BUDGET:,} at most, of a chance of "
                f"{100 * LEAST_IN_A_BUDGET:.0f} % or more)"
            )
            + (f", small classes counting more (balance {balance:g})" if balance else "")
        ),
        "n_flags",
        None,
    ),
    "positives_quantile": Policy(
        _positives_quantile,
        lambda quantile, gate: (
            "those that score above the "
            + ("mean" if quantile == "mean" else f"{quantile:g} quantile")
            + " of their class's positives"
            + (", where a parent or child is labelled" if gate else "")
        ),
        "quantile",
        (0.5, 0.25, 0.1, 0.05),
    ),
    "confident": Policy(
        _confident, lambda: "probable ones that score above the mean of their class's positives"
    ),
    "global": Policy(
        _global,
        lambda probability: f"those of a probability above {probability:g}",
        "probability",
        (0.9, 0.6, 0.3),
    ),
}
"""The policies by name."""


def _known_counts(evidence: Evidence) -> Counts:
    """Return the counts for a policy by chance; refuse scores that do not know the labels."""
    counts = evidence.counts
    if not counts.knowledge.is_enough:
        raise EarmarkError(
            f"{counts.knowledge.told} A policy by chance has nothing to go by: without its options "
            "labels are flagged by rank"
        )
    return counts


def _mean_of_positives(evidence: Evidence) -> NDArray[np.float32]:
    """Return the logit of the positives' mean probability [class]; +inf without positives."""
    (columns, logits), n_classes = evidence.positives, evidence.labels.n_classes
    n = np.bincount(columns, minlength=n_classes)
    total = np.bincount(columns, weights=expit(logits), minlength=n_classes)
    return np.where(n > 0, logit(total / np.maximum(n, 1)), np.inf).astype(np.float32)
