"""What is known of the missing labels of a dataset, in words, and the limits that it is held to.

The *share of missing labels* is missing / (missing + explicit positives): of all labels that should
be there, those that are not. What cannot be measured keeps no limit: a dataset of which nothing is
known is not a good one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from earmark.errors import EarmarkError, counted
from earmark.flags import LEAST_ANSWERS, LEAST_RANDOM, Findings, MissingEstimates
from earmark.options import Option


@dataclass(frozen=True)
class MissingEvidence:
    """All that is known of the missing labels of one label set.

    ``labels`` names it; ``n_raters`` have answered, the ``last`` of them on that day; ``origin`` is
    what all this was made from: digests, teacher, versions.
    """

    findings: Findings
    labels: str = "given"
    n_raters: int = 0
    last: str = ""
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def estimates(self) -> MissingEstimates:
        """What is known of the missing labels, flags and answers."""
        return self.findings.estimates

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
            "missing": self.estimates.facts(),
            "policy": self.findings.policy_told,
            "n_raters": self.n_raters,
            "last_answer": self.last,
            "origin": dict(self.origin),
            "warnings": list(self.findings.warnings),
        }


def heard_told(evidence: MissingEvidence) -> str:
    """Say who answered, and when last; nothing where nobody did."""
    if not evidence.n_raters:
        return ""
    return f"Answers by {counted(evidence.n_raters, 'rater')}, the last on {evidence.last}."


def _limit(what: str) -> Option:
    return Option(what, low=0, high=1)


@dataclass(frozen=True)
class Limits:
    """Shares between 0 and 1, each of them a limit if it is given.

    ``most_missing`` is held against the estimated share of missing labels, ``most_missing_low`` and
    ``most_missing_high`` against the ends of its 90 % interval, ``widest_interval`` against what
    lies between these. ``least_precision`` is held against the share of right ones among the flags
    without an answer, and ``least_precision_low`` against the low end of its 90 % interval. All of
    them are known from answers alone.
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
    least_precision: Annotated[
        float | None, _limit("Least share of right ones among the flags left.")
    ] = None
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
    "least_precision": "precision of the flags left",
    "least_precision_low": "precision of the flags left, low end",
}


def _held(name: str, limit: float, evidence: MissingEvidence) -> HeldLimit:
    is_least = name.startswith("least")
    measure = _measure_precision if is_least else _measure_share
    value, reason = measure(name, evidence.estimates)
    is_passed = value is not None and (value >= limit if is_least else value <= limit)
    return HeldLimit(name, _WHAT[name], limit, value, is_passed, reason)


def _measure_share(name: str, estimates: MissingEstimates) -> tuple[float | None, str]:
    share = estimates.share
    if share is None:
        n = estimates.n_random
        return None, f"that takes {LEAST_RANDOM} random answers, there are {n}"
    if name == "most_missing" and estimates.is_vague:
        return None, "its interval is too wide (see --most-missing-low)"
    values = {
        "most_missing": share.value,
        "most_missing_low": share.low,
        "most_missing_high": share.high,
        "widest_interval": share.high - share.low,
    }
    return values[name], ""


def _measure_precision(name: str, estimates: MissingEstimates) -> tuple[float | None, str]:
    precision = estimates.precision_left
    if estimates.n_answers < LEAST_ANSWERS:
        return None, f"that takes {LEAST_ANSWERS} answers, there are {estimates.n_answers}"
    if not estimates.n_left:
        return None, "no flag is left"
    if precision is None:
        return None, "the scores do not know the labels"
    return precision.low if name == "least_precision_low" else precision.value, ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
