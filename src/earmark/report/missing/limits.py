"""Limits that a dataset is held to: how much may be missing, and how right flags have to be.

What cannot be measured keeps no limit: a dataset of which nothing is known is not a good one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from earmark.errors import EarmarkError
from earmark.report.missing.evidence import HeardEvidence, MissingEvidence


@dataclass(frozen=True)
class Limits:
    """Shares between 0 and 1, each of them a limit if it is given.

    ``most_missing`` is held against the estimated share of missing labels, ``most_missing_low`` and
    ``most_missing_high`` against the ends of its interval, ``widest_interval`` against what lies
    between these. ``least_precision`` is held against the share of the flags that are right by
    ear, unsure answers counted as wrong, and ``least_precision_low`` against the low end of its
    95 % interval.
    """

    most_missing: float | None = None
    most_missing_low: float | None = None
    most_missing_high: float | None = None
    widest_interval: float | None = None
    least_precision: float | None = None
    least_precision_low: float | None = None

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
