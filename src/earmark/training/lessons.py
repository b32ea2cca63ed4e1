"""What a network is told about its clips, and the set that it is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.labels import LabelSet
from earmark.losses import Moment, Targets
from earmark.networks import AnyNetwork, cross_entropies
from earmark.runs import NetworkParams, digest, read_seal
from earmark.scores import keep_labels, spread_labels

EVERYBODY = slice(0, None)
"""All students of a stack."""

CHUNK_CLIPS = 4_096
"""Clips whose labels are looked at in one go where all are counted."""


class Lessons(Protocol):
    """What students are told about their clips; rows are parallel to a :class:`TrainingSet`'s."""

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""

    @property
    def n_students(self) -> int:
        """Students that are trained side by side."""

    @property
    def digest(self) -> str:
        """Identifies labels and treatment."""

    def targets(self, rows: NDArray[np.int64]) -> Targets:
        """Return what the labels of some clips ask, on the CPU, float32."""

    def entries(
        self, logits: Tensor, targets: Targets, moment: Moment, students: slice = EVERYBODY
    ) -> Tensor:
        """Return the loss of every label, as for ``logits`` [student, example, class].

        Logits and targets may be of some of the students only.
        """


@runtime_checkable
class Remembering(Protocol):
    """Lessons that change with what the students have done, such as those of LL-Cp."""

    def state(self) -> dict[str, Tensor]:
        """Return what must not be forgotten, for a checkpoint."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""


class Exam(Protocol):
    """How good a network is while it is still being trained: the tune split's verdict."""

    @property
    def digest(self) -> str:
        """Identifies clips and labels."""

    def marks(self, network: AnyNetwork) -> Mapping[str, NDArray[np.float64]]:
        """Return ``lwlrap`` and ``loss`` of every student [student]."""


@dataclass(frozen=True)
class AsLabelled:
    """Labels as they are: an implicit label counts as a negative. What teachers are told."""

    labels: LabelSet
    n_students: int = 1

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""
        return self.labels.class_ids

    @property
    def digest(self) -> str:
        """Identifies the labels."""
        return self.labels.digest

    def targets(self, rows: NDArray[np.int64]) -> Targets:
        """Return 1 for explicit positives and 0 for all others, with weight 1."""
        asked, is_implicit = asked_of(self.labels, rows)
        target = torch.from_numpy(asked).unsqueeze(0)
        return Targets(target, torch.ones_like(target), torch.from_numpy(is_implicit))

    def entries(
        self, logits: Tensor, targets: Targets, moment: Moment, students: slice = EVERYBODY
    ) -> Tensor:
        """Return binary cross-entropy."""
        del students
        return cross_entropies(logits, targets, moment)


def asked_of(
    labels: LabelSet, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return what labels ask of some clips [clip, class], 1 or 0, and which are implicit."""
    asked = np.empty((len(rows), labels.n_classes), np.float32)
    is_implicit = np.empty(asked.shape, np.bool_)
    rows = np.ascontiguousarray(rows, np.int64)
    spread_labels(labels.starts, labels.columns, labels.present, rows, asked, is_implicit)
    return asked, is_implicit


@dataclass(frozen=True)
class Masks:
    """A teacher's scores [clip, class], and every student's thresholds [student, class].

    No score is above those of a student without flags.
    """

    logits: NDArray[np.float32]
    edges: NDArray[np.float32]

    def of(self, rows: NDArray[np.int64], is_open: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which labels are kept [student, clip, class] of some rows of the scores."""
        is_kept = np.empty((len(self.edges), *is_open.shape), np.bool_)
        keep_labels(self.logits, rows, is_open, self.edges, is_kept)
        return is_kept


@dataclass(frozen=True)
class TrainingSet:
    """Clips to train on: where their frames are, and what is known of them."""

    frames_folder: Path
    store_rows: NDArray[np.int64]
    """The place of each clip in the frame store, parallel to the rows of the lessons."""
    lessons: Lessons
    exam: Exam | None = None
    """What each epoch's network is held against; None measures nothing."""

    def digest(self, network: NetworkParams) -> str:
        """Identify the run that would train ``network`` on this set."""
        rows = self.store_rows.tobytes()
        frames = read_seal(self.frames_folder)["digest"]
        parts = [network.model, network.train, frames, rows, self.lessons.digest]
        if network.train.patience and self.exam is not None:  # else it changes no weights
            parts.append(self.exam.digest)
        return digest(*parts)


def class_balance(lessons: Lessons, n_clips: int) -> NDArray[np.float64]:
    """Return how often each clip is to be drawn [clip], as shares of 1.

    A clip's share is the sum, over its explicit positives, of one over the class's number of clips,
    as in PSLA (Gong et al. 2021): every class brings the same. Clips without a positive count as
    one class more. No clips yield an empty array.
    """
    counts = np.zeros(len(lessons.class_ids))
    for rows in _chunks(n_clips):
        counts += _positives(lessons, rows).sum(axis=0)
    inverse = 1 / np.maximum(counts, 1)
    sums = [_positives(lessons, rows) @ inverse for rows in _chunks(n_clips)]
    shares: NDArray[np.float64] = np.concatenate([np.empty(0), *sums])
    has_none = shares == 0
    shares[has_none] = 1 / max(int(has_none.sum()), 1)
    shares /= max(shares.sum(), 1e-300)
    return shares


def _chunks(n_clips: int) -> list[NDArray[np.int64]]:
    starts = range(0, n_clips, CHUNK_CLIPS)
    return [np.arange(first, min(first + CHUNK_CLIPS, n_clips)) for first in starts]


def _positives(lessons: Lessons, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the explicit positives [clip, class]: the same for all students of a sweep."""
    told = lessons.targets(rows)
    positives: NDArray[np.bool_] = ((told.target[0] > 0.5) & ~told.implicit).numpy()
    return positives
