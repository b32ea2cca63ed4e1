"""Implicit scores as a mixture: missing labels that score like positives, and negatives.

Among the highest implicit scores of a class, the number expected in a bin is

    M * positives(score) * exp(-g * depth(score)) / Z + M * alike(score) + exp(curve(score))

- M missing labels have the positives' shape, tilted by g: if the log-odds that a label is there
  rise by g with each standard deviation of the score (depth), the missing ones have exactly this
  shape. With g = 0 labels go missing at random.
- ``alike``: explicit negatives per positive. Whoever asked about the class did not ask about its
  look-alikes more readily, so for each missing label there are at least so many look-alikes.
- ``curve``: the negatives' log density, a parabola that may bend a little at every knot.

What is not seen in the scores is held by normal priors, so that the width of the answer shows how
much the scores tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from earmark.flags.histograms import N_BINS, Histograms, Matrix, moments, quantile_bins, tail_shares
from earmark.scores import fit_mixture

MIN_POSITIVES = 30
"""Explicit positives, and implicit labels, below which a class is not estimable."""

EXPECTED_PER_POSITIVE, EXPECTED_SD = 1.0, 1.4
"""Missing labels per positive before the scores are seen, and the sd of its logarithm.

90 % lie between a tenth and ten. A nominator that finds 30 to 95 % of the sounds leaves 2.3 to
0.05; people who are asked for the few most prominent sounds leave several for each that they
name."""

BEND = 0.8
"""How much the negatives' log density may bend: sd of its third derivative, in sds of scores."""

KNOT_GAP, N_KNOTS = 0.75, 6
"""Where the curve may bend: knots from the tail's start, in sds of scores."""

FAR = 6.0
"""Beyond so many sds from the tail's start, the curve goes on with the logarithm of the score."""

TILT_SD = 1.2
"""How much likelier high-scored sounds may be labelled: sd of the log-odds' slope per sd."""

RELATIVE_ERROR = 0.5
"""No bin is believed to be described better than this: densities are never quite smooth."""

SLOPE, CURVATURE = (-1.5, 3.0), (-0.5, 0.5)
"""Mean and sd of the log density's first two derivatives at the tail's start, as normal tails
and exponential ones have them."""

N_STEPS, N_FIRST_STEPS = 4, 30
CONVERGED, EACH_CONVERGED = 1e-3, 1e-4
"""Gains in the log posterior below which all classes, or each by itself, have converged."""

N_COARSE, N_FINE = 12, 16


@dataclass(frozen=True)
class Mixture:
    """The model of all classes: what was seen, and what is believed beforehand.

    ``counts``, ``weights``, ``alike`` [class, bin] and ``basis`` [class, coefficient, bin] begin
    at the first bin that any class needs and are 0 below a class's own tail; ``shape`` and
    ``depth`` [class, bin] have all bins. ``centre`` and ``precision`` [class, parameter] are the
    priors of the curve's coefficients, the tilt and log M.
    """

    counts: Matrix
    weights: Matrix
    alike: Matrix
    basis: Matrix
    shape: Matrix
    depth: Matrix
    centre: Matrix
    precision: Matrix


@dataclass(frozen=True)
class Fit:
    """Parameters [class, parameter] at their most probable.

    ``objective`` [class] is the log posterior there, ``information`` [class, parameter, parameter]
    Fisher's.
    """

    parameters: Matrix
    objective: Matrix
    information: Matrix

    @property
    def n_missing(self) -> Matrix:
        """M [class]."""
        return np.asarray(np.exp(self.parameters[:, -1]))

    @property
    def tilt(self) -> Matrix:
        """The tilt g [class]."""
        return self.parameters[:, -2]


