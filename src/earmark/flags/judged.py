"""Flags held against a truth: how many are right, and how many missing labels they find."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.flags.thresholds import Thresholds
from earmark.labels import LabelSet
from earmark.losses import ignored


def judge_flags(
    labels: LabelSet, truth: LabelSet, logits: NDArray[np.float32], found: Thresholds
) -> pl.DataFrame:
    """Count the flags of each operating point that are missing labels, by the known truth.

    ``logits`` [clip, class] are the teacher's. Returns discard_percent, n_flags, n_right (missing
    labels) and n_missing (all of them); the other flags are decoys.
    """
    states = labels.states()
    is_missing = (states == 0) & (truth.states() > 0)
    rows = []
    for percent, row in zip(found.discard_percents, found.values, strict=True):
        is_flagged = ignored(states, logits, row)
        rows.append(
            {
                "discard_percent": float(percent),
                "n_flags": int(is_flagged.sum()),
                "n_right": int((is_flagged & is_missing).sum()),
                "n_missing": int(is_missing.sum()),
            }
        )
    return pl.DataFrame(rows)
