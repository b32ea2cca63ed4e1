from __future__ import annotations

import numpy as np
import pytest

from earmark import metrics
from earmark.errors import EarmarkError
from earmark.metrics import evaluation, prior_offsets


def biased(tau: float, n_clips: int = 400):
    """Scores that carry the log prior ``tau`` times too much, and labels drawn by the prior."""
    random = np.random.default_rng(0)
    priors = np.array([0.4, 0.2, 0.1, 0.05, 0.02])
    states = (random.random((n_clips, 5)) < priors).astype(np.int8)
    scores = 3.0 * states + random.normal(size=states.shape) + tau * np.log(priors)
    return states, scores.astype(np.float32), priors


def test_the_offset_undoes_a_bias_towards_frequent_classes():
    fair_states, fair, priors = biased(0.0)
    states, scores, _ = biased(0.6)
    tau = prior_offsets.fit_prior_offset(states, scores, priors)
    every = {
        t: metrics.lwlrap(states > 0, prior_offsets.apply_offset(scores, priors, t))
        for t in prior_offsets.OFFSET_STRENGTHS
    }
    assert every[tau] == max(every.values()) > every[0.0]
    undone = prior_offsets.apply_offset(scores, priors, 0.6)
    np.testing.assert_allclose(undone, fair, atol=1e-5)
    assert prior_offsets.fit_prior_offset(fair_states, fair, priors) < tau


def test_the_offset_cannot_change_metrics_within_classes():
    states, scores, priors = biased(0.6)
    before = evaluation.evaluate(states, scores.astype(np.float64)).overall
    lifted = prior_offsets.apply_offset(scores.astype(np.float64), priors, 0.5)
    after = evaluation.evaluate(states, lifted).overall
    for name in ("d_prime_all", "map", "d_prime_of_mean_auc_all"):
        assert before[name] == after[name]
    assert before["lwlrap"] != after["lwlrap"]


def test_no_offset_is_the_smallest_of_equals():
    assert prior_offsets.fit_prior_offset([[1, 0]], [[9.0, -9.0]], [0.5, 0.5]) == 0.0


@pytest.mark.parametrize(
    ("given", "kept"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_offset_keeps_at_least_single_precision(given, kept):
    scores = np.ones((1, 2), given)
    lifted = prior_offsets.apply_offset(scores, [0.5, 0.1], 1.0)
    assert lifted.dtype == kept
    np.testing.assert_allclose(lifted, [[1 + np.log(2), 1 + np.log(10)]], rtol=1e-6)


def test_priors_of_zero_are_refused_and_smoothing_mends_them():
    scores = np.zeros((2, 2))
    with pytest.raises(EarmarkError, match=r"class 1 .* smoothed_priors"):
        prior_offsets.apply_offset(scores, [0.5, 0.0], 0.5)
    with pytest.raises(EarmarkError, match="one prior per class"):
        prior_offsets.apply_offset(scores, [0.5], 0.5)
    with pytest.raises(EarmarkError, match="no label is positive"):
        prior_offsets.fit_prior_offset(np.zeros((2, 2), int), scores, [0.5, 0.5])
    lifted = prior_offsets.apply_offset(scores, prior_offsets.smoothed_priors([1, 0], 2), 1.0)
    np.testing.assert_allclose(lifted[0], [np.log(2), np.log(6)])


def test_fitted_offsets_bring_outputs_to_the_number_of_positives():
    states, scores, _ = biased(0.0)
    shifted = scores + np.array([3.0, -2.0, 0.0, 5.0, -30.0], np.float32)
    always = np.ones(5)  # a prior of 1 leaves nothing to lift by
    fitted = prior_offsets.fit_class_offsets(states, shifted, always)
    outputs = 1 / (1 + np.exp(-(shifted + fitted)))
    expected = (states.sum(axis=0) + 0.5) / (len(states) + 1)
    np.testing.assert_allclose(outputs.mean(axis=0), expected, rtol=1e-5)


def test_fitted_offsets_undo_whatever_was_added_to_a_class():
    states, scores, priors = biased(0.3)
    added = np.array([3.0, -2.0, 0.0, 5.0, -8.0])
    plain = scores + prior_offsets.fit_class_offsets(states, scores, priors)
    shifted = scores + added + prior_offsets.fit_class_offsets(states, scores + added, priors)
    np.testing.assert_allclose(plain, shifted, atol=1e-4)
    assert metrics.lwlrap(states > 0, shifted) > metrics.lwlrap(states > 0, scores + added)