def mixture(
    histograms: Histograms,
    shape: Matrix,
    n_expected: Matrix,
    sd: float,
    tilt_sd: float = TILT_SD,
) -> Mixture:
    """Set up the model for positives of a given shape [class, bin]; every class has positives.

    Beforehand log M is normal around that of ``n_expected`` [class] with a given sd.
    """
    start, unit = _tail(histograms)
    first = int(start.min(initial=N_BINS - 1))
    bins = np.arange(first, N_BINS)
    is_tail = bins >= start[:, None]
    x = _shortened((bins - start[:, None] + 0.5) / unit[:, None])
    bends = [np.maximum(x - knot, 0) ** 2 / 2 for knot in KNOT_GAP * np.arange(1, N_KNOTS + 1)]
    basis = np.stack([np.ones_like(x), x, x * x / 2, *bends], axis=1) * is_tail[:, None, :]
    counts = histograms.implicit[:, first:] * is_tail
    n_positives = histograms.positives.sum(axis=1)
    alike = histograms.negatives[:, first:] * is_tail / n_positives[:, None]
    mean, variance = moments(histograms.positives)
    depth = (np.arange(N_BINS) - mean[:, None]) / np.sqrt(variance)[:, None]
    # As many times a Poisson variable's variance as a count has, its weight is lower.
    weights = is_tail / (1 / histograms.certainty[:, first:] + RELATIVE_ERROR**2 * counts)
    weights[:, -1] = 0  # the last bin holds all that lies beyond: no point on a curve
    height = np.log(np.maximum(counts.sum(axis=1), 0.1) / unit)
    centre, precision = _priors(height, n_expected, sd)
    # The positives' mean is known to 1 / sqrt(n) sds, and a tilt of g moves it by g sds.
    precision[:, -2] = 1 / (tilt_sd**2 + 1 / n_positives)
    return Mixture(counts, weights, alike, basis, shape, depth, centre, precision)


def _shortened(x: Matrix) -> Matrix:
    """Shorten what lies far out, where squares would run away with a heavy tail's few scores."""
    return np.asarray(np.minimum(x, FAR) + np.log1p(np.maximum(x - FAR, 0)))


def _tail(histograms: Histograms) -> tuple[NDArray[np.int64], Matrix]:
    """Return where the tail starts [class], and the negatives' standard deviation, in bins."""
    counts = histograms.implicit
    shares = tail_shares(histograms.positives.sum(axis=1), counts.sum(axis=1))
    start = quantile_bins(counts, 1 - shares)
    upper_half = quantile_bins(counts, 0.9) - quantile_bins(counts, 0.5)
    return start, np.maximum(upper_half / 1.28, 1.0)  # 1.28 sds, were they normal


def _priors(height: Matrix, n_expected: Matrix, sd: float) -> tuple[Matrix, Matrix]:
    """Return centre and precision [class, parameter] of the priors."""
    n_classes = len(height)
    sds = [100.0, SLOPE[1], CURVATURE[1], *[BEND * np.sqrt(KNOT_GAP)] * N_KNOTS, 1.0, sd]
    centre = np.zeros((n_classes, len(sds)))
    centre[:, 0], centre[:, 1], centre[:, 2] = height, SLOPE[0], CURVATURE[0]
    centre[:, -1] = np.log(n_expected)
    return centre, np.tile(np.array(sds) ** -2, (n_classes, 1))


def fit(
    model: Mixture,
    start: Matrix | None = None,
    n_steps: int = N_FIRST_STEPS,
    is_together: bool = False,
) -> Fit:
    """Find the most probable parameters by Newton's method with Fisher's information.

    Each class stops where its log posterior rises no more. The parameters are nearer their aim if
    all classes take as many steps ``together`` as the one that takes most.
    """
    parameters = np.array(_first_guess(model) if start is None else start, np.float64, order="C")
    n_classes, n = parameters.shape
    objective, information = np.empty(n_classes), np.empty((n_classes, n, n))
    fit_mixture(
        model.counts,
        model.weights,
        model.alike,
        model.basis,
        model.shape,
        model.depth,
        model.centre,
        model.precision,
        parameters,
        objective,
        information,
        n_steps,
        CONVERGED if is_together else EACH_CONVERGED,
        is_together,
    )
    return Fit(parameters, objective, information)


