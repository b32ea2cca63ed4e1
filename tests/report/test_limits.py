from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.flags import MissingEstimates
from earmark.metrics import Interval
from earmark.report import Limits, MissingEvidence, heard_told, hold_limits

BEFORE = MissingEstimates(250, 250, Interval(180.0, 110.0, 221.0))
AFTER = MissingEstimates(
    250, 200, Interval(90.0, 60.0, 118.0), 80, 52, 30, Interval(50.0, 25.0, 100.0), 800, 1, 150
)


def made_up(estimates: MissingEstimates) -> MissingEvidence:
    classes = pl.DataFrame(
        {"class_id": ["a"], "n_positives": [150], "n_negatives": [10], "n_implicit": [800]}
    )
    findings = SimpleNamespace(classes=classes, policy_told="all", warnings=(), estimates=estimates)
    return MissingEvidence(findings)  # type: ignore[arg-type]


def verdicts(estimates: MissingEstimates, **limits: float) -> dict[str, bool]:
    held = hold_limits(made_up(estimates), Limits(**limits))
    return {limit.name: limit.is_passed for limit in held}


def test_limits_are_held_against_the_estimate_and_its_ends() -> None:
    at_most = {"most_missing": 0.25, "most_missing_low": 0.15, "most_missing_high": 0.41}
    at_least = {"least_precision": 0.45, "least_precision_low": 0.3}
    assert all(verdicts(AFTER, **at_most, **at_least, widest_interval=0.3).values())
    too_low = {"most_missing": 0.24, "most_missing_low": 0.1, "most_missing_high": 0.39}
    too_high = {"least_precision": 0.46, "least_precision_low": 0.31}
    assert not any(verdicts(AFTER, **too_low, **too_high, widest_interval=0.2).values())
    assert verdicts(AFTER) == {}


def test_before_listening_nothing_keeps_a_limit() -> None:
    assert not any(verdicts(BEFORE, most_missing=1, most_missing_high=1).values())
    share, precision = hold_limits(made_up(BEFORE), Limits(most_missing=1, least_precision=0))
    assert share.told() == (
        "FAILED: share of missing labels at most 100.0 %: not known, that takes 20 random "
        "answers, there are 0"
    )
    assert precision.told() == (
        "FAILED: precision of the flags left at least 0.0 %: not known, that takes 20 answers, "
        "there are 0"
    )


def test_a_precision_needs_flags_and_scores_that_know_the_labels() -> None:
    none_left = MissingEstimates(50, 0, None, 80, 52)
    (held,) = hold_limits(made_up(none_left), Limits(least_precision=0))
    assert (held.value, held.reason) == (None, "no flag is left")
    unknown = MissingEstimates(50, 50, None, 80, 52)
    (held,) = hold_limits(made_up(unknown), Limits(least_precision=0))
    assert (held.value, held.reason) == (None, "the scores do not know the labels")


def test_an_estimate_in_too_wide_an_interval_is_not_known() -> None:
    vague = MissingEstimates(250, 200, None, 80, 52, 30, Interval(50.0, 5.0, 500.0), 800, 1, 150)
    assert verdicts(vague, most_missing=0.9, most_missing_low=0.1) == {
        "most_missing": False,
        "most_missing_low": True,
    }


def test_facts_are_those_of_the_estimates() -> None:
    facts = made_up(AFTER).facts()
    assert facts["missing"] == AFTER.facts()
    assert facts["missing"]["share"]["value"] == pytest.approx(50 / 200)
    assert facts["dataset"] == {
        "n_clips": 960, "n_classes": 1, "n_positives": 150, "n_negatives": 10, "n_implicit": 800,
    }  # fmt: skip


def test_who_answered_is_said_once_somebody_did() -> None:
    findings = made_up(AFTER).findings
    assert heard_told(MissingEvidence(findings)) == ""
    told = heard_told(MissingEvidence(findings, "given", 2, "2026-01-02"))
    assert told == "Answers by 2 raters, the last on 2026-01-02."


def test_per_cent_are_not_shares() -> None:
    with pytest.raises(EarmarkError, match="most_missing is a share from 0 to 1"):
        Limits(most_missing=20)
