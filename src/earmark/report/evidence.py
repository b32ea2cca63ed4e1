"""What is known of the missing labels of a dataset, by scores and by ear, in numbers and in words.

The *share of missing labels* is missing / (missing + explicit positives): of all labels that should
be there, those that are not. It is that of several classes taken together: by ear, of those whose
labels were drawn at random and heard; by the scores, of those that they tell something of. Where
both are known, the narrower interval counts.

Limits are what a dataset is held to. What cannot be measured keeps no limit: a dataset of which
nothing is known is not a good one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any

import polars as pl

from earmark.errors import EarmarkError, counted
from earmark.flags import VAGUE, Findings
from earmark.metrics import Interval
from earmark.options import Option
from earmark.report.numerals import percent_text
from earmark.report.scan_page import missing_told

_N_WORST = 3
"""Classes that a sentence names."""

_SHARES = {"share": "n_missing", "share_low": "low", "share_high": "high"}
"""Shares of missing labels in a class, and the counts that they come from."""


@dataclass(frozen=True)
class HeardEvidence:
    """What raters heard of the flags.

    ``flags`` says which labels these are. A precision is a pair, with unsure answers as wrong and
    as right; ``low`` and ``high`` are its 95 % interval. Without ``is_estimate`` (the likeliest
    were heard first) it is of the labels heard alone. ``last`` is the day of the last answer.

    ``missing`` is how many labels are missing among all that could have been drawn, flagged or not,
    with its 95 % interval, beside ``n_positives`` of ``n_classes`` classes; ``coverage`` is the
    share of them in bands of which some were heard.
    """

    flags: str
    is_estimate: bool
    n_judged: int
    n_present: int
    n_not_present: int
    n_unsure: int
    precision_low: float
    precision_high: float
    low: float
    high: float
    n_raters: int
    last: str
    missing: Interval
    n_positives: int
    n_classes: int
    coverage: float
    gains: str = ""
    """What a queue that learns found, and what is left, in a sentence."""

    @property
    def share(self) -> Interval:
        """The share of missing labels by ear."""
        return Interval(*(share_of(number, self.n_positives) for number in self.missing))

    def facts(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        plain = {"missing": _plain(self.missing), "share": _plain(self.share), "level": 0.95}
        return {**asdict(self), **plain}


@dataclass(frozen=True)
class MissingEvidence:
    """All that is known of the missing labels of one label set.

    ``labels`` names it, ``heard`` is None where nobody listened (``not_heard`` says why), and
    ``origin`` is what all this was made from: digests, teacher, versions.
    """

    findings: Findings
    labels: str = "given"
    heard: HeardEvidence | None = None
    not_heard: str = ""
    origin: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def estimated(self) -> pl.DataFrame:
        """The classes whose missing labels can be estimated."""
        return self.findings.classes.filter(pl.col("n_missing").is_not_null())

    @property
    def n_positives(self) -> int:
        """Explicit positives of the classes that can be estimated."""
        return int(self.estimated["n_positives"].sum())

    @cached_property
    def missing(self) -> Interval | None:
        """How many labels are missing by the scores, with a 90 % interval; None: not estimable."""
        if self.estimated.is_empty() or self.findings.total is None:
            return None
        low, middle, high = self.findings.total
        return Interval(middle, low, high)

    @property
    def is_by_ear(self) -> bool:
        """Whether the share goes by ear: a random sample of these labels, surer than the scores."""
        heard = self.heard
        if heard is None or not heard.is_estimate or self.labels != "given":
            return False
        by_scores = self.share_by_scores
        return by_scores is None or _width(heard.share) < _width(by_scores)

    @property
    def share_by_scores(self) -> Interval | None:
        """The share of missing labels by the scores, with a 90 % interval; None: not estimable."""
        if self.missing is None:
            return None
        return Interval(*(share_of(number, self.n_positives) for number in self.missing))

    @property
    def share(self) -> Interval | None:
        """The share of missing labels with its interval; None where nobody can estimate it."""
        return self.heard.share if self.heard and self.is_by_ear else self.share_by_scores

    @property
    def is_vague(self) -> bool:
        """Whether the interval is too wide for its middle to mean anything."""
        missing = self.heard.missing if self.heard and self.is_by_ear else self.missing
        return missing is not None and missing.high > VAGUE * missing.low

    @cached_property
    def classes(self) -> pl.DataFrame:
        """Every class with its shares, surely worst first; no share where it is not known.

        class_id, name, n_positives, n_negatives, n_implicit, n_flags, n_missing, low, high, share,
        share_low, share_high, note. A class of which the scores tell little has an interval alone.
        """
        shares = {
            name: pl.col(n) / (pl.col(n) + pl.col("n_positives")) for name, n in _SHARES.items()
        }
        is_told = (pl.col("method") != "expectation").fill_null(value=False)
        table = self.findings.classes.with_columns(**shares).with_columns(
            pl.when(is_told).then(pl.col(name)) for name in ("n_missing", "share")
        )
        table = table.sort("share_low", descending=True, nulls_last=True, maintain_order=True)
        return table.select(
            "class_id", "name", "n_positives", "n_negatives", "n_implicit", "n_flags",
            "n_missing", "low", "high", *_SHARES, "note",
        )  # fmt: skip

    def facts(self) -> dict[str, Any]:
        """Return everything but the classes as plain values, for programs."""
        classes = self.findings.classes
        totals = {n: int(classes[n].sum()) for n in ("n_positives", "n_negatives", "n_implicit")}
        return {
            "labels": self.labels,
            "dataset": {
                "n_clips": sum(totals.values()) // max(len(classes), 1),
                "n_classes": len(classes),
                **totals,
            },
            "missing": {
                "n_classes_estimated": len(self.estimated),
                "n_positives": self.n_positives,
                "number": _plain(self.missing),
                "level": 0.9,
            },
            "share": {
                **(_plain(self.share) or dict.fromkeys(("estimate", "low", "high"))),
                "by": "ear" if self.is_by_ear else "scores",
                "level": 0.95 if self.is_by_ear else 0.9,
                "is_too_wide": self.is_vague,
            },
            "flags": {"n_flags": self.findings.n_flags, "policy": self.findings.policy_told},
            "heard": None if self.heard is None else self.heard.facts(),
            "origin": dict(self.origin),
            "warnings": list(self.findings.warnings),
        }


def share_of(n_missing: float, n_positives: float) -> float:
    """Return missing / (missing + explicit positives); 0 where there is neither.

    >>> share_of(25, 75)
    0.25
    """
    return n_missing / (n_missing + n_positives) if n_missing else 0.0


def evidence_told(evidence: MissingEvidence) -> list[str]:
    """Say what was found and how sure that is: the data, missing labels, flags by ear, classes."""
    findings = evidence.findings
    told = [findings.data_told, findings.knowledge.told]
    if findings.knowledge.is_enough:
        told += [missing_told(findings), share_told(evidence), worst_told(evidence)]
    else:
        told.reverse()
    return [sentence for sentence in (*told, heard_told(evidence)) if sentence]


def share_told(evidence: MissingEvidence) -> str:
    """Say which share of the labels is missing, and by what that is known."""
    share = evidence.share
    if share is None:
        return ""
    ends = f"{percent_text(share.low)} to {percent_text(share.high)}"
    number = ends if evidence.is_vague else f"{percent_text(share.value)} ({ends})"
    how = "By ear" if evidence.is_by_ear else by_told(evidence.findings)
    return f"{how} {number} of all labels that should be there are missing."


def worst_told(evidence: MissingEvidence) -> str:
    """Name the classes in which most is surely missing."""
    worst = evidence.classes.filter(pl.col("share").is_not_null()).head(_N_WORST)
    named = [
        f"{row['name']} {percent_text(row['share'])} ({percent_text(row['share_low'])} to "
        f"{percent_text(row['share_high'])})"
        for row in worst.iter_rows(named=True)
        if row["share_low"]
    ]
    by = by_told(evidence.findings)
    return f"{by} most is missing in {', '.join(named)}." if named else ""


def by_told(findings: Findings) -> str:
    """Say by what chances and numbers go."""
    return "By scores and ears" if findings.is_heard else "By the scores"


def heard_told(evidence: MissingEvidence) -> str:
    """Say how many of the flags are right by ear; or that nobody knows."""
    heard = evidence.heard
    if heard is None:
        return f"By ear: not known; {evidence.not_heard}." if evidence.not_heard else ""
    share = percent_text(heard.precision_low)
    if heard.precision_low != heard.precision_high:
        share = f"{share} to {percent_text(heard.precision_high)}"
    by = f"{counted(heard.n_judged, 'label')} heard by {counted(heard.n_raters, 'rater')}"
    if not heard.is_estimate and heard.gains:
        return f"By ear {share} of {by} were present: {heard.gains}."
    if not heard.is_estimate:
        return f"By ear {share} of {by} were present; they say nothing of flags not heard."
    ends = f"{percent_text(heard.low)} to {percent_text(heard.high)}"
    whose = "" if evidence.labels == "given" else " of the labels as given"
    return f"By ear {share} of the flags{whose} are right (95 % interval {ends}); {by}."


def _width(interval: Interval) -> float:
    return interval.high - interval.low


def _plain(interval: Interval | None) -> dict[str, float] | None:
    if interval is None:
        return None
    value, low, high = (round(number, 4) for number in interval)
    return {"estimate": value, "low": low, "high": high}


def _limit(what: str) -> Option:
    return Option(what, low=0, high=1)


@dataclass(frozen=True)
class Limits:
    """Shares between 0 and 1, each of them a limit if it is given.

    ``most_missing`` is held against the estimated share of missing labels, ``most_missing_low`` and
    ``most_missing_high`` against the ends of its interval, ``widest_interval`` against what lies
    between these. ``least_precision`` is held against the share of the flags that are right by
    ear, unsure answers counted as wrong, and ``least_precision_low`` against the low end of its
    95 % interval.
    """

    most_missing: Annotated[
        float | None, _limit("Most that may be missing, by the estimate: a share.")
    ] = None
    most_missing_low: Annotated[
        float | None, _limit("By the low end: fails only if more is surely missing.")
    ] = None
    most_missing_high: Annotated[
        float | None, _limit("By the high end: passes only if surely no more is missing.")
    ] = None
    widest_interval: Annotated[
        float | None, _limit("Most between the two ends of that interval.")
    ] = None
    least_precision: Annotated[float | None, _limit("Least share of right flags, by ear.")] = None
    least_precision_low: Annotated[
        float | None, _limit("Its low end: passes only if it is surely as high.")
    ] = None

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit is not None and not 0 <= limit <= 1:
                raise EarmarkError(f"{name} is a share from 0 to 1 (20 % is 0.2), got {limit:g}")


@dataclass(frozen=True)
class HeldLimit:
    """One limit and what it was held against; a ``value`` of None is not known, and why."""

    name: str
    what: str
    limit: float
    value: float | None
    is_passed: bool
    reason: str = ""

    def told(self) -> str:
        """Say whether the limit is kept, and by which number."""
        side = "at least" if self.name.startswith("least") else "at most"
        found = f"not known, {self.reason}" if self.value is None else _percent(self.value)
        verdict = "passed" if self.is_passed else "FAILED"
        return f"{verdict}: {self.what} {side} {_percent(self.limit)}: {found}"

    def facts(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return asdict(self)


def hold_limits(evidence: MissingEvidence, limits: Limits) -> tuple[HeldLimit, ...]:
    """Hold what is known against every limit that is given."""
    return tuple(
        _held(name, limit, evidence) for name, limit in asdict(limits).items() if limit is not None
    )


_WHAT: dict[str, str] = {
    "most_missing": "share of missing labels",
    "most_missing_low": "share of missing labels, low end",
    "most_missing_high": "share of missing labels, high end",
    "widest_interval": "interval of that share, width",
    "least_precision": "precision of the flags by ear",
    "least_precision_low": "precision of the flags by ear, low end",
}

_BY_EAR: dict[str, Callable[[HeardEvidence], float]] = {
    "least_precision": lambda heard: heard.precision_low,
    "least_precision_low": lambda heard: heard.low,
}


def _held(name: str, limit: float, evidence: MissingEvidence) -> HeldLimit:
    measure = _heard if name in _BY_EAR else _missing
    value, reason = measure(name, evidence)
    is_least = name in _BY_EAR
    is_passed = value is not None and (value >= limit if is_least else value <= limit)
    return HeldLimit(name, _WHAT[name], limit, value, is_passed, reason)


def _missing(name: str, evidence: MissingEvidence) -> tuple[float | None, str]:
    share = evidence.share
    if share is None:
        return None, "no class can be estimated"
    if name == "most_missing" and evidence.is_vague:
        return None, "its interval is too wide (see --most-missing-low)"
    values = {
        "most_missing": share.value,
        "most_missing_low": share.low,
        "most_missing_high": share.high,
        "widest_interval": share.high - share.low,
    }
    return values[name], ""


def _heard(name: str, evidence: MissingEvidence) -> tuple[float | None, str]:
    heard = evidence.heard
    if heard is None:
        return None, evidence.not_heard
    if not heard.is_estimate:
        return None, "the labels heard are no random sample"
    return _BY_EAR[name](heard), ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
