"""The rules by which implicit labels are flagged: the paper's, ours, and others'.

A policy looks at :class:`Evidence` and makes a :class:`Choice`; it flags nothing itself. To add
one, write a function from the evidence and its options to a choice, and give it a row in
``POLICIES``: all that students, `earmark flag` and pages know of a policy is there.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from earmark.errors import EarmarkError
from earmark.flags.knowledge import Knowledge, find_knowledge
from earmark.flags.p_missing import Answers, LikelyLabels, PMissing, find_p_missing
from earmark.flags.thresholds import n_largest
from earmark.labels import LabelSet, Ontology
from earmark.scores import Chunk, ScoreMatrix

DEFAULT_BUDGET, LEAST_IN_BUDGET = 1_000, 0.1
"""Flags of a budget of no stated size, and the lowest p_missing of such a flag: below, ten clips
are played for less than one missing label."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Labels, scores, and what a first look at them found.

    ``explicit`` are the scores of the explicit labels, ``sample`` [class, clip] implicit scores of
    some clips. What the scores know and p_missing are computed when they are first asked for.
    """

    labels: LabelSet
    scores: ScoreMatrix
    explicit: NDArray[np.float32]
    sample: NDArray[np.float32]
    ontology: Ontology | None = None
    answers: Answers | None = None

    @cached_property
    def knowledge(self) -> Knowledge:
        """How well the scores know the labels."""
        return find_knowledge(self.labels, self.scores, self.sample, self.explicit)

    @cached_property
    def p_missing(self) -> PMissing:
        """The probability of every implicit label to be missing."""
        return find_p_missing(self.labels, self.scores, self.ontology, self.answers, self.sample)

    def require_p_missing(self) -> PMissing:
        """Return p_missing; refuse scores that do not know the labels."""
        if not self.knowledge.is_enough:
            raise EarmarkError(
                f"{self.knowledge.told} A policy by p_missing has nothing to go by: without its "
                "options labels are flagged by rank"
            )
        return self.p_missing

    def count_above(self, limits: NDArray[np.float32]) -> NDArray[np.int64]:
        """Count the implicit labels that score above a limit [class], in one pass."""

        def count(chunks: Iterator[Chunk]) -> NDArray[np.int64]:
            n_above = np.zeros(self.labels.n_classes, np.int64)
            for _, values in chunks:
                n_above += (values > limits).sum(axis=0)
            return n_above

        n_above = np.sum([np.zeros(self.labels.n_classes, np.int64), *self.scores.map(count)], 0)
        is_above = self.explicit > limits[self.labels.columns]
        columns = self.labels.columns[is_above]
        return np.asarray(n_above - np.bincount(columns, minlength=self.labels.n_classes))

    @property
    def positives(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Class and score of every explicit positive that has a score."""
        chosen = self.labels.present & ~np.isnan(self.explicit)
        return self.labels.columns[chosen], self.explicit[chosen]


@dataclass(frozen=True)
class Choice:
    """What a policy decides: how many labels of each class to flag, above which limit, or which.

    By the score: ``n_flags`` int64 [class], or ``limits`` float32 [class]; ``gate`` keeps clips
    where a parent or child is labelled. By p_missing: the ``likely`` labels.
    """

    n_flags: NDArray[np.int64] | None = None
    limits: NDArray[np.float32] | None = None
    gate: Ontology | None = None
    likely: LikelyLabels | None = None


def choose(policy: str | None, evidence: Evidence, options: Mapping[str, Any]) -> Choice:
    """Ask a policy by its name; an unknown one, or an unknown option, is an error.

    Where none is asked for, the likeliest are chosen (``budget``), or the paper's, one of each
    class at least, where the scores do not know the labels.
    """
    check_policy(policy, options)
    if policy is not None:
        return POLICIES[policy].choose(evidence, **options)
    if evidence.knowledge.is_enough:
        return _budget(evidence)
    paper, every = (percentile_flags(evidence.labels, evidence.scores, q) for q in (1.0, 100.0))
    return Choice(n_flags=np.maximum(paper, np.minimum(every, 1)))


def describe_default(knowledge: Knowledge) -> str:
    """Say which labels are flagged where no policy is asked for."""
    if knowledge.is_enough:
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


def percentile_flags(
    labels: LabelSet, scores: ScoreMatrix, discard_percent: float = 1.0
) -> NDArray[np.int64]:
    """Return how many labels of each class the policy ``percentile`` flags, ties aside."""
    return np.asarray(n_largest(labels, scores, [discard_percent])[0])


def _percentile(evidence: Evidence, discard_percent: float = 1.0) -> Choice:
    return Choice(n_flags=percentile_flags(evidence.labels, evidence.scores, discard_percent))


def _precision(evidence: Evidence, target: float = 0.5) -> Choice:
    return Choice(likely=evidence.require_p_missing().above(float(logit(target))))


def _budget(evidence: Evidence, n_flags: int | None = None, balance: float = 0.0) -> Choice:
    p_missing = evidence.require_p_missing()
    least = float(logit(LEAST_IN_BUDGET)) if n_flags is None else -np.inf
    n_most = DEFAULT_BUDGET if n_flags is None else n_flags
    weights = None
    if balance:
        # A find adds 1 / all missing to recall, and 1 / the class's to the mean over classes.
        n_positives = np.maximum(evidence.labels.n_positives, 1)
        weights = 1 + balance * n_positives.mean() / n_positives
    return Choice(likely=p_missing.best(n_most, least, weights))


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
    "precision": Policy(
        _precision,
        lambda target: f"those whose p_missing is at least {100 * target:g} %",
        "target",
        (0.9, 0.7, 0.5, 0.3),
    ),
    "budget": Policy(
        _budget,
        lambda n_flags, balance: (
            (
                f"the {n_flags:,} likeliest of all classes"
                if n_flags is not None
                else f"the likeliest of all classes ({DEFAULT_BUDGET:,} at most, with p_missing of "
                f"{100 * LEAST_IN_BUDGET:.0f} % or more)"
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


def _mean_of_positives(evidence: Evidence) -> NDArray[np.float32]:
    """Return the logit of the positives' mean probability [class]; +inf without positives."""
    (columns, logits), n_classes = evidence.positives, evidence.labels.n_classes
    n = np.bincount(columns, minlength=n_classes)
    total = np.bincount(columns, weights=expit(logits), minlength=n_classes)
    return np.where(n > 0, logit(total / np.maximum(n, 1)), np.inf).astype(np.float32)
