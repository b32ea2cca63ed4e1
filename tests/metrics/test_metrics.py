from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from sklearn import metrics as sklearn_metrics

from earmark import metrics
from earmark.errors import EarmarkError
from earmark.metrics import RESAMPLES_PER_BLOCK
from earmark.metrics.lwlrap import _PAIRS_PER_BLOCK

NAN = float("nan")


def lwlrap_twin(positives: NDArray[Any], scores: NDArray[Any]) -> NDArray[Any]:
    """Walk over every clip and class, as the definition says."""
    n_clips, n_classes = positives.shape
    precisions: list[list[float]] = [[] for _ in range(n_classes)]
    for clip in range(n_clips):
        for c in range(n_classes):
            if positives[clip, c] > 0:
                at_or_above = [d for d in range(n_classes) if scores[clip, d] >= scores[clip, c]]
                hits = [d for d in at_or_above if positives[clip, d] > 0]
                precisions[c].append(len(hits) / len(at_or_above))
    return np.array([np.mean(p) if p else NAN for p in precisions])


def sides(
    states: NDArray[Any], scores: NDArray[Any], negatives: str
) -> list[tuple[list[float], list[float]]]:
    """Return the positives' and the negatives' scores of each class."""
    highest = {"explicit": -1, "all": 0}[negatives]
    result = []
    for c in range(states.shape[1]):
        pairs = list(zip(states[:, c].tolist(), scores[:, c].tolist(), strict=True))
        result.append(([x for s, x in pairs if s > 0], [x for s, x in pairs if s <= highest]))
    return result


def auc_twin(states: NDArray[Any], scores: NDArray[Any], negatives: str) -> NDArray[Any]:
    values = []
    for positive, negative in sides(states, scores, negatives):
        wins = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
        values.append(np.mean(wins) if wins else NAN)
    return np.array(values)


def ap_twin(states: NDArray[Any], scores: NDArray[Any], negatives: str) -> NDArray[Any]:
    values = []
    for positive, negative in sides(states, scores, negatives):
        precisions = []
        for p in positive:
            n_hits = sum(x >= p for x in positive)
            precisions.append(n_hits / (n_hits + sum(x >= p for x in negative)))
        values.append(np.mean(precisions) if positive and negative else NAN)
    return np.array(values)


