from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaincinv, gammaincinv

from earmark.metrics import least_share, most_expected

ERRORS = [0.05, 0.05 / 9, 1e-4]


@pytest.mark.parametrize("error", ERRORS)
def test_the_largest_number_is_that_of_the_gamma_distribution(error: float) -> None:
    n = np.concatenate([np.arange(300), [0.25, 17.5], np.geomspace(300, 3e6, 500)])
    expected = gammaincinv(n + 1, 1 - error)
    np.testing.assert_allclose(most_expected(n, error), expected, rtol=1e-10)


@pytest.mark.parametrize("error", ERRORS)
def test_the_smallest_share_is_that_of_the_beta_distribution(error: float) -> None:
    rng = np.random.default_rng(0)
    n = np.concatenate([np.repeat(np.arange(1, 40), 40), 10 ** rng.uniform(1.6, 6, 2_000)]).round()
    k = np.ceil(n * rng.random(len(n)) ** 2).clip(1)
    k[::7], k[::11] = 1, n[::11]
    expected = betaincinv(k, n - k + 1, error)
    np.testing.assert_allclose(least_share(k, n, error), expected, rtol=2e-8)


def test_without_one_there_is_no_smallest_share() -> None:
    assert np.isnan(least_share([0, 0], [0, 5], 0.05)).all()


def test_shapes_are_kept() -> None:
    assert most_expected(np.zeros((2, 3)), 0.01).shape == (2, 3)
    assert least_share(np.ones((2, 3)), np.full(3, 4), 0.01).shape == (2, 3)
    assert most_expected(np.zeros(0), 0.01).shape == (0,)
