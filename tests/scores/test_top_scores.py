from __future__ import annotations

import sys

import numpy as np
import pytest

from earmark.labels import LabelSet
from earmark.scores import ScoreMatrix, Summary, scores_above, top_scores


def skewed(n_clips: int = 20_000, seed: int = 0) -> np.ndarray:
    """Scores of one class with a long upper tail."""
    return np.random.default_rng(seed).exponential(size=(n_clips, 1)).astype(np.float32)


def listing(found: Summary) -> list[np.ndarray]:
    """Scores and clips of the listed labels of all classes."""
    scores, clips = zip(*(one.listing() for one in found.classes), strict=True)
    return [np.concatenate(scores), np.concatenate(clips)]


def test_scores_above_limits_are_listed_with_their_clips() -> None:
    labels = LabelSet.from_dense([[0, 0], [1, 0], [0, 0], [0, 0]])
    scores = np.array([[1.0, 5.0], [9.0, 5.0], [3.0, 5.0], [2.0, 4.0]], np.float32)
    found = scores_above(labels, scores, np.array([1.0, 4.5], np.float32))
    values, rows = listing(found)
    assert found.n_listed.tolist() == [2, 3]
    assert values.tolist() == [3, 2, 5, 5, 5]
    assert rows.tolist() == [2, 3, 0, 1, 2]
    assert found.explicit.tolist() == [9]
    assert found.values.shape == (0, 2)


@pytest.mark.parametrize("n_listed", [0, 1, 700, 4_999, 5_000, 9_999])
def test_listing_equals_a_plain_sort(n_listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["earmark.scores.order_statistics"], "SAMPLE_CLIPS", 200)
    scores = skewed(5_000).round(2)
    labels = LabelSet.from_dense(np.zeros(scores.shape, int))
    found = top_scores(labels, scores, np.array([[3]]), n_listed)
    order = np.argsort(-scores[:, 0], kind="stable")
    limit = scores[order[n_listed], 0] if n_listed < 5_000 else -np.inf
    expected = order[scores[order, 0] > limit] if n_listed else []
    assert listing(found)[1].tolist() == list(expected)


@pytest.mark.parametrize("order", ["drawn", "rising", "falling"])
@pytest.mark.parametrize("decimals", [1, 7])
def test_ranks_alone_are_the_same_from_other_clips_in_any_order(
    order: str, decimals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["earmark.scores.order_statistics"], "DRAWN_CLIPS", 60)
    scores = np.concatenate([skewed(5_000), skewed(5_000, 1)], axis=1).round(decimals)
    if order != "drawn":
        scores = np.sort(scores, axis=0)[:: 1 if order == "rising" else -1]
    labels = LabelSet.from_dense(np.zeros(scores.shape, int))
    ranks = np.array([[0, 5], [50, 400], [1_000, 4_999], [5_000, 0]])
    alone = top_scores(labels, scores, ranks, 77, only_ranks=True)
    both = top_scores(labels, scores, ranks, 77)
    assert np.array_equal(alone.values, both.values)
    assert np.array_equal(alone.n_greater, both.n_greater)
    assert [one.tolist() for one in listing(alone)] == [one.tolist() for one in listing(both)]
    falling = np.sort(scores, axis=0)[::-1]
    assert alone.values[1].tolist() == [falling[50, 0], falling[400, 1]]
    assert alone.n_greater[1].tolist() == (scores > alone.values[1]).sum(axis=0).tolist()


def test_ranks_alone_take_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    n_passes = []
    passed_over = ScoreMatrix.map
    monkeypatch.setattr(
        ScoreMatrix, "map", lambda self, function: n_passes.append(1) or passed_over(self, function)
    )
    scores = skewed()
    labels = LabelSet.from_dense(np.zeros(scores.shape, int))
    top_scores(labels, scores, np.array([[2_000]]), only_ranks=True)
    assert len(n_passes) == 2
    top_scores(labels, scores, np.array([[2_000]]))
    assert len(n_passes) == 5
