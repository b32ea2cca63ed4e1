"""The passes over a score matrix as tasks, shard by shard: for more scores than one machine reads.

What a pass finds in a shard is a value that merges with the other shards', so thresholds, flags
and counts are those of one machine, exactly:

    points = thresholds(labels, "logits.npy", engine=RayEngine())
    flags = flag(labels, "logits.npy", engine=RayEngine())
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.runs import Engine, Meter, Task
from earmark.scores.bins import BinCounts, Grid, Kept, count_bins, keep
from earmark.scores.matrix import ScoreMatrix
from earmark.scores.top_scores import IN_THIS_PROCESS, Passes

CLIPS_PER_SHARD = 250_000
"""Half a gigabyte of scores of 527 classes."""


def passes_by(engine: Engine | None, clips_per_shard: int = CLIPS_PER_SHARD) -> Passes:
    """Return passes that run as one task for each ``clips_per_shard`` clips of an ``.npy`` file.

    Without an engine the passes are made in this process, over scores of any kind.
    """
    if engine is None:
        return IN_THIS_PROCESS
    return Passes(
        partial(_count_all, engine, clips_per_shard), partial(_keep_all, engine, clips_per_shard)
    )


def _count_all(
    engine: Engine, clips_per_shard: int, labels: LabelSet, scores: ScoreMatrix, grid: Grid
) -> BinCounts:
    parts: list[BinCounts] = _map(engine, clips_per_shard, labels, scores, _count_shard, grid=grid)
    return reduce(BinCounts.merge, parts)


def _keep_all(
    engine: Engine,
    clips_per_shard: int,
    labels: LabelSet,
    scores: ScoreMatrix,
    grid: Grid,
    is_hot: NDArray[np.bool_],
    n_kept: NDArray[np.int64],
) -> Kept:
    del n_kept  # of all shards; each finds its own
    parts: list[Kept] = _map(
        engine, clips_per_shard, labels, scores, _keep_shard, grid=grid, is_hot=is_hot
    )
    return reduce(Kept.merge, parts)


def _map(
    engine: Engine,
    clips_per_shard: int,
    labels: LabelSet,
    scores: ScoreMatrix,
    function: Callable[..., Any],
    **given: Any,
) -> list[Any]:
    if scores.path is None:
        raise EarmarkError("shards are read where they lie: give the path of an .npy file")
    tasks = []
    for first in range(0, max(scores.n_clips, 1), clips_per_shard):
        rows = slice(first, min(first + clips_per_shard, scores.n_clips))
        own = labels.select(np.arange(rows.start, rows.stop))
        arguments = {"labels": own, "path": Path(scores.path), "rows": rows, **given}
        tasks.append(Task(f"scores of clips {rows.start} to {rows.stop}", function, arguments))
    return engine.map(tasks)


def _count_shard(labels: LabelSet, path: Path, rows: slice, grid: Grid, meter: Meter) -> BinCounts:
    found = count_bins(labels, np.load(path, mmap_mode="r")[rows], grid)
    meter.advance(1)
    return found


def _keep_shard(
    labels: LabelSet, path: Path, rows: slice, grid: Grid, is_hot: NDArray[np.bool_], meter: Meter
) -> Kept:
    scores = np.load(path, mmap_mode="r")[rows]
    n_kept = np.where(is_hot, count_bins(labels, scores, grid).counts, 0).sum(axis=1)
    kept = keep(labels, scores, grid, is_hot, n_kept)
    meter.advance(1)
    return kept
