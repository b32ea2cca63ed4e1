"""Turn scores into finite logits, which all later stages work on.

Near 1, probabilities are coarse where logits are fine, and every rank and threshold of a teacher's
best scores lies there. So probabilities are converted once.

A class with NaN for every clip is *unscored*: it is kept, named in a warning, and gets no flags. A
clip with NaN in every class is left out and counted in a warning. Any other NaN, and any infinite
score, is an error that names the first and counts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from earmark.compute import SILENT, Progress
from earmark.errors import EarmarkError, first_few
from earmark.labels import LabelSet
from earmark.scores.files import map_scores, row_blocks, write_blocks
from earmark.scores.matrix import ScoreMatrix

Scale = Literal["logits", "probabilities"]

SAMPLE_CLIPS = 4096
"""Clips, spread evenly over all, that tell probabilities from logits."""

TIED_SHARE = 0.001
"""Share of a class's probabilities that are exactly 1 from which ties are announced."""


def scale_of(scores: NDArray[np.floating]) -> Scale:
    """Tell probabilities from logits, by the one rule: probabilities all lie between 0 and 1.

    NaN says nothing; without a single number the scores are taken for logits.

    >>> scale_of(np.array([0.25, 1.0, np.nan])), scale_of(np.array([0.25, -1.0]))
    ('probabilities', 'logits')
    """
    low = np.fmin.reduce(scores, axis=None, initial=np.inf)
    high = np.fmax.reduce(scores, axis=None, initial=-np.inf)
    return "probabilities" if 0 <= low <= high <= 1 else "logits"


def detect_scale(scores: ScoreMatrix) -> Scale:
    """Tell the scale of scores by some clips, spread evenly over all."""
    n_rows = min(SAMPLE_CLIPS, scores.n_clips)
    sample = scores.sample(np.linspace(0, scores.n_clips, n_rows, endpoint=False, dtype=np.int64))
    return scale_of(sample)


def write_logits(npy: Path, labels: LabelSet, path: Path, progress: Progress = SILENT) -> list[str]:
    """Write the logits of probabilities as float32; return warnings about ties.

    Exact zeros and ones lie one logit beyond the other scores of their class, so that order and
    ties are kept and no score is infinite. NaN stays NaN. What is no probability is an error that
    names clip and class.
    """
    scores = map_scores(npy)
    extremes = np.full((2, labels.n_classes), np.nan, np.float32)  # lowest and highest inside
    n_outside = np.zeros((2, labels.n_classes), np.int64)  # zeros and ones
    meter = progress.job("probabilities to logits", len(scores), "clips")

    def blocks() -> Iterator[NDArray[np.float32]]:
        for start, block in row_blocks(npy):
            _check_probabilities(labels, start, block)
            logits = _logit(block)
            n_outside[0] += np.isneginf(logits).sum(axis=0)
            n_outside[1] += np.isposinf(logits).sum(axis=0)
            inside = np.where(np.isinf(logits), np.float32(np.nan), logits)
            extremes[0] = np.fmin(extremes[0], np.fmin.reduce(inside, axis=0))
            extremes[1] = np.fmax(extremes[1], np.fmax.reduce(inside, axis=0))
            yield logits
            meter.advance(len(block))

    write_blocks(path, np.dtype(np.float32), scores.shape, blocks())
    if n_outside.any():
        _move_infinite(path, np.nan_to_num(extremes))
    return _tie_warnings(labels, scores.dtype, n_outside[1])


