"""Totals of missing labels against ppi-python, the reference of prediction-powered inference."""

from __future__ import annotations

import numpy as np
import pytest

from earmark.flags import estimate_total

ppi_py = pytest.importorskip("ppi_py")


def test_totals_are_prediction_powered_inference() -> None:
    rng = np.random.default_rng(0)
    n_labels, n = 1_000_000, 300
    predicted = rng.beta(0.5, 2, n_labels)
    asked = rng.choice(n_labels, n, replace=False)
    present = (rng.random(n) < predicted[asked] * 0.7).astype(float)
    total = estimate_total(predicted.sum(), predicted[asked], present, np.full(n, n_labels / n))
    of_all = (present, predicted[asked], predicted)
    assert total.estimate / n_labels == pytest.approx(
        float(np.squeeze(ppi_py.ppi_mean_pointestimate(*of_all, lam=1)))
    )
    low, high = (float(np.squeeze(end)) for end in ppi_py.ppi_mean_ci(*of_all, alpha=0.1, lam=1))
    # ours allows for one more missing label that stands for a 300th of all, upwards
    assert total.low / n_labels == pytest.approx(low, rel=0.01)
    assert high < total.high / n_labels < high + 0.01