def random_case(seed: int, n_clips: int = 40, n_classes: int = 7, n_levels: int | None = None):
    """Return states and scores; with few levels most scores are tied. Class 0 has no positives."""
    random = np.random.default_rng(seed)
    states = random.choice([-1, 0, 1], (n_clips, n_classes), p=[0.2, 0.5, 0.3]).astype(np.int8)
    states[:, 0] = np.minimum(states[:, 0], 0)
    states[:, 1] = 1
    scores = random.normal(size=states.shape) + states
    if n_levels:
        scores = np.clip(np.round(scores), -n_levels // 2, n_levels // 2)
    return states, scores.astype(np.float32)


@st.composite
def cases(draw: st.DrawFn):
    """Small matrices with many ties; infinities rank like any other score."""
    shape = draw(st.tuples(st.integers(0, 6), st.integers(1, 5)))
    states = draw(hnp.arrays(np.int8, shape, elements=st.integers(-1, 1)))
    levels = st.sampled_from([-np.inf, -2.0, -1.0, 0.0, 0.5, 3.0, np.inf])
    return states, draw(hnp.arrays(np.float64, shape, elements=levels))


def test_lwlrap_by_hand():
    positives = np.array([[1, 0, 1, 0], [0, 0, 1, -1], [0, 0, 0, 0]])
    scores = np.array([[0.9, 0.8, 0.7, 0.1], [0.5, 0.6, 0.2, 0.4], [0.1, 0.2, 0.3, 0.4]])
    # clip 0: class 0 is first (1/1), class 2 is third with two hits (2/3); clip 1: class 2 is last.
    expected = [1.0, NAN, (2 / 3 + 1 / 4) / 2, NAN]
    np.testing.assert_allclose(metrics.lwlrap_per_class(positives, scores), expected)
    assert metrics.lwlrap(positives, scores) == pytest.approx((1 + 11 / 24) / 2)
    assert metrics.lwlrap_label_weighted(positives, scores) == pytest.approx((1 + 11 / 12) / 3)


def test_lwlrap_ties_take_the_worst_rank():
    assert metrics.lwlrap_per_class([[1, 0, 0, 0]], [[0.5, 0.5, 0.5, 0.1]])[0] == 1 / 3
    np.testing.assert_allclose(
        metrics.lwlrap_per_class([[1, 1, 0]], [[0.5, 0.5, 0.5]]), [2 / 3, 2 / 3, NAN]
    )


@given(cases())
def test_lwlrap_equals_its_twin(case):
    states, scores = case
    np.testing.assert_allclose(
        metrics.lwlrap_per_class(states, scores), lwlrap_twin(states, scores), rtol=1e-12
    )


def test_lwlrap_in_many_blocks_equals_its_twin():
    states, scores = random_case(1, n_clips=500, n_levels=4)
    assert (states > 0).sum() > 2 * _PAIRS_PER_BLOCK
    np.testing.assert_allclose(
        metrics.lwlrap_per_class(states > 0, scores), lwlrap_twin(states, scores), rtol=1e-12
    )


@pytest.mark.parametrize("n_levels", [None, 4])
def test_label_weighted_lwlrap_is_sklearns_lrap_weighted_by_positives(n_levels):
    states, scores = random_case(2, n_levels=n_levels)
    is_positive = states > 0
    expected = sklearn_metrics.label_ranking_average_precision_score(
        is_positive, scores, sample_weight=is_positive.sum(axis=1)
    )
    assert metrics.lwlrap_label_weighted(states, scores) == pytest.approx(expected, abs=1e-12)


def test_auc_by_hand():
    states = np.array([[1], [1], [-1], [-1], [0]])
    scores = np.array([[0.9], [0.4], [0.4], [0.1], [0.95]])
    assert metrics.auc_per_class(states, scores) == pytest.approx([3.5 / 4])
    assert metrics.auc_per_class(states, scores, "all") == pytest.approx([3.5 / 6])


def test_average_precision_by_hand():
    states = np.array([[1], [0], [1], [-1]])
    scores = np.array([[0.9], [0.8], [0.7], [0.7]])
    # 0.9 is first (1/1); at 0.7 two of four are hits, the tied negative included.
    assert metrics.average_precision_per_class(states, scores) == pytest.approx([(1 + 1 / 2) / 2])
    explicit = metrics.average_precision_per_class(states, scores, "explicit")
    assert explicit == pytest.approx([(1 + 2 / 3) / 2])


@pytest.mark.parametrize("negatives", ["explicit", "all"])
@given(case=cases())
def test_auc_and_average_precision_equal_their_twins(negatives, case):
    states, scores = case
    np.testing.assert_allclose(
        metrics.auc_per_class(states, scores, negatives),
        auc_twin(states, scores, negatives),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        metrics.average_precision_per_class(states, scores, negatives),
        ap_twin(states, scores, negatives),
        rtol=1e-12,
    )


@pytest.mark.parametrize("n_levels", [None, 6])
@pytest.mark.parametrize("negatives", ["explicit", "all"])
def test_auc_and_average_precision_equal_sklearn(negatives, n_levels):
    states, scores = random_case(3, n_clips=300, n_levels=n_levels)
    auc = metrics.auc_per_class(states, scores, negatives)
    ap = metrics.average_precision_per_class(states, scores, negatives)
    for c in range(2, states.shape[1]):
        kept = states[:, c] != 0 if negatives == "explicit" else np.full(len(states), True)
        truth, column = states[kept, c] > 0, scores[kept, c]
        assert auc[c] == pytest.approx(sklearn_metrics.roc_auc_score(truth, column), abs=1e-12)
        expected = sklearn_metrics.average_precision_score(truth, column)
        assert ap[c] == pytest.approx(expected, abs=1e-12)


def test_classes_without_positives_or_negatives_are_nan():
    states, scores = random_case(4)  # class 0: no positives; class 1: nothing else
    for values in (
        metrics.auc_per_class(states, scores),
        metrics.auc_per_class(states, scores, "all"),
        metrics.average_precision_per_class(states, scores),
    ):
        np.testing.assert_array_equal(np.isnan(values), [True, True, *[False] * 5])


def test_nothing_at_all_is_nan():
    empty = np.zeros((0, 3))
    assert np.isnan(metrics.lwlrap_per_class(empty.astype(bool), empty)).all()
    assert np.isnan(metrics.auc_per_class(empty.astype(np.int8), empty)).all()
    assert np.isnan(metrics.lwlrap(empty.astype(bool), empty))
    assert np.isnan(metrics.lwlrap_label_weighted(empty.astype(bool), empty))
    assert metrics.lwlrap_per_class(np.zeros((3, 0), bool), np.zeros((3, 0))).shape == (0,)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_rising_curves_per_class_change_nothing_within_classes(seed):
    states, scores = random_case(seed, n_levels=8)
    curved = np.exp(scores.astype(np.float64)) * np.arange(1, 8) + np.arange(7)
    for negatives in ("explicit", "all"):
        for metric in (metrics.auc_per_class, metrics.average_precision_per_class):
            np.testing.assert_array_equal(
                metric(states, scores, negatives), metric(states, curved, negatives)
            )


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_rising_curves_per_clip_leave_lwlrap_alone(seed):
    states, scores = random_case(seed, n_levels=8)
    clips = np.arange(len(scores))[:, None]
    curved = np.arctan(scores.astype(np.float64)) * (1 + clips) - clips
    np.testing.assert_array_equal(
        metrics.lwlrap_per_class(states, scores), metrics.lwlrap_per_class(states, curved)
    )


def all_metrics(states, scores) -> list[NDArray[Any]]:
    return [
        metrics.lwlrap_per_class(states, scores),
        metrics.auc_per_class(states, scores),
        metrics.average_precision_per_class(states, scores),
    ]


def test_memory_order_width_and_memory_maps_do_not_matter(tmp_path: Path, monkeypatch):
    states, scores = random_case(5, n_levels=8)
    expected = all_metrics(states, scores)
    np.save(tmp_path / "scores.npy", scores)
    monkeypatch.setattr(
        "earmark.metrics.within_class._VALUES_PER_BLOCK", 100
    )  # two classes at a time
    monkeypatch.setattr("earmark.metrics.matrices._CLIPS_PER_BLOCK", 7)
    for same in (
        np.asfortranarray(scores),
        scores.astype(np.float16),
        scores.astype(np.float64),
        scores.astype(np.int16),
        scores.tolist(),
        np.load(tmp_path / "scores.npy", mmap_mode="r"),
    ):
        for was, now in zip(expected, all_metrics(np.asfortranarray(states), same), strict=True):
            np.testing.assert_array_equal(was, now)


def test_double_precision_scores_keep_their_order():
    scores = np.array([[1.0 + 1e-12, 1.0], [1.0, 1.0 + 1e-12]])  # equal in float32
    states = np.array([[1, 0], [0, 1]])
    np.testing.assert_array_equal(metrics.lwlrap_per_class(states, scores), [1, 1])
    np.testing.assert_array_equal(metrics.auc_per_class(states, scores, "all"), [1, 1])


def test_nan_scores_are_named(monkeypatch):
    states, scores = random_case(6)
    scores[33, 4] = NAN
    monkeypatch.setattr("earmark.metrics.matrices._CLIPS_PER_BLOCK", 10)
    for metric in (metrics.lwlrap_per_class, metrics.auc_per_class):
        with pytest.raises(EarmarkError, match=r"clip 33, class 4 .* NaN"):
            metric(states, scores)


@pytest.mark.parametrize(
    ("states", "scores", "message"),
    [
        (np.zeros((3, 2), int), np.zeros((2, 3)), r"\(3, 2\) and \(2, 3\)"),
        (np.zeros(3, int), np.zeros(3), "matrices"),
        (np.full((2, 2), 0.3), np.zeros((2, 2)), r"type float64; .* swapped"),
        (np.full((2, 2), 7), np.zeros((2, 2)), "values up to 7"),
        (np.zeros((1, 1), int), np.array([["loud"]]), "must be numbers"),
    ],
)
def test_what_does_not_fit_is_refused(states, scores, message):
    with pytest.raises(EarmarkError, match=message):
        metrics.auc_per_class(states, scores)
    with pytest.raises(EarmarkError, match=message):
        metrics.lwlrap_per_class(states, scores)


def test_misspelt_negatives_are_refused():
    with pytest.raises(EarmarkError, match="did you mean 'explicit'"):
        metrics.auc_per_class([[1]], [[0.0]], negatives="explicits")  # type: ignore[arg-type]


def test_d_prime_by_hand():
    # d' = 1 where two unit normals lie one apart: AUC = Phi(1 / sqrt(2)).
    np.testing.assert_allclose(metrics.d_prime([0.5, 0.7602499389065233], 1000, 1000), [0, 1])
    assert metrics.d_prime(0.3, 99, 99) == pytest.approx(-metrics.d_prime(0.7, 99, 99))


def test_perfect_classes_are_clipped_half_a_pair_from_perfection():
    clipped = metrics.d_prime([1.0, 0.0], [4, 4], [5, 5])
    np.testing.assert_allclose(clipped, metrics.d_prime([1 - 1 / 40, 1 / 40], 1e6, 1e6))
    assert metrics.d_prime(1.0, 400, 5000) > metrics.d_prime(1.0, 4, 5)


def test_d_prime_of_an_unmeasured_class_is_nan():
    assert np.isnan(metrics.d_prime([NAN, 0.7, 0.7], [3, 0, 3], [3, 3, 0])).all()


def test_means_leave_out_unmeasured_classes():
    np.testing.assert_array_equal(
        metrics.mean_over_classes([[1.0, NAN, 3.0], [NAN, NAN, NAN]]), [2.0, NAN]
    )


def test_wilson_interval_solves_its_equation():
    z = 1.6448536269514722
    for end in metrics.wilson_interval(7, 20, level=0.9):
        assert abs(7 / 20 - end) == pytest.approx(z * np.sqrt(end * (1 - end) / 20))


def test_wilson_interval_at_the_ends():
    low, high = metrics.wilson_interval([0, 10, 0], [10, 10, 0], level=0.95)
    np.testing.assert_array_equal(low == 0, [True, False, True])
    np.testing.assert_array_equal(high == 1, [False, True, True])
    assert high[0] == pytest.approx(1 - low[1])


@pytest.mark.parametrize(("k", "n", "level"), [(3, 2, 0.9), (-1, 2, 0.9), (1, 2, 90)])
def test_impossible_proportions_are_refused(k, n, level):
    with pytest.raises(EarmarkError):
        metrics.wilson_interval(k, n, level)


@pytest.mark.parametrize("n_levels", [None, 5])
@pytest.mark.parametrize("negatives", ["explicit", "all"])
def test_resampling_equals_repeating_clips(negatives, n_levels):
    states, scores = random_case(7, n_clips=25, n_levels=n_levels)
    weights = np.random.default_rng(8).poisson(0.6, (RESAMPLES_PER_BLOCK + 6, 25))
    weights[0] = 1
    weights[1] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = metrics.resampled_auc_and_ap(states, scores, weights, negatives)
        lwlraps = metrics.resampled_lwlrap_per_class(states, scores, weights)
    for i, row in enumerate(weights):
        repeated = np.repeat(states, row, axis=0), np.repeat(scores, row, axis=0)
        expected = metrics.auc_per_class(*repeated, negatives)
        np.testing.assert_allclose(found.auc[i], expected, atol=1e-12)
        expected = metrics.average_precision_per_class(*repeated, negatives)
        np.testing.assert_allclose(found.average_precision[i], expected, atol=1e-12)
        np.testing.assert_array_equal(found.n_positives[i], (repeated[0] > 0).sum(axis=0))
        highest = -1 if negatives == "explicit" else 0
        np.testing.assert_array_equal(found.n_negatives[i], (repeated[0] <= highest).sum(axis=0))
        np.testing.assert_allclose(lwlraps[i], metrics.lwlrap_per_class(*repeated), atol=1e-12)


def test_very_heavy_weights_stay_exact():
    states, scores = np.array([[1], [0], [1], [0]]), np.array([[4.0], [3.0], [2.0], [1.0]])
    # 2 ** 24 + 1 has no float32.
    found = metrics.resampled_auc_and_ap(states, scores, [[1, (1 << 24) + 1, 1, 0]], "all")
    assert found.n_negatives[0, 0] == (1 << 24) + 1
    assert found.auc[0, 0] == 0.5


@pytest.mark.parametrize(
    "weights", [np.ones((2, 3), int), np.ones(4, int), np.full((2, 4), -1), np.ones((2, 4))]
)
def test_weights_that_do_not_count_clips_are_refused(weights):
    states, scores = np.ones((4, 2), np.int8), np.zeros((4, 2))
    with pytest.raises(EarmarkError, match="weights"):
        metrics.resampled_auc_and_ap(states, scores, weights)
    with pytest.raises(EarmarkError, match="weights"):
        metrics.resampled_lwlrap_per_class(states, scores, weights)
