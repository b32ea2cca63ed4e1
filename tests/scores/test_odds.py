from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from earmark.scores import expit, logit

LOG_ODDS = np.concatenate(
    [np.random.default_rng(0).normal(0, 8, 20_000), [-np.inf, -800, -0.0, 0, 800, np.inf, np.nan]]
)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_chances_are_scipys_but_for_a_last_bit(kind: type[np.floating]) -> None:
    log_odds = LOG_ODDS.astype(kind)
    found, expected = expit(log_odds), scipy.special.expit(log_odds)
    assert found.dtype == expected.dtype
    np.testing.assert_array_max_ulp(found[:-1], expected[:-1], 3)
    assert np.isnan(found[-1])
    assert (found != expected)[:-1].mean() < 0.15


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_log_odds_are_scipys_but_for_a_few_last_bits(kind: type[np.floating]) -> None:
    chances = np.concatenate([np.random.default_rng(1).random(20_000), [0, 1e-9, 0.5, 1]])
    chances = chances.astype(kind)
    found, expected = logit(chances), scipy.special.logit(chances)
    assert found.dtype == expected.dtype
    few = 8 * np.finfo(kind).eps  # near 0, where older ones of scipy lose digits, in all
    np.testing.assert_allclose(found, expected, rtol=few, atol=few)


def test_whole_numbers_and_lists_have_chances_too() -> None:
    assert expit([0, 1]).tolist() == scipy.special.expit([0, 1]).tolist()
    assert float(expit(-2.0)) == pytest.approx(scipy.special.expit(-2.0))
