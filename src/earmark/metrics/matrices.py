"""What every metric takes: labels and scores [clip, class], and weights of resamples, checked.

Labels are states (+1 present, -1 not present, 0 nobody was asked) or, where only positives matter,
booleans. Scores are anything that ranks, logits or probabilities: float16, float32 or float64, in
memory or memory-mapped, in either memory order. Infinities rank; NaN is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.errors import EarmarkError

Floats = NDArray[np.float64]

# Blocks are small enough for their working set to stay in the processor's cache, and bound what a
# memory-mapped or very large matrix needs beside itself.
_CLIPS_PER_BLOCK = 4096

RESAMPLES_PER_BLOCK = 64
"""As many as the loops in C take."""


def checked(labels: ArrayLike, scores: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return labels and scores as arrays of the same shape, or say what does not fit."""
    states, values = np.asarray(labels), np.asarray(scores)
    if values.ndim != 2 or states.shape != values.shape:
        raise EarmarkError(
            "labels and scores must be matrices [clip, class] of one shape, got "
            f"{states.shape} and {values.shape}; are they of the same clips, and not transposed?"
        )
    is_whole = states.dtype.kind in "biu"
    if not is_whole or (states.size and not -1 <= states.min() <= states.max() <= 1):
        came = f"values up to {states.max()}" if is_whole else f"type {states.dtype}"
        raise EarmarkError(
            f"labels must be booleans or whole numbers +1, -1 and 0, got {came}; were labels and "
            "scores swapped?"
        )
    if values.dtype.kind not in "biuf":
        raise EarmarkError(f"scores must be numbers, got {values.dtype}")
    _check_no_nan(values)
    return states, values


def _check_no_nan(scores: NDArray[Any]) -> None:
    if scores.dtype.kind != "f":
        return
    for start in range(0, len(scores), _CLIPS_PER_BLOCK):
        is_nan = np.isnan(scores[start : start + _CLIPS_PER_BLOCK])
        if is_nan.any():
            row, column = np.argwhere(is_nan)[0]
            raise EarmarkError(
                f"the score of clip {start + row}, class {column} (counted from 0) is NaN; leave "
                "that clip or class out, or mend the model that scored it"
            )


def checked_weights(weights: ArrayLike, n_clips: int) -> NDArray[Any]:
    """Return weights [resample, clip] as an array of whole numbers, or say what does not fit."""
    counts = np.asarray(weights)
    if counts.ndim != 2 or counts.shape[1] != n_clips:
        raise EarmarkError(
            f"weights must be a matrix [resample, clip] for {n_clips} clips, got {counts.shape}"
        )
    if counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise EarmarkError(
            f"weights count how often a clip was drawn: 0, 1, ...; got {counts.dtype}"
        )
    return counts


def resample_blocks(weights: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield resamples as columns of counts [clip, RESAMPLES_PER_BLOCK], as the loops take them.

    The last block is filled up with resamples that draw nothing.
    """
    if weights.sum(axis=1, dtype=np.float64).max(initial=0) >= 1 << 32:
        raise EarmarkError("a resample draws 4,294,967,296 clips or more; weights must be smaller")
    kind = np.uint8 if weights.max(initial=0) < 256 else np.uint32
    for start in range(0, len(weights), RESAMPLES_PER_BLOCK):
        some = weights[start : start + RESAMPLES_PER_BLOCK].astype(kind)
        block = np.zeros((weights.shape[1], RESAMPLES_PER_BLOCK), kind)
        block[:, : len(some)] = some.T
        yield slice(start, start + len(some)), block


def sortable(scores: NDArray[Any]) -> NDArray[Any]:
    """Widen float16, which most processors compare slowly; no value changes."""
    return scores.astype(np.float32) if scores.dtype == np.float16 else scores


def ratio(numerator: Any, denominator: Any) -> Floats:
    """Divide; what cannot be divided is NaN or infinite without a warning."""
    with np.errstate(invalid="ignore", divide="ignore"):
        quotient: Floats = np.true_divide(numerator, denominator)
    return quotient


def mean_over_classes(values: ArrayLike) -> Floats:
    """Return the equal-weight mean over the last axis without its NaN; NaN if nothing is left."""
    array = np.asarray(values, np.float64)
    is_measured = ~np.isnan(array)
    return ratio(np.where(is_measured, array, 0).sum(axis=-1), is_measured.sum(axis=-1))
