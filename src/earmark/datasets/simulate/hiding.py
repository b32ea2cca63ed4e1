"""Hide known labels the way nomination does, and keep the truth: the simulator.

AudioSet's raters were asked only about classes that automatic methods had nominated for a clip, at
most ten of them. A sound that was not nominated is a missing label: present, but implicit. Given
the truth, :func:`hide` nominates and returns the labels that would have come of it, and
:func:`n_missing` counts how many are missing.
:func:`earmark.datasets.derived.import_workspace` does so to a whole dataset, to measure what the
method would find in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from earmark.config import HidingParams
from earmark.errors import EarmarkError
from earmark.labels import IMPLICIT, PRESENT, LabelSet, Ontology

_CHUNK_CLIPS = 4096


def hide(truth: LabelSet, ontology: Ontology, params: HidingParams) -> LabelSet:
    """Return the labels that nomination leaves explicit: true ones, a few per clip.

    The truth must be complete: what it leaves implicit counts as absent. A present class is
    nominated with its recall (see :func:`recalls`); of the absent ones, ``params.false_candidates``
    in the mean (or all, if there are fewer), siblings of present classes ``params.sibling_bias``
    times likelier than others. Of more than ``params.max_candidates`` nominations the best-scored
    stay. Classes are nominated one by one: a parent is not nominated because its child is.

    The result depends on the order of clips and not on how they are chunked; no clips give no
    labels.
    """
    recall = recalls(truth.class_ids, params)
    is_sibling = _sibling_matrix(ontology, truth.class_ids)
    rng = np.random.default_rng(params.seed)
    counts, columns, present = [], [], []
    for rows in _chunks(truth.n_clips):
        is_present = truth.states(rows) == PRESENT  # [clip, class]
        chance = np.where(is_present, recall.astype(np.float32), np.float32(0))
        chance += _false_chance(is_present, is_sibling, params)
        is_nominated = _nominate(chance, params.max_candidates, rng)
        counts.append(is_nominated.sum(axis=1))
        columns.append(np.nonzero(is_nominated)[1])
        present.append(is_present[is_nominated])
    return LabelSet(
        truth.clip_ids,
        truth.class_ids,
        np.concatenate([[0], *counts]).cumsum(dtype=np.int64),
        np.concatenate([np.empty(0, np.int32), *columns]).astype(np.int32),
        np.concatenate([np.empty(0, np.bool_), *present]),
    )


def recalls(class_ids: Iterable[str], params: HidingParams) -> NDArray[np.float64]:
    """Return the chance [class] that a present sound is nominated, uniform over ``recall_range``.

    Each class draws its recall from its name and the seed, whatever other classes there are and
    however frequent it is.
    """
    low, high = params.recall_range
    if not 0 <= low <= high <= 1:
        raise EarmarkError(
            f"recall_range must be a lowest and a highest chance between 0 and 1, got ({low}, "
            f"{high})"
        )
    chances = (draw_by_name(params.seed, name) for name in class_ids)
    return np.array([low + (high - low) * chance for chance in chances], float)


def n_missing(truth: LabelSet, labels: LabelSet) -> NDArray[np.int64]:
    """Count the labels of each class [class] that are implicit but truly present."""
    if labels.class_ids != truth.class_ids or not labels.clip_ids.equals(truth.clip_ids):
        raise EarmarkError(
            f"truth ({truth.n_clips} clips, {truth.n_classes} classes) and labels "
            f"({labels.n_clips}, {labels.n_classes}) must list the same clips and classes in the "
            "same order; are they of one workspace?"
        )
    counts = np.zeros(truth.n_classes, np.int64)
    for rows in _chunks(truth.n_clips):
        is_missing = (truth.states(rows) == PRESENT) & (labels.states(rows) == IMPLICIT)
        counts += is_missing.sum(axis=0)
    return counts


def _chunks(n_clips: int) -> Iterator[slice]:
    for start in range(0, n_clips, _CHUNK_CLIPS):
        yield slice(start, min(start + _CHUNK_CLIPS, n_clips))


def draw_by_name(*names: object) -> float:
    """Return a number in [0, 1) that depends on these names alone: the same on every machine."""
    text = ":".join(map(str, names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def _sibling_matrix(ontology: Ontology, class_ids: tuple[str, ...]) -> NDArray[np.float32]:
    """Return 1 where two classes share a parent [class, class]."""
    column = {class_id: i for i, class_id in enumerate(class_ids)}
    matrix = np.zeros((len(class_ids), len(class_ids)), np.float32)
    for class_id in class_ids:
        siblings = [column[other] for other in ontology.siblings(class_id) if other in column]
        matrix[column[class_id], siblings] = 1
    return matrix


def _false_chance(
    is_present: NDArray[np.bool_], is_sibling: NDArray[np.float32], params: HidingParams
) -> NDArray[np.float32]:
    """Return each absent label's chance of nomination, 0 for present ones [clip, class]."""
    beside_present = is_present.astype(np.float32) @ is_sibling > 0
    weight = np.where(beside_present, np.float32(params.sibling_bias), np.float32(1))
    weight[is_present] = 0
    total = np.maximum(weight.sum(axis=1, keepdims=True), 1)  # 0 where every class is present
    return np.asarray(np.minimum(params.false_candidates / total * weight, 1), np.float32)


def _nominate(
    chance: NDArray[np.float32], max_candidates: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw nominations [clip, class], at most ``max_candidates`` per clip.

    One draw serves as the nominator's score too: the log-odds of the chance plus logistic noise,
    nominated where positive. Present classes have the larger chances, hence the better scores.
    """
    draw = rng.random(chance.shape, np.float32)
    is_nominated = draw < chance
    crowded = np.flatnonzero(is_nominated.sum(axis=1) > max_candidates)
    if len(crowded):
        score = np.full((len(crowded), chance.shape[1]), -np.inf, np.float32)
        places = is_nominated[crowded]
        score[places] = logit(chance[crowded][places]) - logit(draw[crowded][places])
        losers = np.argpartition(-score, max_candidates - 1, axis=1)[:, max_candidates:]
        is_nominated[crowded[:, None], losers] = False
    return is_nominated
