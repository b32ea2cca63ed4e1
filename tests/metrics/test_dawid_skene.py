"""Raters whose tables are known vote on items whose truth is known; the model is told neither."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from earmark.metrics import (
    MEAN_RATER,
    MOST_BY_MARK,
    NO_ANSWER,
    NOT_PRESENT,
    PRESENT,
    UNSURE,
    Votes,
    weigh,
)


@dataclass(frozen=True)
class Simulated:
    votes: Votes
    is_present: np.ndarray
    right: np.ndarray
    """[truth, rater]: sensitivities and specificities."""


def simulate(
    rng: np.random.Generator,
    n_items: int,
    right: np.ndarray,
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8),
    unsure: float = 0.1,
    heard: float = 1.0,
    n_known: int = 0,
) -> Simulated:
    groups = rng.integers(0, len(shares), n_items)
    is_present = rng.random(n_items) < np.array(shares)[groups]
    shape = (n_items, right.shape[1])
    is_right = rng.random(shape) < np.where(is_present[:, None], right[0], right[1])
    answers = np.where(is_right == is_present[:, None], PRESENT, NOT_PRESENT)
    answers = np.where(rng.random(shape) < unsure, UNSURE, answers)
    answers = np.where(rng.random(shape) < heard, answers, NO_ANSWER)
    known = np.full(n_items, np.nan)
    known[:n_known] = np.where(is_present, 0.95, 0.05)[:n_known]
    return Simulated(Votes(answers, groups, known, np.full(n_items, -1)), is_present, right)


def right_shares(tables: np.ndarray) -> np.ndarray:
    """Return draws [draw, truth, rater] of the share of decided answers that are right."""
    of_truth = [tables[:, :, t, t] / tables[:, :, t, :UNSURE].sum(axis=-1) for t in (0, 1)]
    return np.stack(of_truth, axis=1)


def votes_on(answers: object, known: object = None, marks: object = None) -> Votes:
    """Return votes on items of one group."""
    said = np.array(answers, np.int64)
    truth = np.full(len(said), np.nan) if known is None else np.array(known, np.float64)
    levels = np.full(len(said), -1) if marks is None else np.array(marks)
    return Votes(said, np.zeros(len(said), np.int64), truth, levels)


def best_fit(votes: Votes, n_steps: int = 200) -> np.ndarray:
    """Return the chances by Dawid's and Skene's own expectation and maximisation: no priors."""
    answers, groups = votes.answers, votes.groups
    chances = 0.2 + 0.6 * (answers == PRESENT).sum(axis=1) / (answers != UNSURE).sum(axis=1).clip(1)
    for _ in range(n_steps):
        odds = np.ones(len(answers))
        for group in np.unique(groups):
            share = chances[groups == group].mean()
            odds[groups == group] = share / (1 - share)
        for column in answers.T:
            for answer in (PRESENT, NOT_PRESENT, UNSURE):
                gave = column == answer
                if_there = chances[gave].sum() / chances.sum()
                odds[gave] *= if_there / ((1 - chances)[gave].sum() / (1 - chances).sum())
        chances = odds / (1 + odds)
    return chances


def majority_errors(answers: np.ndarray, is_present: np.ndarray) -> float:
    """Return the share of items that most votes get wrong; a tie is half an error."""
    lead = (answers == PRESENT).sum(axis=1) - (answers == NOT_PRESENT).sum(axis=1)
    return float(np.where(lead == 0, 0.5, (lead > 0) != is_present).mean())


@pytest.mark.parametrize(
    ("n_raters", "n_items", "heard", "n_known"),
    [(3, 250, 1.0, 0), (2, 250, 1.0, 25), (5, 400, 0.3, 40)],
)
def test_intervals_hold_the_truth_as_often_as_they_say(
    n_raters: int, n_items: int, heard: float, n_known: int
) -> None:
    hits = []
    for seed in range(2_000, 2_040):
        rng = np.random.default_rng(seed)
        right = rng.uniform(0.65, 0.98, (2, n_raters))
        made = simulate(rng, n_items, right, heard=heard, n_known=n_known)
        low, high = np.quantile(right_shares(weigh(made.votes).tables), (0.05, 0.95), axis=0)
        hits.append((low <= right) & (right <= high))
    assert 0.8 <= np.mean(hits) <= 0.97


def test_chances_are_calibrated_and_beat_most_votes_where_one_rater_is_poor() -> None:
    """Measured over these 30 sets: 7.2 % wrong by the chances, 11.7 % by most votes."""
    right = np.array([[0.92, 0.9, 0.55], [0.9, 0.92, 0.55]])
    by_chance, by_votes, said, truth = [], [], [], []
    for seed in range(30):
        made = simulate(np.random.default_rng(seed), 300, right)
        chances = weigh(made.votes).chances
        by_chance.append(np.mean((chances > 0.5) != made.is_present))
        by_votes.append(majority_errors(made.votes.answers, made.is_present))
        said.append(chances)
        truth.append(made.is_present)
    assert np.mean(by_chance) < 0.8 * np.mean(by_votes)
    chances, is_present = np.concatenate(said), np.concatenate(truth)
    for low, high in itertools.pairwise((0, 0.1, 0.3, 0.7, 0.9, 1.01)):
        own = (low <= chances) & (chances < high)
        assert is_present[own].mean() == pytest.approx(chances[own].mean(), abs=0.05)


def test_with_many_answers_it_is_the_best_fit() -> None:
    made = simulate(np.random.default_rng(1), 3_000, np.array([[0.9, 0.8, 0.7], [0.7, 0.8, 0.9]]))
    assert np.abs(weigh(made.votes).chances - best_fit(made.votes)).max() < 0.1
    assert np.abs(weigh(made.votes).chances - best_fit(made.votes)).mean() < 0.02


@pytest.mark.parametrize("seed", range(3))
def test_present_and_not_present_never_change_places(seed: int) -> None:
    made = simulate(np.random.default_rng(seed), 200, np.full((2, 3), 0.7), shares=(0.5,))
    chances = weigh(made.votes).chances
    assert chances[made.is_present].mean() > chances[~made.is_present].mean()


def test_one_who_always_says_the_opposite_is_found_out() -> None:
    made = simulate(np.random.default_rng(0), 400, np.array([[0.9, 0.9, 0.1], [0.9, 0.9, 0.1]]))
    weighed = weigh(made.votes)
    assert (right_shares(weighed.tables).mean(axis=0)[:, 2] < 0.2).all()
    assert np.mean((weighed.chances > 0.5) == made.is_present) > 0.92


def test_nothing_but_unsure_leaves_everything_open() -> None:
    weighed = weigh(votes_on(np.full((20, 2), UNSURE)))
    assert weighed.chances == pytest.approx(0.5, abs=0.15)
    assert np.isfinite(weighed.tables).all()


def test_one_alone_tells_nothing_of_themselves() -> None:
    answers = np.tile([[PRESENT], [NOT_PRESENT], [PRESENT]], (100, 1))
    assert not votes_on(answers).is_compared.any()
    tables = weigh(votes_on(answers)).tables.mean(axis=0)[0]
    assert tables == pytest.approx(MEAN_RATER / MEAN_RATER.sum(axis=1, keepdims=True), abs=0.08)


def test_known_items_tell_of_one_who_is_alone() -> None:
    answers = [[PRESENT]] * 40 + [[PRESENT]] * 40
    known = [0.95] * 40 + [0.05] * 40
    sensitivity, specificity = right_shares(weigh(votes_on(answers, known)).tables).mean(axis=0)
    assert sensitivity[0] > 0.9
    assert specificity[0] < 0.3


def test_few_answers_are_pulled_towards_the_mean_rater() -> None:
    made = simulate(np.random.default_rng(2), 300, np.full((2, 3), 0.9))
    answers = made.votes.answers.copy()
    answers[3:, 2] = NO_ANSWER
    wrong = np.where(made.is_present[:3], NOT_PRESENT, PRESENT)
    answers[:3, 2] = wrong
    few = Votes(answers, made.votes.groups, made.votes.known, made.votes.marks)
    found = right_shares(weigh(few).tables)[:, :, 2]
    assert (found.mean(axis=0) > 0.5).all()
    low, high = np.quantile(found, (0.05, 0.95), axis=0)
    assert (high - low > 0.25).all()


def test_the_order_of_items_does_not_matter() -> None:
    made = simulate(np.random.default_rng(3), 100, np.full((2, 3), 0.8), n_known=10)
    votes, order = made.votes, np.random.default_rng(4).permutation(100)
    parts = (votes.answers, votes.groups, votes.known, votes.marks)
    again = weigh(Votes(*(part[order] for part in parts)))
    assert np.array_equal(again.tables, weigh(votes).tables)
    assert np.array_equal(again.chances, weigh(votes).chances[order])


def test_marks_help_and_are_no_witness_of_raters() -> None:
    made = simulate(np.random.default_rng(5), 600, np.full((2, 3), 0.75))
    votes, rng = made.votes, np.random.default_rng(6)
    level = (made.is_present * 2.0 + rng.normal(0, 1, 600) > [[-0.5], [1], [2.5]]).sum(axis=0)
    marked = Votes(votes.answers, votes.groups, votes.known, level)
    plain, helped = weigh(votes), weigh(marked)
    assert np.array_equal(plain.tables, helped.tables)
    errors = [np.mean((one.chances > 0.5) != made.is_present) for one in (plain, helped)]
    assert errors[1] < errors[0]
    assert (np.diff(helped.mark_odds.mean(axis=0)) > 0).all()


def test_a_mark_makes_no_item_certain() -> None:
    """It agrees with all raters on every item, and still moves nothing by more than nine to one."""
    said = np.repeat([[PRESENT, PRESENT], [NOT_PRESENT, NOT_PRESENT]], 200, axis=0)
    answers = np.vstack([said, [[UNSURE, UNSURE]] * 2])
    levels = np.append(np.repeat([1, 0], 200), [1, 0])
    plain, marked = weigh(votes_on(answers)), weigh(votes_on(answers, marks=levels))
    moved = [np.log(one.chances / (1 - one.chances)) for one in (plain, marked)]
    assert np.abs(moved[1] - moved[0]).max() <= MOST_BY_MARK + 1e-9
    assert 0.1 < marked.chances[-1] < 0.5 < marked.chances[-2] < 0.9
