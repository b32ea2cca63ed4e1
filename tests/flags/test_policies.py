from __future__ import annotations

import inspect
import math
from typing import get_type_hints

import numpy as np
import pytest

from earmark.errors import EarmarkError
from earmark.flags import POLICIES, check_policy, flag, policy_told, policy_with, survey
from earmark.flags.policies import DEFAULT_BUDGET, LEAST_IN_BUDGET
from earmark.labels import LabelSet
from earmark.pipeline.policies import PolicyOptions

ILL = {
    "discard_percent": [-1, 100.1, math.nan, math.inf, "1", None, True],
    "target": [0, 1, 1.5, -0.1, math.nan, "0.5", None],
    "n_flags": [-1, 2.5, 1000.0, math.nan, "10", True],
    "balance": [-0.1, math.nan, math.inf, "1", None],
    "quantile": ["median", 0, 1, 2, math.nan, None],
    "gate": ["ontology.json", 1],
    "probability": [0, 1, -2, math.nan, "0.6"],
}
OWNER = {
    "discard_percent": "percentile",
    "target": "precision",
    "n_flags": "budget",
    "balance": "budget",
    "quantile": "positives_quantile",
    "gate": "positives_quantile",
    "probability": "global",
}


@pytest.fixture(scope="module")
def case() -> tuple[LabelSet, np.ndarray]:
    rng = np.random.default_rng(0)
    is_present = rng.random((2_000, 3)) < 0.2
    scores = rng.normal(3.0 * is_present, 1).astype(np.float32)
    states = np.where(is_present & (rng.random(is_present.shape) < 0.6), 1, 0).astype(np.int8)
    return LabelSet.from_dense(states), scores


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, values in ILL.items() for value in values]
)
def test_an_option_out_of_range_is_refused_by_name(
    option: str, value: object, case: tuple[LabelSet, np.ndarray]
) -> None:
    labels, scores = case
    with pytest.raises(EarmarkError, match=rf"^{option} .*got {value!r}".replace("+", r"\+")):
        flag(labels, scores, OWNER[option], **{option: value})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("option", ILL)
def test_an_option_of_another_policy_is_refused(policy: str, option: str) -> None:
    if option in ("n_flags", "balance") and policy == "budget":
        return
    if OWNER[option] == policy:
        return
    with pytest.raises(EarmarkError, match=f"policy '{policy}' has no option '{option}'"):
        check_policy(policy, {option: 0.5})


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_does_without_options(policy: str, case: tuple[LabelSet, np.ndarray]) -> None:
    labels, scores = case
    assert 0 < len(flag(labels, scores, policy)) < labels.n_clips * labels.n_classes
    assert policy_told(policy, {})


def test_numbers_of_numpy_are_numbers(case: tuple[LabelSet, np.ndarray]) -> None:
    labels, scores = case
    assert len(flag(labels, scores, "budget", n_flags=np.int64(7), balance=np.float32(1))) == 7
    assert len(flag(labels, scores, discard_percent=np.float32(1))) > 0
    assert len(flag(labels, scores, "budget", n_flags=0)) == 0


def test_a_gate_needs_the_tree_itself(case: tuple[LabelSet, np.ndarray]) -> None:
    with pytest.raises(EarmarkError, match="gate is an ontology"):
        flag(*case, "positives_quantile", gate=True)


def test_what_is_flagged_is_said_with_defaults() -> None:
    assert policy_told("percentile", {"discard_percent": 0.5}) == (
        "the highest-scored 0.5 % of each class's implicit labels"
    )
    assert policy_told("budget", {"n_flags": 1_000}) == "the 1,000 likeliest of all classes"
    assert policy_told("budget", {}) == (
        "the likeliest of all classes (1,000 at most, with p_missing of 10 % or more)"
    )
    assert "balance 2" in policy_told("budget", {"n_flags": 5, "balance": 2})
    assert policy_told("precision", {}) == "those whose p_missing is at least 50 %"
    assert "parent or child" in policy_told("positives_quantile", {"gate": True})


def test_a_budget_that_nobody_stated_is_of_a_thousand_flags_worth_hearing(
    case: tuple[LabelSet, np.ndarray],
) -> None:
    labels, scores = case
    budget = flag(labels, scores, "budget")
    worth_hearing = flag(labels, scores, "precision", target=LEAST_IN_BUDGET)
    assert len(worth_hearing) < DEFAULT_BUDGET
    assert budget.equals(worth_hearing)
    many = LabelSet.from_dense(np.tile(labels.states(), (4, 1)))
    flags = flag(many, np.tile(scores, (4, 1)), "budget")
    assert len(flags) == DEFAULT_BUDGET
    assert flags["chance"].min() >= LEAST_IN_BUDGET


def test_balance_flags_more_of_small_classes() -> None:
    rng = np.random.default_rng(0)
    is_present = rng.random((3_000, 4)) < [0.2, 0.2, 0.2, 0.03]
    scores = rng.normal(2.0 * is_present, 1).astype(np.float32)
    labels = LabelSet.from_dense((is_present & (rng.random(is_present.shape) < 0.6)).astype(int))
    n_small = [
        (flag(labels, scores, "budget", n_flags=100, balance=balance)["class_id"] == "3").sum()
        for balance in (0, 0.3, 3)
    ]
    assert n_small[0] < n_small[1] < n_small[2], n_small


@pytest.mark.parametrize(("option", "policy"), OWNER.items())
def test_an_option_alone_names_its_policy(option: str, policy: str) -> None:
    assert policy_with({option: 1}) == policy
    assert policy_with({}) is None


def test_where_no_policy_is_asked_for_scores_that_know_nothing_are_listed_by_rank(
    case: tuple[LabelSet, np.ndarray],
) -> None:
    labels, scores = case
    noise = np.random.default_rng(1).normal(size=scores.shape).astype(np.float32)
    by_rank = survey(labels, noise, policy=None).flags
    assert by_rank["chance"].is_null().all()
    assert by_rank.equals(survey(labels, noise).flags)
    few = survey(labels.select(slice(0, 50)), noise[:50], policy=None).flags
    assert few["class_id"].to_list() == ["0", "1", "2"]
    likeliest = survey(labels, scores, policy=None).flags
    assert likeliest.equals(flag(labels, scores, "budget"))
    with pytest.raises(EarmarkError, match="nothing to go by"):
        flag(labels, noise, "budget")


def test_the_command_line_has_the_options_and_defaults_of_the_table() -> None:
    helped = {
        name: annotation.__metadata__[0].help
        for name, annotation in get_type_hints(PolicyOptions, include_extras=True).items()
        if hasattr(annotation, "__metadata__")
    }
    for policy, row in POLICIES.items():
        options = list(inspect.signature(row.choose).parameters.values())[1:]
        assert row.point in (None, *(option.name for option in options))
        for option in options:
            assert helped[option.name].startswith(f"{policy}: ")
            if option.default is not None:
                default = (
                    option.default if isinstance(option.default, str) else f"{option.default:g}"
                )
                assert helped[option.name].endswith(f"; {default}.")
