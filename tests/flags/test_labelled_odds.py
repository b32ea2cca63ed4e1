from __future__ import annotations

import numpy as np
import pytest

from earmark.flags import Histograms, labelled_odds, score_histograms
from earmark.labels import LabelSet


def drawn(
    n_classes: int, slope: float, per_labelled: float, n_clips: int = 20_000
) -> tuple[Histograms, np.ndarray, np.ndarray]:
    """Classes that follow the model: their histograms, scores, and states."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(n_clips, n_classes))
    truth = rng.random(scores.shape) < 1 / (1 + np.exp(5 - slope * scores))
    states = (truth & (rng.random(scores.shape) < 1 / (1 + per_labelled))).astype(np.int8)
    return score_histograms(LabelSet.from_dense(states), scores), scores, states


def at_score(histograms: Histograms, values: np.ndarray, score: float) -> np.ndarray:
    places = ((score - histograms.low) / histograms.width).astype(int).clip(0, values.shape[1] - 1)
    return values[np.arange(len(values)), places]


def test_odds_are_those_of_the_counts() -> None:
    histograms, scores, states = drawn(4, slope=2.0, per_labelled=0.5)
    odds = labelled_odds(histograms)
    assert (np.diff(odds.values, axis=1) >= 0).all()
    for low, high in ((0.5, 1.5), (1.5, 2.5)):
        is_near = (scores > low) & (scores < high)
        seen = (states == 1)[is_near].sum() / (states == 0)[is_near].sum()
        found = at_score(histograms, odds.values, (low + high) / 2).mean()
        assert found == pytest.approx(seen, rel=0.35)


def test_the_ceiling_tells_how_many_are_missing_where_it_is_reached() -> None:
    histograms, _, _ = drawn(3, slope=6.0, per_labelled=0.5)
    assert 1 / labelled_odds(histograms).ceiling == pytest.approx(0.5, abs=0.12)


def test_scores_that_say_nothing_give_every_label_the_same_odds() -> None:
    rng = np.random.default_rng(0)
    states = (rng.random((5_000, 20)) < 0.02).astype(np.int8)
    histograms = score_histograms(LabelSet.from_dense(states), rng.normal(size=states.shape))
    odds = labelled_odds(histograms).values
    base = states.mean() / (1 - states.mean())
    assert odds[:, -1] == pytest.approx(base, rel=1.5)
    assert np.median(odds[:, -1]) == pytest.approx(base, rel=0.5)


def test_a_class_with_one_positive_is_drawn_towards_the_others() -> None:
    _, scores, states = drawn(8, slope=2.0, per_labelled=0.5)
    rare = states.copy()
    rare[:, 0] = 0
    rare[scores[:, 0].argmin(), 0] = 1  # its only positive has the lowest score of all
    odds = labelled_odds(score_histograms(LabelSet.from_dense(rare), scores)).values[0]
    assert odds[-1] > 5 * odds[0]
