"""Bounds of numbers and shares that hold exactly, whatever the sample's size.

They invert the tail of a gamma or of a beta distribution. :mod:`scipy.special` does, too
(``gammaincinv`` and ``betaincinv``, to which the tests hold these), but takes longer to load than a
small scan. In the logarithm of its variable a tail's density is concave: it is integrated from the
bound outwards, by a Gaussian rule, until next to nothing is left, and the bound is found by
Newton's method, which this makes one division for each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]

N_NODES, N_STEPS, CONVERGED = 40, 8, 1e-10
"""Points of the rule; the most steps of Newton's method, and the relative change after which it has
ended."""

NOTHING = 37.0
"""Where a density has fallen to exp(-NOTHING) of that at the bound, it counts no more."""

_PLACES, _WEIGHTS = np.polynomial.legendre.leggauss(N_NODES)


def most_expected(n: ArrayLike, error: float) -> Matrix:
    """Return the largest number that n or fewer may be seen of, by a Poisson law, with ``error``.

    An error is a chance of 0.05 at most.

    >>> most_expected(0, 0.05).round(4).item()  # the rule of three
    2.9957
    """
    shape = np.asarray(n, np.float64) + 1
    z = NormalDist().inv_cdf(1 - error)
    log_most = np.log(shape * (1 - 1 / (9 * shape) + z / (3 * np.sqrt(shape))) ** 3)
    constant = _log_gamma(shape)

    def density(log_most: Matrix) -> _Density:
        most = np.exp(log_most)
        return _Density(
            shape * log_most - most - constant,
            lambda v: most * np.expm1(v) - shape * v,
            lambda v: most * np.exp(v) - shape,
        )

    return np.exp(_at_error(density, log_most, error))


def least_share(k: ArrayLike, n: ArrayLike, error: float) -> Matrix:
    """Return the smallest share of which k or more in n may be seen with ``error``; NaN without k.

    k is 0, or 1 and more.

    >>> least_share(10, 10, 0.05).round(4).item()
    0.7411
    """
    a = np.where(np.asarray(k) > 0, k, np.nan).astype(np.float64)
    b = np.asarray(n, np.float64) - a + 1
    log_share = np.log(_guessed_share(a, b, NormalDist().inv_cdf(1 - error)))
    constant = _log_gamma(a) + _log_gamma(b) - _log_gamma(a + b)

    def density(minus_log_share: Matrix) -> _Density:
        share = np.exp(-minus_log_share)
        odds = share / (1 - share)
        return _Density(
            (b - 1) * np.log1p(-share) - a * minus_log_share - constant,
            lambda v: a * v - (b - 1) * np.log1p(odds * -np.expm1(-v)),
            lambda v: a - (b - 1) * odds / (np.exp(v) * (1 + odds) - odds),
        )

    return np.exp(-_at_error(density, -log_share, error))


@dataclass(frozen=True)
class _Density:
    """The logarithm of a density at a bound; how it falls beyond, and the slope of that."""

    height: Matrix
    fall: Callable[[Matrix], Matrix]
    slope: Callable[[Matrix], Matrix]

    @property
    def area(self) -> Matrix:
        """The area beyond the bound, as if the density were 1 there."""
        end = NOTHING / self.slope(np.zeros_like(self.height))  # too far, as the slope rises
        for _ in range(N_STEPS):
            end = end - (self.fall(end) - NOTHING) / self.slope(end)
        half, area = end / 2, np.zeros_like(end)
        for place, weight in zip(_PLACES, _WEIGHTS, strict=True):
            area += weight * np.exp(-self.fall(half * (1 + place)))
        return np.asarray(half * area)


def _at_error(density: Callable[[Matrix], _Density], bound: Matrix, error: float) -> Matrix:
    """Move a bound to where the chance of what lies beyond is ``error``."""
    for _ in range(N_STEPS):
        here = density(bound)
        area = here.area
        step = (here.height + np.log(area / error)) * area
        bound = bound + step
        if np.fmax.reduce(np.abs(step), axis=None, initial=0) < CONVERGED:
            break
    return bound


def _guessed_share(a: Matrix, b: Matrix, z: float) -> Matrix:
    """Return about where a beta distribution has its lower quantile (Cochran and Fisher)."""
    h = 2 / (1 / (2 * a - 1) + 1 / (2 * b - 1))
    w = z * np.sqrt(h + (z * z - 3) / 6) / h
    w -= (1 / (2 * b - 1) - 1 / (2 * a - 1)) * ((z * z - 3) / 6 + 5 / 6 - 2 / (3 * h))
    return np.asarray(a / (a + b * np.exp(2 * w)))


def _log_gamma(values: Matrix) -> Matrix:
    return np.array([math.lgamma(one) for one in values.ravel().tolist()]).reshape(values.shape)
