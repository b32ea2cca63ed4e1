from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.stats import norm

from earmark.flags import (
    EACH_CONVERGED,
    N_BINS,
    N_FIRST_STEPS,
    Fit,
    Histograms,
    Mixture,
    fit,
    quantiles_of_missing,
)
from earmark.flags.mixture import mixture
from plain_mixture import PlainFit, information_of, plain_fit, slopes_of

EDGES = np.linspace(-3, 9, N_BINS + 1)
SHARES = np.array([0.05, 0.5, 0.95])


def bins_of(mean: float) -> np.ndarray:
    """The share of a normal distribution in each bin."""
    return np.diff(norm.cdf(EDGES, mean))


def expected_histograms(
    n_missing: float, tilt: float = 0.0, n_alike: float = 0.0, n_told: float = 0.0
) -> Histograms:
    """50,000 negatives around 0 and positives around 4, without any noise of counting.

    Missing labels are tilted; look-alikes score like positives, and people were told of some.
    """
    missing = bins_of(4 - tilt)  # exp(-tilt * depth) shifts a normal density by its tilt
    implicit = 50_000 * bins_of(0) + n_missing * missing + n_alike * bins_of(4)
    rows = (implicit, 1_000 * bins_of(4), n_told * bins_of(4), np.ones(N_BINS))
    return Histograms(np.array([-3.0]), np.array([12 / N_BINS]), *(row[None] for row in rows))


def found_in(histograms: Histograms, sd: float = 1.0) -> np.ndarray:
    shape = histograms.positives / histograms.positives.sum()
    model = mixture(histograms, shape, np.array([600.0]), sd)
    return quantiles_of_missing(model, SHARES, np.array([1e6]))[:, 0]


@pytest.mark.parametrize("n_missing", [200.0, 1_000.0, 3_000.0])
@pytest.mark.parametrize("tilt", [0.0, 0.5, 1.0])
def test_finds_number_and_tilt(n_missing: float, tilt: float) -> None:
    low, median, high = found_in(expected_histograms(n_missing, tilt))
    assert median == pytest.approx(n_missing, rel=0.3)
    assert low < n_missing < high < 20 * low


def test_tilt_is_read_off_the_scores() -> None:
    histograms = expected_histograms(1_000, tilt=0.8)
    shape = histograms.positives / histograms.positives.sum()
    parameters = fit(mixture(histograms, shape, np.array([600.0]), 1.0)).parameters
    assert parameters[0, -2] == pytest.approx(0.8, abs=0.1)
    assert np.exp(parameters[0, -1]) == pytest.approx(1_000, rel=0.2)


def test_explicit_negatives_tell_of_look_alikes() -> None:
    # as many look-alikes as missing labels; people heard 1,000 positives and 1,000 look-alikes
    blind = found_in(expected_histograms(500, n_alike=500))
    told = found_in(expected_histograms(500, n_alike=500, n_told=1_000))
    assert blind[1] == pytest.approx(1_000, rel=0.2)
    assert told[1] == pytest.approx(500, rel=0.2)


def test_never_more_than_the_bound() -> None:
    histograms = expected_histograms(3_000)
    model = mixture(histograms, bins_of(4)[None], np.array([600.0]), 1.0)
    low, median, high = quantiles_of_missing(model, SHARES, np.array([1_500.0]))[:, 0]
    assert low <= median <= high <= 1_500 * (1 + 1e-9)


def test_without_evidence_the_answer_is_what_was_expected() -> None:
    # positives score like everything else
    rows = (50_000 * bins_of(0), 1_000 * bins_of(0), 0 * bins_of(0), np.ones(N_BINS))
    blind = Histograms(np.array([-3.0]), np.array([12 / N_BINS]), *(row[None] for row in rows))
    low, median, high = found_in(blind, sd=0.5)
    assert median == pytest.approx(600, rel=0.2)
    assert np.log(high / low) == pytest.approx(2 * 1.645 * 0.5, rel=0.25)


def test_sampled_counts_tell_less() -> None:
    exact = expected_histograms(1_000)
    sampled = replace(exact, certainty=np.full((1, N_BINS), 0.02))
    (low, _, high), (lower, median, higher) = found_in(exact), found_in(sampled)
    assert lower < low < high < higher
    assert median == pytest.approx(1_000, rel=0.3)


def test_no_class() -> None:
    none = np.empty((0, N_BINS))
    model = mixture(
        Histograms(none[:, 0], none[:, 0], none, none, none, none), none, none[:, 0], 1.0
    )
    assert quantiles_of_missing(model, SHARES, none[:, 0]).shape == (3, 0)


def three_classes() -> Mixture:
    """One has a long tail, one hardly a label missing, and one look-alikes."""
    parts = [expected_histograms(*one) for one in ((1_000, 0.8), (3,), (500, 0.0, 500, 1_000))]
    joined = (
        np.concatenate([getattr(one, field.name) for one in parts]) for field in fields(Histograms)
    )
    histograms = Histograms(*joined)
    histograms.positives[1] = 3_000 * bins_of(2)
    shape = histograms.positives / histograms.positives.sum(axis=1, keepdims=True)
    return mixture(histograms, shape, np.array([600.0, 1.0, 30.0]), 1.4)


def of_class(model: Mixture, column: int) -> Mixture:
    values = (getattr(model, field.name)[column : column + 1] for field in fields(Mixture))
    return Mixture(*(np.ascontiguousarray(one) for one in values))


def assert_equal_fits(found: Fit, expected: PlainFit, model: Mixture) -> None:
    assert np.allclose(found.parameters, expected.parameters, rtol=1e-9, atol=1e-9)
    assert np.allclose(found.objective, expected.objective, rtol=1e-12, atol=0)
    information = information_of(model, expected, slopes_of(model, expected))
    assert np.allclose(found.information, information, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_steps", [0, 1, N_FIRST_STEPS])
def test_a_fit_together_equals_its_slow_twin(n_steps: int) -> None:
    model = three_classes()
    found = fit(model, None, n_steps, is_together=True)
    assert_equal_fits(found, plain_fit(model, None, n_steps), model)


@pytest.mark.parametrize("n_steps", [0, 1, N_FIRST_STEPS])
def test_a_fit_of_each_equals_that_of_its_class_alone(n_steps: int) -> None:
    model = three_classes()
    found = fit(model, None, n_steps)
    for column in range(3):
        alone, own = of_class(model, column), slice(column, column + 1)
        expected = plain_fit(alone, None, n_steps, EACH_CONVERGED)
        mine = (getattr(found, field.name)[own] for field in fields(Fit))
        assert_equal_fits(Fit(*mine), expected, alone)
