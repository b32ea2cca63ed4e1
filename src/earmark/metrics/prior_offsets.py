"""Offsets per class: the calibration control, and logit adjustment as a strategy.

lwlrap compares classes with one another, so lifting rare classes' scores by their prior alone can
raise it, missing labels or not. So every student, the baseline included, is given the best offsets
that can be found on ``tune``, and lwlrap is compared again. No metric within a class (AUC, d',
average precision) can change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from earmark.errors import EarmarkError
from earmark.metrics.lwlrap import lwlrap
from earmark.metrics.matrices import Floats

OFFSET_STRENGTHS = tuple(step / 10 for step in range(11))
"""The values of tau among which :func:`fit_prior_offset` chooses."""

_N_NEWTON_STEPS = 12


def smoothed_priors(n_positives: ArrayLike, n_clips: int) -> Floats:
    """Return class priors [class] that are never 0 or 1: (n + 0.5) / (N + 1).

    >>> smoothed_priors([0, 3], 9)
    array([0.05, 0.35])
    """
    return (np.asarray(n_positives, np.float64) + 0.5) / (n_clips + 1)


def apply_offset(scores: ArrayLike, priors: ArrayLike, tau: float) -> NDArray[Any]:
    """Return logits z_c - tau * log(prior_c) [clip, class]: rarer classes are lifted more.

    ``priors`` [class] are shares of the training clips, best from :func:`smoothed_priors`, since
    a prior of 0 would lift its class above all others and is refused. float16 becomes float32.
    No metric within a class (AUC, d', average precision) can change.
    """
    logits, shares = np.asarray(scores), np.asarray(priors, np.float64)
    if logits.ndim != 2 or shares.shape != logits.shape[1:]:
        raise EarmarkError(
            f"one prior per class is needed, got priors {shares.shape} for scores {logits.shape}"
        )
    is_odd = ~((shares > 0) & (shares <= 1))
    if is_odd.any():
        column = int(np.argmax(is_odd))
        raise EarmarkError(
            f"the prior of class {column} (counted from 0) is {shares[column]}; expected a share "
            "above 0 and up to 1: make priors from counts with smoothed_priors"
        )
    kind = np.result_type(logits, np.float32)
    lifted: NDArray[Any] = logits - (tau * np.log(shares)).astype(kind)
    return lifted


def fit_prior_offset(states: ArrayLike, scores: ArrayLike, priors: ArrayLike) -> float:
    """Choose tau from :data:`OFFSET_STRENGTHS` so that :func:`apply_offset` maximises lwlrap.

    Fit it on the ``tune`` split, for every student and the baseline alike, and compare lwlrap on
    ``eval`` after applying each one's own. ``scores`` are logits. The smallest of equals wins.
    """
    is_positive = np.asarray(states) > 0
    if not is_positive.any():
        raise EarmarkError("no label is positive: an offset cannot be fitted to these clips")
    values = [lwlrap(is_positive, apply_offset(scores, priors, tau)) for tau in OFFSET_STRENGTHS]
    return OFFSET_STRENGTHS[int(np.argmax(values))]


def fit_class_offsets(states: ArrayLike, scores: ArrayLike, priors: ArrayLike) -> Floats:
    """Return an offset for each class [class], fitted to the clips at hand (``tune``).

    First the offset with which the class's outputs add up to its positives there, (n + 0.5) of
    them: whatever a treatment did to the scores' level is undone. Then -tau * log(prior_c), tau
    chosen as by :func:`fit_prior_offset`. ``scores`` [clip, class] are logits, and adding the
    offsets to those of other clips calibrates them too.
    """
    logits, positives = np.asarray(scores, np.float64), np.asarray(states) > 0
    level = _level_offsets(logits, smoothed_priors(positives.sum(axis=0), len(logits)))
    tau = fit_prior_offset(positives, logits + level, priors)
    return level - tau * np.log(np.asarray(priors, np.float64))


def _level_offsets(logits: Floats, shares: Floats) -> Floats:
    """Return b [class] with which the mean of sigmoid(logits + b) over clips is the share."""
    offsets = np.zeros(logits.shape[1])
    for _ in range(_N_NEWTON_STEPS):
        outputs = expit(logits + offsets)
        mean = np.clip(outputs.mean(axis=0), 1e-12, 1 - 1e-12)
        slope = (outputs * (1 - outputs)).mean(axis=0)
        # On the logit of the mean, steps cannot overshoot the way they do on the mean itself.
        steps = (logit(shares) - logit(mean)) * mean * (1 - mean) / np.maximum(slope, 1e-12)
        offsets += np.clip(steps, -4, 4)
    return offsets
