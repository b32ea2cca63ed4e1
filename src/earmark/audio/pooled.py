"""A clip as one vector: its log-mel frames, pooled over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pooled(frames: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return the features float32 [4 * band] of a clip's frames [frame, band], one or more.

    Mean, deviation and maximum of each band, and the deviation of its change from frame to frame:
    what a linear probe needs to know of sounds that hold, beat or click.

    >>> pooled(np.array([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [2.0, 0.0, 1.0, 0.0, 3.0, 0.0, 0.0, 0.0]
    """
    exact = np.asarray(frames, np.float64)
    change = np.diff(exact, axis=0) if len(exact) > 1 else np.zeros_like(exact)
    parts = (exact.mean(axis=0), exact.std(axis=0), exact.max(axis=0), change.std(axis=0))
    return np.concatenate(parts).astype(np.float32)
