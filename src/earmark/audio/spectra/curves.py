"""Cosine, sine and logarithm that every machine rounds alike, in float64.

Numpy and the C library choose among several implementations by the processor, which differ in the
last bit. These are made of sums, products and quotients alone, each a step of its own, whose
rounding IEEE 754 prescribes. They are for tables made once, not for speed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

_N_TERMS = 24
"""Of every series; what is left out is below float64's last bit."""

_LN_2 = 0.6931471805599453


def circle(n_steps: int) -> Doubles:
    """Return cosine and sine [step, 2] of each of ``n_steps`` equal steps around the circle."""
    eighths = 8 * np.arange(n_steps)  # of a turn, times n_steps: whole numbers are not rounded
    quarter = (eighths + n_steps) // (2 * n_steps)
    angle = (eighths - 2 * n_steps * quarter) / n_steps * (np.pi / 4)  # at most an eighth
    cosine, sine = _series(angle, 0), angle * _series(angle, 1)
    around = np.array([[cosine, sine], [-sine, cosine], [-cosine, -sine], [sine, -cosine]])
    return around[quarter % 4, :, np.arange(n_steps)]


def logarithm(values: Doubles) -> Doubles:
    """Return the natural logarithms of positive numbers.

    >>> logarithm(np.array([1.0, 2.0])).round(6).tolist()
    [0.0, 0.693147]
    """
    mantissa, exponent = np.frexp(values)  # from 1/2 up to 1
    ratio = (mantissa - 1) / (mantissa + 1)
    total, square = np.zeros_like(ratio), ratio * ratio
    for term in reversed(range(_N_TERMS)):
        total = total * square + 1 / (2 * term + 1)
    found: Doubles = exponent * _LN_2 + 2 * ratio * total
    return found


def _series(angle: Doubles, first: int) -> Doubles:
    """Sum Taylor's series of the cosine (``first`` 0), or of sine over angle (1)."""
    total = np.ones_like(angle)
    for power in range(first + _N_TERMS, first, -2):
        total = 1 - angle * angle / (power * (power - 1)) * total
    return total
