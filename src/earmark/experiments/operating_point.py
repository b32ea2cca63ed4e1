"""The two rules that choose an operating point, both on ``tune``: the judging is done on ``eval``.

- A sweep, whose points are all per cents of one mask, takes the best: :func:`best_point`.
- A comparison holds several strategies against one another, and a strong point that is better by
  chance would flatter its strategy: it takes the mildest point that is as good as the best, within
  one standard error: :func:`mildest_within_one_error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import polars as pl

from earmark.errors import EarmarkError
from earmark.metrics import Draws

Point = TypeVar("Point")


def best_point(
    results: pl.DataFrame, metric: str, split: str = "tune", labels: str = "given"
) -> float:
    """Return the discard percent with the best mean of a metric; the smaller one of a tie.

    Give the results of one student and train set: the mean is over all rows of a point, which
    are then its seeds.
    """
    rows = results.filter(kind="mask", metric=metric, split=split, labels=labels)
    means = rows.group_by("discard_percent").agg(pl.col("value").mean())
    means = means.filter(pl.col("value").is_finite())
    if means.is_empty():
        raise EarmarkError(
            f"no operating point can be chosen: the results hold no {metric} on the split "
            f"{split!r} by the labels {labels!r}; does the dataset have clips of that split?"
        )
    ranked = means.sort("value", "discard_percent", descending=[True, False])
    return float(ranked["discard_percent"][0])


def mildest_within_one_error(points: Mapping[Point, Draws]) -> Point:
    """Choose an operating point by the one-standard-error rule; points stand from mild to strong.

    That is the mildest point whose value is within one standard error of the best point's, the
    error being that of their paired difference.
    """
    measured = {point: draws for point, draws in points.items() if np.isfinite(draws.value)}
    if not measured:
        raise EarmarkError("no operating point could be measured: are there labels to measure by?")
    best = max(measured.values(), key=lambda draws: draws.value)
    for point, draws in measured.items():
        difference = best - draws
        if difference.value <= difference.error:
            return point
    raise AssertionError("the best point is within one error of itself")
