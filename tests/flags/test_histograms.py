from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

from earmark.flags import blurred, moments, quantile_bins, score_histograms, smoothed
from earmark.labels import LabelSet


def test_counts_add_up() -> None:
    rng = np.random.default_rng(0)
    states = rng.choice(np.array([0, 0, 1, -1], np.int8), size=(12_000, 3))
    labels = LabelSet.from_dense(states)
    found = score_histograms(labels, rng.normal(size=states.shape).astype(np.float32))
    assert found.implicit.sum(axis=1) == pytest.approx(labels.n_implicit)
    assert found.positives.sum(axis=1).tolist() == labels.n_positives.tolist()
    assert found.negatives.sum(axis=1).tolist() == labels.n_negatives.tolist()


def test_high_scores_are_exact_and_low_ones_close() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(30_000, 1)).astype(np.float32)
    found = score_histograms(LabelSet.from_dense(np.zeros(scores.shape, int)), scores)
    places = ((scores[:, 0] - found.low[0]) / found.width[0]).astype(int).clip(0, 127)
    exact = np.bincount(places, minlength=128)
    tail = exact[::-1].cumsum()[::-1] < 2_500  # within the highest tenth, which is kept
    # exact but for what lies in a fine bin that straddles an edge
    assert np.abs(found.implicit[0, tail] - exact[tail]).sum() < 0.02 * exact[tail].sum()
    assert np.abs(found.implicit[0] - exact).sum() < 0.2 * exact.sum()
    assert set(found.certainty[0, tail]) == {1.0}
    assert found.certainty[0, 0] == pytest.approx(4096 / 30_000)


def test_outliers_do_not_stretch_the_bins() -> None:
    rng = np.random.default_rng(0)
    states, scores = np.zeros((20_000, 1), np.int8), rng.normal(size=(20_000, 1))
    states[:50] = 1
    scores[:50] += 3
    plain = score_histograms(LabelSet.from_dense(states), scores)
    scores[100], scores[101] = -1e4, 1e4
    found = score_histograms(LabelSet.from_dense(states), scores)
    assert found.width[0] < 2 * plain.width[0]
    assert found.implicit.sum() == pytest.approx(19_950)
    assert 1 <= found.implicit[0, -1] < 10


def test_positives_far_above_all_else_have_bins() -> None:
    rng = np.random.default_rng(0)
    states, scores = np.zeros((5_000, 1), np.int8), 0.1 * rng.normal(size=(5_000, 1))
    states[:50] = 1
    scores[:50] += 30
    found = score_histograms(LabelSet.from_dense(states), scores)
    assert found.edges[0, -1] > 29.9
    assert found.positives[0, 100:].sum() == 50


def test_classes_without_scores_to_count() -> None:
    states = np.zeros((40, 3), np.int8)
    states[:, 0] = 1  # no implicit label
    states[:, 1] = -1  # nor a positive
    scores = np.arange(120.0).reshape(40, 3)
    scores[:, 2] = np.nan
    found = score_histograms(LabelSet.from_dense(states), scores)
    assert found.implicit.sum(axis=1)[:2].tolist() == [0, 0]
    assert found.positives.sum(axis=1).tolist() == [40, 0, 0]
    assert (found.width > 0).all()


def test_quantiles_and_moments_by_hand() -> None:
    counts = np.zeros((2, 128))
    counts[0, [3, 5]] = 1, 3
    assert quantile_bins(counts, 0.25).tolist() == [3, 0]
    assert quantile_bins(counts, 0.26).tolist() == [5, 0]
    mean, variance = moments(counts[:1])
    assert mean[0] == 4.5
    assert variance[0] == pytest.approx(0.75 + 1 / 12)


def test_smoothed_is_a_density_about_the_same_place() -> None:
    counts = np.zeros((1, 128))
    counts[0, 40:60:4] = 2
    density = smoothed(counts)
    assert density.sum() == pytest.approx(1)
    assert moments(density)[0][0] == pytest.approx(48)
    assert density[0, 50] > 0


@pytest.mark.parametrize(("beyond", "mode"), [("edge", "nearest"), ("constant", "constant")])
def test_blurred_equals_a_library(beyond: Literal["edge", "constant"], mode: str) -> None:
    rng = np.random.default_rng(0)
    counts, sigmas = rng.poisson(3.0, (20, 40)).astype(float), rng.uniform(0.5, 14, 20)
    expected = [
        gaussian_filter1d(row, sd, mode=mode) for row, sd in zip(counts, sigmas, strict=True)
    ]
    assert np.allclose(blurred(counts, sigmas, beyond), expected, rtol=1e-12, atol=0)