def _logit(probabilities: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return logits; infinite for 0 and 1. float16 is widened first, float64 used in full."""
    values = probabilities.astype(np.result_type(probabilities, np.float32), copy=False)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values) - np.log1p(-values), np.float32)


def _check_probabilities(labels: LabelSet, start: int, block: NDArray[np.floating]) -> None:
    is_odd = (block < 0) | (block > 1)
    if is_odd.any():
        row, column = (int(place) for place in np.argwhere(is_odd)[0])
        raise EarmarkError(
            f"clip {labels.clip_ids[start + row]!r} (row {start + row}), class "
            f"{labels.class_ids[column]!r}: {block[row, column]} is no probability; if the scores "
            "are logits, say so (scale logits)"
        )


def _move_infinite(path: Path, extremes: NDArray[np.float32]) -> None:
    """Put infinite logits one beyond the finite extremes [2, class] of their class."""
    for _, block in row_blocks(path, mode="r+"):
        np.copyto(block, extremes[0] - 1, where=np.isneginf(block))
        np.copyto(block, extremes[1] + 1, where=np.isposinf(block))


def _tie_warnings(labels: LabelSet, dtype: np.dtype[Any], n_ones: NDArray[np.int64]) -> list[str]:
    warnings = []
    if dtype == np.float16:
        warnings.append(
            "the scores are float16 probabilities: near 1 they are so coarse that many labels tie; "
            "store logits, or float32"
        )
    tied = np.flatnonzero(n_ones > TIED_SHARE * max(labels.n_clips, 1))
    if len(tied):
        worst = tied[np.argmax(n_ones[tied])]
        warnings.append(
            f"probabilities of exactly 1 tie at the top of {len(tied):,} classes (class "
            f"{labels.class_ids[worst]!r}: {n_ones[worst]:,} clips); store logits instead"
        )
    return warnings


def leave_out_gaps(
    npy: Path, labels: LabelSet, target: Path, name: Path | None = None
) -> tuple[ScoreMatrix, LabelSet, tuple[str, ...]]:
    """Leave out clips without scores; return scores, labels and what there is to say about it.

    Scores without such clips stay where they are; others go to ``target``. ``name`` is the file
    that messages name.
    """
    scores = ScoreMatrix(map_scores(npy), npy)
    is_unscored, is_unscored_class = _find_gaps(scores)
    _refuse_odd(scores, labels, is_unscored[:, None], is_unscored_class, name or npy)
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


def _find_gaps(scores: ScoreMatrix) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell which clips [clip] and which classes [class] have nothing but NaN."""
    n_by_clip = np.zeros(scores.n_clips, np.int64)
    n_by_class = np.zeros(scores.n_classes, np.int64)
    for rows in scores.odd_rows:  # where the first pass over the scores has met any
        is_nan = np.isnan(scores.read(rows))
        n_by_clip[rows] = is_nan.sum(axis=1)
        n_by_class += is_nan.sum(axis=0)
    return np.equal(n_by_clip, scores.n_classes), np.equal(n_by_class, scores.n_clips)


def _refuse_odd(
    scores: ScoreMatrix,
    labels: LabelSet,
    is_unscored_clip: NDArray[np.bool_],
    is_unscored_class: NDArray[np.bool_],
    name: Path,
) -> None:
    """Name the first score that is infinite, or NaN where clip [clip, 1] and class have scores."""
    places: list[tuple[int, int]] = []
    n_odd = 0
    for rows in scores.odd_rows:
        values = scores.read(rows)
        is_whole = is_unscored_clip[rows] | is_unscored_class
        row, column = np.nonzero(np.isinf(values) | (np.isnan(values) & ~is_whole))
        n_odd += len(row)
        places += [(rows.start + int(row[0]), int(column[0]))] if len(row) else []
    if not places:
        return
    first, column_of_first = min(places)
    value = scores.array[first, column_of_first]
    hint = (
        "score every label or, with NaN throughout, none of a clip or of a class"
        if np.isnan(value)
        else "were probabilities of 0 or 1 turned into logits?"
    )
    raise EarmarkError(
        f"{name}: clip {labels.clip_ids[first]!r} (row {first}), class "
        f"{labels.class_ids[column_of_first]!r} (column {column_of_first}): the score is {value}, "
        f"expected a finite number ({n_odd:,} such scores); {hint}"
    )


def _write_rows(npy: Path, is_kept: NDArray[np.bool_], target: Path) -> None:
    scores = map_scores(npy)
    blocks = (block[is_kept[start : start + len(block)]] for start, block in row_blocks(npy))
    write_blocks(target, scores.dtype, (int(is_kept.sum()), scores.shape[1]), blocks)
