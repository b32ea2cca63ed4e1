from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.flags import total_missing
from earmark.metrics import Interval
from earmark.report import HeardEvidence, Limits, MissingEvidence, heard_told, hold_limits

HEARD = HeardEvidence(
    flags="the top 1 %", is_estimate=True, n_judged=40, n_present=20, n_not_present=16, n_unsure=4,
    precision_low=0.5, precision_high=0.6, low=0.35, high=0.75, n_raters=2, last="2026-01-02",
    missing=Interval(50.0, 10.0, 900.0), n_positives=150, n_classes=2, coverage=1.0,
)  # fmt: skip


def made_up(
    low: float | None = 25, n_missing: float | None = 50, high: float | None = 100
) -> MissingEvidence:
    """One class with 150 positives, of which so many are missing."""
    classes = pl.DataFrame(
        {
            "class_id": ["a"], "name": ["Bird"], "n_positives": [150], "n_negatives": [10],
            "n_implicit": [800], "n_flags": [7], "n_missing": [n_missing], "low": [low],
            "high": [high], "method": ["shapes"], "note": [""],
        },
        schema_overrides=dict.fromkeys(("n_missing", "low", "high"), pl.Float64),
    )  # fmt: skip
    findings = SimpleNamespace(
        classes=classes, n_flags=1, policy_told="all", warnings=(), is_heard=False,
        reach_heard=None, total=total_missing(classes),
    )  # fmt: skip
    return MissingEvidence(findings, not_heard="nobody has listened yet")  # type: ignore[arg-type]


def verdicts(evidence: MissingEvidence, **limits: float) -> dict[str, bool]:
    return {one.name: one.is_passed for one in hold_limits(evidence, Limits(**limits))}


def test_a_share_is_missing_of_all_that_should_be_there() -> None:
    evidence = made_up()
    low, middle, high = total_missing(evidence.findings.classes)
    assert evidence.share == pytest.approx([n / (n + 150) for n in (middle, low, high)])
    assert evidence.share is not None
    assert evidence.share.value == pytest.approx(50 / 200)


def test_limits_are_held_against_the_estimate_and_its_ends() -> None:
    at_most = {"most_missing": 0.25, "most_missing_low": 0.2, "most_missing_high": 0.42}
    assert verdicts(made_up(), **at_most, widest_interval=0.3) == {
        "most_missing": True, "most_missing_low": True, "most_missing_high": True,
        "widest_interval": True,
    }  # fmt: skip
    too_low = {"most_missing": 0.24, "most_missing_low": 0.1, "most_missing_high": 0.25}
    assert not any(verdicts(made_up(), **too_low, widest_interval=0.1).values())
    assert verdicts(made_up()) == {}


def test_what_is_not_known_keeps_no_limit() -> None:
    unknown = made_up(None, None, None)
    assert unknown.share is None
    share = unknown.facts()["share"]
    assert (share["estimate"], share["low"], share["by"]) == (None, None, "scores")
    assert not any(verdicts(unknown, most_missing=1, most_missing_high=1).values())
    (held,) = hold_limits(unknown, Limits(least_precision=0))
    assert held.told() == (
        "FAILED: precision of the flags by ear at least 0.0 %: not known, nobody has listened yet"
    )


def test_an_estimate_in_too_wide_an_interval_is_not_known() -> None:
    vague = made_up(5, 50, 500)
    assert verdicts(vague, most_missing=0.9, most_missing_low=0.1) == {
        "most_missing": False,
        "most_missing_low": True,
    }


def test_precision_counts_unsure_answers_as_wrong() -> None:
    heard = MissingEvidence(made_up().findings, heard=HEARD)
    limits = {"least_precision": 0.5, "least_precision_low": 0.35}
    assert all(verdicts(heard, **limits).values())
    assert not any(verdicts(heard, least_precision=0.55, least_precision_low=0.4).values())


def test_the_narrower_interval_counts() -> None:
    heard = MissingEvidence(made_up().findings, heard=HEARD)
    assert not heard.is_by_ear
    sure = HeardEvidence(**{**vars(HEARD), "missing": Interval(50.0, 45.0, 55.0)})
    by_ear = MissingEvidence(made_up().findings, heard=sure)
    assert by_ear.is_by_ear
    assert by_ear.share == sure.share
    assert not MissingEvidence(made_up().findings, "corrected", heard=sure).is_by_ear
    likeliest = HeardEvidence(**{**vars(sure), "is_estimate": False})
    assert not MissingEvidence(made_up().findings, heard=likeliest).is_by_ear
    learnt = HeardEvidence(**{**vars(likeliest), "gains": "3 found of about 9 (4 to 20)"})
    told = heard_told(MissingEvidence(made_up().findings, heard=learnt))
    assert told.endswith("were present: 3 found of about 9 (4 to 20).")


def test_per_cent_are_not_shares() -> None:
    with pytest.raises(EarmarkError, match="most_missing is a share from 0 to 1"):
        Limits(most_missing=20)
