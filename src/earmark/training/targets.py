"""What students are asked of each label: targets and weights, derived batch by batch.

A flagged label is an implicit one that scores above its class's threshold, or one of a list; its
treatment says which target and weight it gets (:data:`earmark.losses.TREATMENTS`). Neither a label
set nor a matrix of targets is ever copied: a batch reads its scores from disk and compares. How
strategies become treatments: :mod:`earmark.experiments.student_flags`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from earmark.audio import FrameStore
from earmark.config import ModelParams, NetworkParams
from earmark.errors import short_repr
from earmark.labels import NOT_PRESENT, PRESENT, LabelSet
from earmark.losses import BatchTargets, ignored, treat
from earmark.metrics import lwlrap
from earmark.models import AnyNetwork, examples_of, score_clips
from earmark.scores import TeacherScores
from earmark.storage import digest, read_seal
from earmark.training.robust_losses import Loss, RecordingConsistency, make_loss


@dataclass(frozen=True)
class Flags:
    """Suspected labels: implicit, and scored above ``thresholds`` float32 [class].

    Where a policy is more than a threshold, only the positives of ``listed`` are flagged among
    them; it has the clips of the labels.
    """

    scores: TeacherScores
    thresholds: NDArray[np.float32]
    listed: LabelSet | None = None

    __repr__ = short_repr

    @property
    def digest(self) -> str:
        """Identifies scores and flags."""
        listed = None if self.listed is None else self.listed.digest
        return digest(self.scores.digest, self.thresholds.tobytes(), listed)


@dataclass(frozen=True)
class LabelTreatment:
    """How one student is trained: flags (None: no label is suspect), their treatment, its loss."""

    flags: Flags | None = None
    treatment: str = "mask"
    loss: str = "bce"
    point: float | None = None
    """The operating point of the loss, where it has one."""

    __repr__ = short_repr

    def select(self, rows: NDArray[np.int64]) -> LabelTreatment:
        """Return the same for some of the clips."""
        if self.flags is None or self.flags.listed is None:
            return self
        return replace(self, flags=replace(self.flags, listed=self.flags.listed.select(rows)))

    @property
    def digest(self) -> str:
        """Identifies the treatment; the same for all that change nothing."""
        treated = None if self.flags is None else [self.flags.digest, self.treatment]
        return digest(treated, None if self.loss == "bce" else [self.loss, self.point])


@dataclass(frozen=True)
class TargetProvider:
    """Labels, and how every student of a stack treats them.

    Without ``treatments`` there is one student, which takes an implicit label for a negative:
    that is how teachers are trained.
    """

    labels: LabelSet
    treatments: tuple[LabelTreatment, ...] = ()
    score_rows: NDArray[np.int64] | None = None
    """The row of each clip in the score matrices; None where they have the labels' rows."""
    rulings: LabelSet | None = None
    """What raters settled about implicit labels: +1 is always ignored, -1 is never flagged."""
    recordings: NDArray[np.int64] | None = None
    """The recording of each clip by number; -1 where no other clip is of it."""

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the scores itself: a map that is sent is sent as all it holds.
        return {name: value for name, value in self.__dict__.items() if name != "_matrices"}

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""
        return self.labels.class_ids

    @property
    def n_students(self) -> int:
        """Students that are trained side by side."""
        return max(len(self.treatments), 1)

    @property
    def digest(self) -> str:
        """Identifies labels and treatments."""
        if not self.treatments:
            return self.labels.digest
        rulings = None if self.rulings is None else self.rulings.digest
        parts: list[object] = [self.labels.digest, rulings, [one.digest for one in self.treatments]]
        is_used = any(each.loss == "consistency" for each in self.treatments)
        if self.recordings is not None and is_used:
            parts.append(self.recordings.tobytes())
        return digest(*parts)

    def with_treatments(self, treatments: Sequence[LabelTreatment]) -> TargetProvider:
        """Return the same labels for students with other treatments."""
        return replace(self, treatments=tuple(treatments))

    def select(self, rows: NDArray[np.int64]) -> TargetProvider:
        """Return the targets of some of the clips."""
        return TargetProvider(
            self.labels.select(rows),
            tuple(treatment.select(rows) for treatment in self.treatments),
            rows if self.score_rows is None else self.score_rows[rows],
            None if self.rulings is None else self.rulings.select(rows),
            None if self.recordings is None else self.recordings[rows],
        )

    def targets(self, rows: NDArray[np.int64]) -> BatchTargets:
        """Return targets and weights [student or 1, clip, class] of some clips, on the CPU.

        Students share one array of targets, or of weights, where none has values of its own.
        """
        states = self.labels.states(rows)
        is_implicit, target = states == 0, (states > 0).astype(np.float32)
        ruled = None if self.rulings is None else self.rulings.states(rows)
        if ruled is not None:  # a cleared label is as good as an explicit negative
            states = np.where(is_implicit & (ruled == NOT_PRESENT), NOT_PRESENT, states)
        weight, scores = np.ones(states.shape, np.bool_), self._scores_of(rows)
        pairs = [
            self._target_and_weight(treatment, rows, states, scores, target, weight)
            for treatment in self.treatments
        ]
        targets, weights = map(_stacked, zip(*pairs or [(target, weight)], strict=True))
        if ruled is not None:
            weights[:, (ruled == PRESENT) & is_implicit] = 0
        recordings = None if self.recordings is None else torch.from_numpy(self.recordings[rows])
        parts = [torch.from_numpy(array) for array in (targets, weights, is_implicit)]
        return BatchTargets(parts[0], parts[1], parts[2], recordings)

    def entries(self, logits: Tensor, targets: BatchTargets, epoch: int | None) -> Tensor:
        """Return every student's own loss of every label [student, example, class].

        Epochs count from 0.
        """
        if len(self._losses) == 1:  # a slice of all would have its gradient copied
            return self._losses[0](logits, targets, epoch)
        ones = [slice(student, student + 1) for student in range(len(logits))]
        parts = [
            loss(logits[one], targets.select(one), epoch)
            for one, loss in zip(ones, self._losses, strict=True)
        ]
        return torch.cat(parts)

    def state(self) -> dict[str, Tensor]:
        """Return what the losses remember, for a checkpoint; empty if none does."""
        return {place: loss.memory.clone() for place, loss in self._remembering.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint; from an empty one, begin anew."""
        for place, loss in self._remembering.items():
            loss.memory = state.get(place, loss.memory[:0]).cpu().clone()

    @property
    def _remembering(self) -> dict[str, RecordingConsistency]:
        losses = enumerate(self._losses)
        return {str(i): loss for i, loss in losses if isinstance(loss, RecordingConsistency)}

    @cached_property
    def _losses(self) -> list[Loss]:
        """The loss of each student; one for all where they share one that remembers nothing."""
        kinds = [(one.loss, one.point) for one in self.treatments or (LabelTreatment(),)]
        is_shared = len(set(kinds)) == 1 and kinds[0][0] != "consistency"
        return [make_loss(*kind) for kind in (kinds[:1] if is_shared else kinds)]

    @cached_property
    def _matrices(self) -> dict[str, NDArray[np.floating]]:
        # Plain arrays over the same memory: indexing a np.memmap costs more.
        every = [each.flags.scores for each in self.treatments if each.flags is not None]
        teachers = {scores.digest: scores for scores in every}
        return {name: np.asarray(scores.open()) for name, scores in teachers.items()}

    def _scores_of(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """Return the scores [clip, class] of some clips by every teacher, by its digest."""
        places = rows if self.score_rows is None else self.score_rows[rows]
        with np.errstate(over="ignore"):  # too large for float32 is above every threshold
            return {
                name: logits[places].astype(np.float32, order="C", copy=False)
                for name, logits in self._matrices.items()
            }

    def _target_and_weight(
        self,
        treatment: LabelTreatment,
        rows: NDArray[np.int64],
        states: NDArray[np.int8],
        scores: Mapping[str, NDArray[np.float32]],
        target: NDArray[np.float32],
        weight: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | NDArray[np.bool_]]:
        """Return one student's targets and weights [clip, class]."""
        flags = treatment.flags
        if flags is None:
            return target, weight
        logits = scores[flags.scores.digest]
        is_flagged = ignored(states, logits, flags.thresholds)
        if flags.listed is not None:
            is_flagged &= flags.listed.states(rows) == PRESENT
        flagged = np.flatnonzero(is_flagged)
        return treat(treatment.treatment, flagged, expit(logits.ravel()[flagged]), target, weight)


def _stacked(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays [student, clip, class]; [1, clip, class] where all are the same one."""
    is_shared = all(array is arrays[0] for array in arrays)
    return arrays[0][None].copy() if is_shared else np.stack(arrays)


@dataclass(frozen=True)
class TuneSet:
    """The tune split: how good a network is while it is still being trained."""

    model: ModelParams
    frames_folder: Path
    store_rows: NDArray[np.int64]
    labels: LabelSet

    @property
    def digest(self) -> str:
        """Identifies clips and labels."""
        return digest(self.store_rows.tobytes(), self.labels.digest)

    def evaluate(self, network: AnyNetwork) -> dict[str, NDArray[np.float64]]:
        """Return lwlrap, and binary cross-entropy summed over classes, of clip scores [student]."""
        store = FrameStore.open(self.frames_folder)
        logits = score_clips(network, examples_of(self.model, store, self.store_rows))
        is_positive = self.labels.states() > 0
        losses = np.logaddexp(0, logits) - is_positive * logits
        return {
            "lwlrap": np.array([lwlrap(is_positive, own) for own in logits]),
            "loss": losses.sum(axis=2, dtype=np.float64).mean(axis=1),
        }


@dataclass(frozen=True)
class TrainingSet:
    """Clips to train on: where their frames are, and what their labels ask."""

    frames_folder: Path
    store_rows: NDArray[np.int64]
    """The place of each clip in the frame store, parallel to the rows of the targets."""
    targets: TargetProvider
    validation: TuneSet | None = None
    """The clips on which the network is evaluated after each epoch; None: it is not."""

    def digest(self, network: NetworkParams) -> str:
        """Identify the run that would train ``network`` on this set."""
        rows = self.store_rows.tobytes()
        frames = read_seal(self.frames_folder)["digest"]
        parts = [network.model, network.train, frames, rows, self.targets.digest]
        if network.train.patience and self.validation is not None:  # else it changes no weights
            parts.append(self.validation.digest)
        return digest(*parts)


def class_balance(labels: LabelSet) -> NDArray[np.float64]:
    """Return how often each clip is to be drawn [clip], as shares of 1.

    A clip's share is the sum, over its explicit positives, of one over the class's number of clips,
    as in PSLA (Gong et al. 2021): every class brings the same. Clips without a positive count as
    one class more. No clips yield an empty array.
    """
    inverse = 1 / np.maximum(labels.n_positives, 1)
    weights = inverse[labels.columns] * labels.present
    shares = np.bincount(labels.clip_rows, weights, labels.n_clips).astype(np.float64)
    has_none = shares == 0
    shares[has_none] = 1 / max(int(has_none.sum()), 1)
    shares /= max(shares.sum(), 1e-300)
    return shares
