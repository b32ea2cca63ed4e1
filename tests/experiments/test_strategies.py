from __future__ import annotations

import pytest

from earmark.errors import EarmarkError
from earmark.experiments import BASELINE, best_point, choose_point, parse_strategy
from earmark.flags import POLICIES
from made_up import CURVE, RESULTS, make_results

PERCENTS = [0, 0.5, 2]


@pytest.mark.parametrize(
    ("text", "labels", "policy", "treatment", "loss", "adjusts", "points"),
    [
        ("mask", "given", "percentile", "mask", "bce", False, (0.5, 2.0)),
        ("precision/soft", "given", "precision", "soft", "bce", False, (0.9, 0.7, 0.5, 0.3)),
        ("confident/flip", "given", "confident", "flip", "bce", False, (1.0,)),
        ("distil", "given", "all", "soft", "bce", False, (1.0,)),
        ("random", "given", "random", "mask", "bce", False, (0.5, 2.0)),
        ("splc", "given", None, None, "splc", False, (0.6,)),
        ("ll-r@0.3", "given", None, None, "ll-r", False, (0.3,)),
        ("mask+em@1", "given", "percentile", "mask", "em", False, (1.0,)),
        ("weight+adjust", "given", "percentile", "weight", "bce", True, (0.5, 2.0)),
        ("adjust", "given", None, None, "bce", True, (0.0,)),
        ("corrected", "corrected", None, None, "bce", False, (0.0,)),
        ("corrected+mask", "corrected", "percentile", "mask", "bce", False, (0.5, 2.0)),
        ("truth", "truth", None, None, "bce", False, (0.0,)),
        ("oracle/mask", "given", "oracle", "mask", "bce", False, (1.0,)),
    ],
)
def test_names_say_it_all(
    text: str, labels: str, policy: str, treatment: str, loss: str, adjusts: bool, points: tuple
) -> None:
    found = parse_strategy(text, PERCENTS)
    assert (found.labels, found.policy, found.treatment) == (labels, policy, treatment)
    assert (found.loss, found.adjusts, found.points) == (loss, adjusts, points)


@pytest.mark.parametrize("policy", [*POLICIES, "psla", "oracle", "random"])
@pytest.mark.parametrize("treatment", ["mask", "flip", "soft", "hedge", "weight"])
def test_every_policy_goes_with_every_treatment(policy: str, treatment: str) -> None:
    found = parse_strategy(f"{policy}/{treatment}", PERCENTS)
    assert (found.policy, found.treatment) == (policy, treatment)
    assert found.points


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maks", "no 'maks'; did you mean 'mask'"),
        ("precison/mask", "no policy 'precison'; did you mean 'precision'"),
        ("mask+soft", "more than one treatment"),
        ("splc+em", "more than one loss"),
        ("mask+mask", "named twice"),
        ("adjust+mask", "'adjust' comes last"),
        ("mask@one", "numbers with commas between, got 'one'"),
        ("adjust@1", "nothing in it has operating points"),
    ],
)
def test_a_misspelt_strategy_is_explained(text: str, message: str) -> None:
    with pytest.raises(EarmarkError, match=message):
        parse_strategy(text, PERCENTS)


def test_adjustment_is_trained_as_what_it_adjusts() -> None:
    assert parse_strategy("soft+adjust", PERCENTS).trained == parse_strategy("soft@1", PERCENTS)
    assert parse_strategy("adjust", PERCENTS).trained == BASELINE
    assert parse_strategy("truth", PERCENTS).needs_truth
    assert not parse_strategy("mask", PERCENTS).needs_truth


@pytest.mark.parametrize(
    ("text", "policy", "treatment", "points"),
    [
        ("chance/mask@0.3", "global", "mask", (0.3,)),
        ("chance/soft", "global", "soft", (0.5, 0.3, 0.1, 0.03)),
        ("chance/percentile/hedge", "percentile", "hedge", (10.0,)),
        ("chance/ancestors/soft", "ancestors", "soft", (1.0,)),
        ("chance/distil", "all", "soft", (1.0,)),
        ("filled+chance/hedge+weak-negatives+adjust@0.1", "global", "hedge", (0.1,)),
    ],
)
def test_names_say_that_chances_are_gone_by(
    text: str, policy: str, treatment: str, points: tuple[float, ...]
) -> None:
    found = parse_strategy(text, [10])
    assert found.by_chance
    assert (found.policy, found.treatment, found.points) == (policy, treatment, points)
    assert found.labels == ("filled" if text.startswith("filled") else "given")
    assert not parse_strategy("soft", [10]).by_chance


@pytest.mark.parametrize("text", ["chance", "chance/random/mask", "chance/", "chance/chance/mask"])
def test_a_chance_needs_something_that_goes_by_it(text: str) -> None:
    with pytest.raises(EarmarkError, match="strategy 'chance"):
        parse_strategy(text, [10])


def test_best_point_is_the_best_mean_over_seeds_on_tune() -> None:
    assert best_point(RESULTS, "lwlrap") == 2.0
    assert best_point(RESULTS, "lwlrap", split="eval") == 1.0


def test_best_point_prefers_the_smaller_of_a_tie_and_skips_undefined_values() -> None:
    tied = make_results({0.0: 0.4, 2.0: 0.5, 1.0: 0.5, 5.0: float("nan")}, CURVE)
    assert best_point(tied, "lwlrap") == 1.0


def test_best_point_ignores_the_random_control() -> None:
    results = make_results(CURVE, CURVE, random={2.0: 0.9})
    assert best_point(results, "lwlrap", split="eval") == 1.0


def test_best_point_without_tune_clips_says_so() -> None:
    with pytest.raises(EarmarkError, match="'tune'"):
        best_point(RESULTS.filter(split="eval"), "lwlrap")


def test_the_best_value_is_chosen_and_the_mildest_of_a_tie() -> None:
    assert choose_point({None: 0.0, 1.0: 0.01, 2.0: 0.02, 3.0: 0.019}) == 2.0
    assert choose_point({None: 0.0, 1.0: 0.0, 2.0: -0.1}) is None
    assert choose_point({None: float("nan"), 1.0: -0.1}) == 1.0
    with pytest.raises(EarmarkError, match="could be measured"):
        choose_point({0.0: float("nan")})
