"""Chances and their log-odds, one into the other.

:mod:`scipy.special` has both functions, to the last bit or nearly so (the tests hold these to it),
but takes longer to load than a small scan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def expit(log_odds: ArrayLike) -> NDArray[Any]:
    """Return the chances of log-odds, in their type.

    >>> expit(np.array([-np.inf, 0.0, 3.0])).round(3).tolist()
    [0.0, 0.5, 0.953]
    """
    values = np.asarray(log_odds)
    kind = np.result_type(values, np.float32) if values.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):
        # float32 by way of float64: its own exponential is off by a unit or two.
        against = np.exp(-values.astype(np.float64)).astype(kind)
    return np.asarray(1 / (1 + against))


def logit(chances: ArrayLike) -> NDArray[Any]:
    """Return the log-odds of chances, in their type; infinite for 0 and 1, NaN beyond.

    >>> logit(np.array([0.0, 0.5, 0.953, 1.0])).round(2).tolist()
    [-inf, 0.0, 3.01, inf]
    """
    values = np.asarray(chances)
    apart = 2 * (values - 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.log(values / (1 - values))
        near = np.log1p(apart) - np.log1p(-apart)  # in the middle a quotient rounds
    return np.asarray(np.where((values < 0.3) | (values > 0.65), far, near))