def _first_guess(model: Mixture) -> Matrix:
    """Draw the curve through the log counts, as if nothing were missing; other priors stay."""
    weighted = model.basis * (model.weights * model.counts)[:, None, :]
    centre, precision = model.centre[:, :-2], model.precision[:, :-2]
    information = weighted @ model.basis.transpose(0, 2, 1)
    information += precision[:, :, None] * np.eye(centre.shape[1])
    height = weighted @ np.log(model.counts + 0.5)[:, :, None]
    target = height + (precision * centre)[:, :, None]
    coefficients = np.linalg.solve(information, target)[:, :, 0]
    return np.concatenate([coefficients, model.centre[:, -2:]], axis=1)


def most_probable(model: Mixture) -> tuple[Matrix, Matrix]:
    """Return the most probable M [class], and the sd of its logarithm by Laplace's method."""
    found = fit(model, is_together=True)
    return found.n_missing, np.sqrt(np.linalg.inv(found.information)[:, -1, -1])


def quantiles_of_missing(model: Mixture, shares: NDArray[np.float64], most: Matrix) -> Matrix:
    """Return quantiles [share, class] of the posterior of M, which is at most ``most`` [class].

    On a grid of M, coarse and then fine where the posterior lies; all else is integrated out by
    Laplace's method.
    """
    centre, sd = model.centre[:, -1], model.precision[:, -1] ** -0.5
    top = np.minimum(centre + 3.5 * sd, np.log(most))
    bottom = np.minimum(centre - 3.5 * sd, top - sd)
    start = fit(model)
    grid = np.linspace(bottom, top, N_COARSE)
    log_density = _log_posterior(model, start, grid)
    step = (top - bottom) / (N_COARSE - 1)
    is_likely = log_density > log_density.max(axis=0) - 6
    lowest = np.where(is_likely, grid, np.inf).min(axis=0) - step
    highest = np.where(is_likely, grid, -np.inf).max(axis=0) + step
    grid = np.linspace(np.maximum(lowest, bottom), np.minimum(highest, top), N_FINE)
    return _grid_quantiles(grid, _log_posterior(model, start, grid), shares)


def _log_posterior(model: Mixture, start: Fit, grid: Matrix) -> Matrix:
    """Return the log posterior density at each log M of a grid [point, class]."""
    tight = np.full(len(start.parameters), 1e8)
    parameters = start.parameters
    densities = []
    for point, values in enumerate(grid):
        held = replace(
            model,
            centre=_with_last(model.centre, values),
            precision=_with_last(model.precision, tight),
        )
        found = fit(held, _with_last(parameters, values), N_STEPS if point else N_FIRST_STEPS)
        parameters = found.parameters
        doubt = model.precision[:, -1] * (values - model.centre[:, -1]) ** 2 / 2
        volume = np.linalg.slogdet(found.information)[1] / 2
        densities.append(found.objective - doubt - volume)
    return np.array(densities).reshape(grid.shape)


def _with_last(values: Matrix, last: Matrix) -> Matrix:
    return np.concatenate([values[:, :-1], last[:, None]], axis=1)


def _grid_quantiles(grid: Matrix, log_density: Matrix, shares: NDArray[np.float64]) -> Matrix:
    density = np.exp(log_density - log_density.max(axis=0))
    steps = np.diff(grid, axis=0) * (density[1:] + density[:-1]) / 2
    cumulated = np.concatenate([np.zeros((1, grid.shape[1])), np.cumsum(steps, axis=0)])
    cumulated /= np.maximum(cumulated[-1], 1e-300)
    found = [np.interp(shares, *pair) for pair in zip(cumulated.T, grid.T, strict=True)]
    return np.asarray(np.exp(np.array(found).reshape(-1, len(shares)).T))
