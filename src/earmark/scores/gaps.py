"""Scores that are not there, or that are no numbers: one rule for all of them.

A class with NaN for every clip is *unscored*: it is kept, named in a warning, and nothing of it is
flagged. A clip with NaN in every class is unscored, too: it is left out, and counted in a warning.
Any other NaN, and any infinite score, is an error that names the first and says how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError, first_few
from earmark.labels import LabelSet
from earmark.scores.blocks import map_scores, row_blocks, write_blocks
from earmark.scores.matrix import ScoreMatrix


@dataclass(frozen=True)
class _Gaps:
    """How many scores are NaN, by clip [clip] and by class [class], and how many are infinite."""

    by_clip: NDArray[np.int64]
    by_class: NDArray[np.int64]
    n_infinite: int

    @property
    def is_unscored_clip(self) -> NDArray[np.bool_]:
        return np.equal(self.by_clip, len(self.by_class))

    @property
    def is_unscored_class(self) -> NDArray[np.bool_]:
        return np.equal(self.by_class, len(self.by_clip))

    @property
    def n_scattered(self) -> int:
        """Number of NaN in clips and classes that have scores."""
        n_clips, n_classes = int(self.is_unscored_clip.sum()), int(self.is_unscored_class.sum())
        n_whole = n_clips * len(self.by_class) + n_classes * len(self.by_clip) - n_clips * n_classes
        return int(self.by_clip.sum()) - n_whole


def leave_out_gaps(
    npy: Path, labels: LabelSet, target: Path, name: Path | None = None
) -> tuple[ScoreMatrix, LabelSet, tuple[str, ...]]:
    """Leave out clips without scores; return scores, labels and what there is to say about it.

    Scores without such clips stay where they are; others go to ``target``. ``name`` is the file
    that messages name.
    """
    scores = ScoreMatrix(map_scores(npy), npy)
    gaps = _find_gaps(scores)
    if gaps.n_scattered or gaps.n_infinite:
        _refuse_odd(npy, labels, gaps, name or npy)
    is_unscored = gaps.is_unscored_clip
    if not is_unscored.any():
        return scores, labels, ()
    if is_unscored.all():
        raise EarmarkError(f"{name or npy}: there is not one score in it, all are NaN")
    _write_rows(npy, ~is_unscored, target)
    without = first_few(labels.clip_ids.filter(is_unscored))
    warning = (
        f"{int(is_unscored.sum()):,} of {labels.n_clips:,} clips have no scores (NaN in every "
        f"class, such as {without}): they are left out"
    )
    return ScoreMatrix(map_scores(target), target), labels.select(~is_unscored), (warning,)


def _find_gaps(scores: ScoreMatrix) -> _Gaps:
    """Count what is no number, where the first pass over the scores has met any."""
    by_clip = np.zeros(scores.n_clips, np.int64)
    by_class = np.zeros(scores.n_classes, np.int64)
    n_infinite = 0
    for rows in scores.odd_rows:
        values = scores.read(rows)
        is_nan = np.isnan(values)
        by_clip[rows] = is_nan.sum(axis=1)
        by_class += is_nan.sum(axis=0)
        n_infinite += int(np.isinf(values).sum())
    return _Gaps(by_clip, by_class, n_infinite)


def _refuse_odd(npy: Path, labels: LabelSet, gaps: _Gaps, name: Path) -> None:
    for start, block in row_blocks(npy):
        rows = slice(start, start + len(block))
        with np.errstate(over="ignore"):
            values = np.asarray(block, np.float32)
        is_whole = gaps.is_unscored_clip[rows, None] | gaps.is_unscored_class
        is_odd = np.isinf(values) | (np.isnan(values) & ~is_whole)
        if not is_odd.any():
            continue
        row, column = (int(place) for place in np.argwhere(is_odd)[0])
        value: Any = block[row, column]
        hint = (
            "were probabilities of 0 or 1 turned into logits?"
            if np.isinf(values[row, column])
            else "score every label or, with NaN throughout, none of a clip or of a class"
        )
        raise EarmarkError(
            f"{name}: clip {labels.clip_ids[start + row]!r} (row {start + row}), class "
            f"{labels.class_ids[column]!r} (column {column}): the score is {value}, expected a "
            f"finite number ({gaps.n_scattered + gaps.n_infinite:,} such scores); {hint}"
        )


def _write_rows(npy: Path, is_kept: NDArray[np.bool_], target: Path) -> None:
    scores = map_scores(npy)
    blocks = (block[is_kept[start : start + len(block)]] for start, block in row_blocks(npy))
    write_blocks(target, scores.dtype, (int(is_kept.sum()), scores.shape[1]), blocks)
