from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from earmark.flags import (
    EFFECT_VARIANCE,
    LEAST_ANSWERS,
    Answers,
    Counts,
    count_missing,
    find_chances,
)
from earmark.labels import LabelSet

N_CLIPS, N_CLASSES = 3_000, 8
FORGOTTEN = 3
"""A class that is hardly ever labelled though it is often there."""


@pytest.fixture(scope="module")
def world() -> tuple[LabelSet, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    truth = rng.random((N_CLIPS, N_CLASSES)) < 0.1
    truth[:, FORGOTTEN] = rng.random(N_CLIPS) < 0.3
    scores = (np.where(truth, 1.0, -3.0) + 1.5 * rng.standard_normal(truth.shape)).astype("f4")
    recall = np.full(N_CLASSES, 0.6)
    recall[FORGOTTEN] = 0.03
    states = np.where(truth & (rng.random(truth.shape) < recall), 1, 0)
    return LabelSet.from_dense(states), scores, truth & (states == 0)


def sample(world: tuple[LabelSet, np.ndarray, np.ndarray], n: int, seed: int = 0) -> Answers:
    """Ask of labels, more often of those that score high."""
    labels, scores, missing = world
    rng = np.random.default_rng(100 + seed)
    rows, columns = np.nonzero(labels.states() == 0)
    wanted = expit(scores[rows, columns]) + 0.02
    probability = np.minimum(n * wanted / wanted.sum(), 1)
    asked = rng.random(len(rows)) < probability
    rows, columns = rows[asked], columns[asked]
    present = missing[rows, columns].astype(float)
    return Answers(rows, columns, present, 1 / probability[asked])


def counted(world: tuple[LabelSet, np.ndarray, np.ndarray], answers: Answers | None) -> Counts:
    return count_missing(world[0], world[1], answers=answers)


def chances_of(found: Counts, world: tuple[LabelSet, np.ndarray, np.ndarray]) -> np.ndarray:
    return expit(found.chances.log_odds(slice(None), world[1]))


def test_ears_teach_which_class_is_forgotten(
    world: tuple[LabelSet, np.ndarray, np.ndarray],
) -> None:
    labels, _, missing = world
    is_implicit = labels.states() == 0
    before, after = (
        chances_of(counted(world, answers), world)[is_implicit]
        for answers in (None, sample(world, 300))
    )
    truth = missing[is_implicit]
    assert roc_auc_score(truth, after) > roc_auc_score(truth, before) + 0.01
    assert abs(after.sum() - truth.sum()) < 0.25 * truth.sum() < abs(before.sum() - truth.sum())


def test_chances_are_calibrated_after_some_hundred_answers(
    world: tuple[LabelSet, np.ndarray, np.ndarray],
) -> None:
    labels, _, missing = world
    is_implicit = labels.states() == 0
    chances = chances_of(counted(world, sample(world, 600)), world)[is_implicit]
    place = np.minimum((chances * 5).astype(int), 4)
    for part in range(5):
        chosen = place == part
        assert chosen.sum() > 50
        assert abs(chances[chosen].mean() - missing[is_implicit][chosen].mean()) < 0.15


def test_few_answers_are_left_alone_and_more_are_not(
    world: tuple[LabelSet, np.ndarray, np.ndarray],
) -> None:
    every = sample(world, 300)
    some = every.select(np.arange(len(every)) < LEAST_ANSWERS - 1)
    assert not counted(world, some).is_heard
    enough = every.select(np.arange(len(every)) < LEAST_ANSWERS)
    assert counted(world, enough).is_heard


@pytest.mark.parametrize("answer", [0.0, 1.0])
def test_answers_that_are_all_alike_make_no_certainty(
    world: tuple[LabelSet, np.ndarray, np.ndarray], answer: float
) -> None:
    asked = sample(world, 40)
    alike = Answers(asked.rows, asked.columns, np.full(len(asked), answer), asked.stands_for)
    chances = chances_of(counted(world, alike), world)
    assert np.nanmin(chances) > 0
    assert np.nanmax(chances) < 1
    plain = chances_of(counted(world, None), world)
    change = chances.mean() / plain.mean()
    assert change > 1.1 if answer else change < 0.95


def test_an_answer_between_yes_and_no_moves_less(
    world: tuple[LabelSet, np.ndarray, np.ndarray],
) -> None:
    asked = sample(world, 100)
    means = [
        chances_of(
            counted(
                world,
                Answers(asked.rows, asked.columns, np.full(len(asked), one), asked.stands_for),
            ),
            world,
        ).mean()
        for one in (0.0, 0.5, 1.0)
    ]
    assert means[0] < means[1] < means[2]


def test_a_class_that_was_heard_is_surer(world: tuple[LabelSet, np.ndarray, np.ndarray]) -> None:
    every = sample(world, 400)
    only = every.select(every.columns == FORGOTTEN)
    plain = counted(world, None).chances
    found = find_chances(plain.clues, plain.scores, only)
    assert found.model is not None
    own = found.variances
    assert own[FORGOTTEN] < 0.5 * np.delete(own, FORGOTTEN).min()
    assert np.delete(own, FORGOTTEN).max() < 4 * EFFECT_VARIANCE


class TestCountsByEar:
    def test_totals_hold_the_truth_and_shrink(
        self, world: tuple[LabelSet, np.ndarray, np.ndarray]
    ) -> None:
        truth = world[2].sum()
        held, widths = [], {}
        for n in (100, 800):
            totals = [counted(world, sample(world, n, seed)).total for seed in range(12)]
            held += [low <= truth <= high for low, _, high in totals]
            widths[n] = np.mean([high - low for low, _, high in totals])
        assert np.mean(held) >= 0.75  # 24 intervals of 90 %
        assert widths[800] < 0.6 * widths[100]

    def test_the_sample_corrects_a_model_that_is_wrong(
        self, world: tuple[LabelSet, np.ndarray, np.ndarray]
    ) -> None:
        labels, scores, missing = world
        shuffled = np.random.default_rng(1).permuted(scores, axis=0)
        # Half of the clips keep their scores: the model knows less than it thinks.
        mixed = np.where(np.arange(N_CLIPS)[:, None] % 2, shuffled, scores)
        other = (labels, mixed, missing)
        totals = [counted(other, sample(other, 500, seed)).total for seed in range(10)]
        assert np.mean([low <= missing.sum() <= high for low, _, high in totals]) >= 0.7
        assert np.mean([middle for _, middle, _ in totals]) == pytest.approx(missing.sum(), rel=0.2)

    def test_every_class_has_an_interval(
        self, world: tuple[LabelSet, np.ndarray, np.ndarray]
    ) -> None:
        table = counted(world, sample(world, 600)).table
        assert set(table["method"]) == {"ears"}
        truth = world[2].sum(axis=0)
        low, high = (table[name].to_numpy() for name in ("low", "high"))
        assert ((low <= truth) & (truth <= high)).mean() >= 0.75

    def test_answers_that_are_no_sample_correct_nothing(
        self, world: tuple[LabelSet, np.ndarray, np.ndarray]
    ) -> None:
        asked = sample(world, 300)
        unknown = np.full(len(asked), np.nan)
        found = counted(world, Answers(asked.rows, asked.columns, asked.present, unknown))
        _, middle, _ = found.total
        assert middle == pytest.approx(found.chances.sums.n_expected.sum())
