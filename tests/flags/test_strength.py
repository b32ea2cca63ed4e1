"""What to expect of the first flags, worked out by hand and by a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.flags import (
    GIVEN_PER_FLAG,
    GIVEN_PER_MISSING,
    MOST_SHARE,
    N_FIRST,
    WEAK_SHARE,
    Strength,
    find_strength,
)


def test_a_case_by_hand() -> None:
    # Implicit labels score 9, 7, 3, 1: the first two are those above 5. Of the given ones 8, 7.5
    # and 7 score as high as the lower of them, 2 does not; one of two given labels is of a class
    # without scores.
    states = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1]], np.int8)
    nan = np.nan
    logits = np.array([[8, 9, nan], [2, 7, nan], [3, 7.5, nan], [1, 7, nan]])
    found = find_strength(states, logits, n_first=2)
    assert found == Strength(2, 3, 6 / 12)
    assert found.expected_right == pytest.approx(3 / GIVEN_PER_MISSING / 2)
    assert found.times_chance == pytest.approx(0.5 / (0.5 / GIVEN_PER_MISSING))


@given(seed=st.integers(0, 10_000), n_first=st.integers(1, 80))
def test_it_is_what_a_plain_sort_says(seed: int, n_first: int) -> None:
    rng = np.random.default_rng(seed)
    states = rng.choice([-1, 0, 0, 1], (12, 4)).astype(np.int8)
    logits = rng.integers(-4, 5, states.shape).astype(np.float32)  # with ties
    logits[:, rng.random(4) < 0.3] = np.nan
    pairs = [
        (state, logit)
        for state, logit in zip(states.ravel(), logits.ravel(), strict=True)
        if logit == logit
    ]
    implicit = sorted((logit for state, logit in pairs if state == 0), reverse=True)[:n_first]
    found = find_strength(states, logits, n_first)
    assert found.n_first == len(implicit)
    if implicit:
        as_high = [state for state, logit in pairs if state > 0 and logit >= implicit[-1]]
        assert found.n_given == len(as_high)
        assert found.base_rate == pytest.approx((states > 0).mean())


def test_labels_said_to_be_absent_are_no_flags() -> None:
    states = np.array([[-1, 0, 1]], np.int8)
    assert find_strength(states, np.array([[9.0, 1, 2]]), n_first=1).n_given == 1


def test_nothing_to_flag_is_nothing_to_expect() -> None:
    for states in (np.ones((3, 2), np.int8), np.zeros((0, 2), np.int8)):
        found = find_strength(states, np.zeros(states.shape))
        assert (found.n_first, found.expected_right, found.is_weak) == (0, 0.0, True)
        assert np.isnan(found.times_chance)
    unscored = find_strength(np.zeros((2, 2), np.int8), np.full((2, 2), np.nan))
    assert unscored.n_first == 0


def test_a_teacher_is_weak_below_a_share_and_promises_no_more_than_another() -> None:
    edge = round(N_FIRST * WEAK_SHARE * GIVEN_PER_MISSING)
    assert Strength(N_FIRST, edge - 1, 0.1).is_weak
    assert not Strength(N_FIRST, edge, 0.1).is_weak
    assert Strength(N_FIRST, 10_000, 0.1).expected_right == 1.0
    most = round(N_FIRST * MOST_SHARE)
    assert f"{most} or more of the first 100" in Strength(N_FIRST, 10_000, 0.1).told
    told = Strength(N_FIRST, 30, 0.06).told
    assert f"one label is missing for every {GIVEN_PER_MISSING} given" in told
    assert f"about {30 // GIVEN_PER_MISSING} of the first 100 flags" in told
    assert told.endswith("(by chance 2)")


def test_scores_that_know_are_strong_and_shuffled_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((2_000, 5)) < 0.05
    states = (truth & (rng.random(truth.shape) < 0.7)).astype(np.int8)
    knowing = 4.0 * truth + rng.normal(size=truth.shape)
    assert not find_strength(states, knowing).is_weak
    assert find_strength(states, rng.permutation(knowing)).is_weak


@pytest.mark.parametrize(("n_given", "n_first"), [(0, 1), (7, 1), (50, 10), (5_000, N_FIRST)])
def test_of_few_labels_few_flags_are_expected(n_given: int, n_first: int) -> None:
    assert GIVEN_PER_FLAG == 5
    states = np.zeros((3_000, 2), np.int8)
    states.ravel()[:n_given] = 1
    logits = np.random.default_rng(0).normal(size=states.shape)
    assert find_strength(states, logits).n_first == n_first
