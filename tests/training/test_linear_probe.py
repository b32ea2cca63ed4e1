"""The convex fit: against scikit-learn, by hand, and by its own promises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from earmark.errors import EarmarkError
from earmark.training import ScaledFeatures, fit_probe


def made_up(n: int = 300, n_features: int = 6, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.normal(3, 2, size=(n, n_features)) * np.arange(1, n_features + 1)
    weights = rng.normal(size=(n_features, n_classes)) / n_features
    target = rng.random((n, n_classes)) < expit(features @ weights - 1)
    return features, target.astype(float)


def test_it_finds_what_scikit_learn_finds() -> None:
    features, target = made_up()
    scaled, ridge = ScaledFeatures.of(features), 0.5
    probe = fit_probe(features, target, ridge=ridge, n_iterations=1_000)
    for column in range(target.shape[1]):
        theirs = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000)
        theirs.fit(scaled.values, target[:, column])
        np.testing.assert_allclose(
            probe.logits(features)[:, column], theirs.decision_function(scaled.values), atol=2e-2
        )


def test_a_weight_of_two_is_a_label_twice_and_of_none_a_label_less() -> None:
    features, target = made_up()
    scaled = ScaledFeatures.of(features)
    weight = np.ones_like(target)
    weight[:50], weight[50:100] = 2.0, 0.0
    rows = np.concatenate([np.arange(50), np.arange(50), np.arange(100, 300)])
    repeated = ScaledFeatures(scaled.values[rows], scaled.centre, scaled.scale)
    one = fit_probe(scaled, target, weight).logits(features)
    other = fit_probe(repeated, target[rows]).logits(features)
    np.testing.assert_allclose(one, other, atol=1e-2)


def test_a_target_between_is_both() -> None:
    features, target = made_up()
    scaled = ScaledFeatures.of(features)
    soft = np.full_like(target, 0.3)
    twice = ScaledFeatures(np.tile(scaled.values, (2, 1)), scaled.centre, scaled.scale)
    hard = np.concatenate([np.ones_like(target), np.zeros_like(target)])
    weight = np.concatenate([soft, 1 - soft])
    one = fit_probe(scaled, soft).logits(features)
    other = fit_probe(twice, hard, weight).logits(features)
    np.testing.assert_allclose(one, other, atol=1e-3)
    np.testing.assert_allclose(one, np.log(0.3 / 0.7), atol=1e-2)


def test_scale_and_order_of_features_change_nothing() -> None:
    features, target = made_up()
    one = fit_probe(features, target).logits(features)
    other = fit_probe(features[:, ::-1] * 1000 + 7, target)
    np.testing.assert_allclose(other.logits(features[:, ::-1] * 1000 + 7), one, atol=2e-2)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64])
def test_types_of_numbers_agree(kind: type) -> None:
    features, target = made_up()
    exact = fit_probe(features, target).logits(features)
    found = fit_probe(features.astype(kind), target).logits(features)
    np.testing.assert_allclose(found, exact, atol=0.05)


def test_a_class_without_weight_says_nothing() -> None:
    features, target = made_up()
    weight = np.ones_like(target)
    weight[:, 1] = 0
    probe = fit_probe(features, target, weight)
    np.testing.assert_array_equal(probe.logits(features)[:, 1], 0)


def test_constant_features_are_no_harm() -> None:
    features, target = made_up()
    features[:, 2] = 4.0
    assert np.isfinite(fit_probe(features, target).logits(features)).all()
    assert np.isfinite(fit_probe(np.zeros_like(features), target).logits(features)).all()


def test_what_does_not_fit_is_refused() -> None:
    features, target = made_up()
    with pytest.raises(EarmarkError, match=r"targets must be \[clip, class\] for 300 clips"):
        fit_probe(features, target[:-1])
    with pytest.raises(EarmarkError, match="their weights"):
        fit_probe(features, target, np.ones(3))
