"""Targets, weights and the loss of any strategy, for a training loop of one's own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from earmark.config import kept_recipe
from earmark.datasets import FILLED, GIVEN, Workspace, measured_frames, number_recordings
from earmark.errors import EarmarkError
from earmark.experiments.strategies import Strategy, one_point
from earmark.experiments.student_flags import (
    FlagSources,
    build_targets,
    draw_scores,
    open_train_set,
)
from earmark.flags import gather_evidence
from earmark.labels import LabelSet, Ontology, find_implied
from earmark.losses import BatchTargets, normalised, norms
from earmark.scores import (
    HeldScores,
    MappedScores,
    ScoreFolder,
    ScoreMatrix,
    ScoresLike,
    TeacherScores,
    open_scores,
    scale_of,
)
from earmark.storage import as_array

_SAMPLED_CLIPS = 1_000
"""Clips, spread over all, whose scores tell logits from probabilities."""


class Supervision:
    """What labels, a teacher's scores and a strategy ask of a network, batch by batch.

    ``labels`` are a :class:`~earmark.labels.label_set.LabelSet` or states [clip, class] (+1, -1,
    0); ``scores`` are the teacher's logits [clip, class] in the same order: an array, a memory map,
    a tensor or the path of an ``.npy`` file. Strategies that ask no teacher, such as ``splc``, need
    none. ``strategy`` is written as for ``earmark compare --strategy``, with one operating point:
    ``hedge@1``, ``mask@2``, ``chance/hedge@0``, ``splc``.

    - ``chances``: log-odds [clip, class] that labels are missing, such as ``W/flags/chances.npy``;
      strategies that go by ``chance`` find them from labels and scores where none are given
    - ``ontology``: the class tree, for ``psla``, ``ancestors``, ``filled`` and better chances
    - ``recordings``: what each clip was cut from [clip], for ``consistency``
    - ``seed``: what ``random``, the control, draws

    >>> supervision = Supervision([[0], [0], [1]], np.array([[3.0], [-1.0], [4.0]]), "mask@50")
    >>> target, weight = supervision.targets([0, 1, 2])
    >>> target.ravel().tolist(), weight.ravel().tolist()  # the first label is ignored
    ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    >>> supervision.loss(torch.zeros(2, 1), [0, 1])  # half of log 2
    tensor(0.3466)
    """

    def __init__(
        self,
        labels: LabelSet | ArrayLike,
        scores: ScoresLike | Tensor | None = None,
        strategy: str = "hedge@1",
        *,
        chances: ScoresLike | Tensor | None = None,
        ontology: Ontology | None = None,
        recordings: Sequence[object] | NDArray[Any] | None = None,
        seed: int = 0,
    ) -> None:
        parsed, point = _checked(strategy)
        labels = LabelSet.of(labels)
        if parsed.labels == FILLED:
            labels = find_implied(labels, _needed(ontology, strategy, "ontology")).fill()
        tree = ontology or Ontology(labels.class_ids)
        given = _GivenScores(labels, strategy, scores, chances, tree)
        numbers = None
        if parsed.loss == "consistency":
            names = list(_needed(recordings, strategy, "recordings"))
            _check_length(names, labels)
            numbers = number_recordings(names)
        sources = FlagSources(
            labels,
            np.arange(labels.n_clips),
            lambda: _as_teacher(given.scores, "given"),
            lambda: given.chances,
            lambda number: HeldScores(draw_scores(given.scores.array, number), f"random {number}"),
            tree,
            recordings=numbers,
        )
        self.strategy = strategy
        self._provider = build_targets(sources, [(parsed, point, seed)])

    @classmethod
    def from_workspace(
        cls, work: str | Path | Workspace, strategy: str = "hedge@1", *, seed: int = 0
    ) -> Supervision:
        """Return what a student of ``earmark compare`` gets, on labels of any version.

        Its rows are the train split's clips that have frames, in order: those of
        :class:`~earmark.models.examples.ClipDataset`. Scores are those of the teacher that
        the workspace remembers.
        """
        parsed, point = _checked(strategy, of_workspace=True)
        workspace = work if isinstance(work, Workspace) else Workspace.open(work)
        name = kept_recipe(workspace.root).scores_name
        scores, store = ScoreFolder.open(workspace.scores_folder(name)), measured_frames(workspace)
        _, sources = open_train_set(workspace, store, 1.0, parsed.labels, scores)
        supervision = cls.__new__(cls)
        supervision.strategy = strategy
        supervision._provider = build_targets(sources, [(parsed, point, seed)])
        return supervision

    def __repr__(self) -> str:
        labels = self.labels
        return f"Supervision({self.strategy!r}, {labels.n_clips:,} x {labels.n_classes:,} labels)"

    @property
    def labels(self) -> LabelSet:
        """The labels; rows are its clips."""
        return self._provider.labels

    def targets(
        self, rows: ArrayLike | Tensor, device: torch.device | str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return target and weight of every label of some clips, float32 [len(rows), class].

        For a loss of one's own that weighs labels. Robust losses, such as ``splc``, change the
        loss and not these.
        """
        targets = self._targets(rows)
        return targets.target[0].to(device), targets.weight[0].to(device, torch.float32)

    def loss(
        self,
        logits: Tensor,
        rows: ArrayLike | Tensor,
        *,
        epoch: int | None = None,
        reduction: Literal["sum", "mean_kept", "none"] = "sum",
    ) -> Tensor:
        """Return the loss of a batch, in float32 (or float64, as the logits are), on their device.

        ``logits`` [len(rows), class] are the network's; ``rows`` name the clip of each example,
        patches of one clip by the same row. ``epoch``, from 0, is needed by the losses that change
        with it (``splc``, ``ll-r``). ``sum`` adds up classes and averages over examples, which is
        equation (1) of the paper; ``mean_kept`` divides by the sum of the weights; ``none`` returns
        [len(rows), class].
        """
        targets = self._targets(rows)
        _check_logits(logits, targets)
        values = logits if logits.dtype == torch.float64 else logits.float()
        targets = targets.to(logits.device)
        target, weight = targets.target.to(values.dtype), targets.weight.to(values.dtype)
        targets = replace(targets, target=target, weight=weight)
        entries = self._provider.entries(values.unsqueeze(0), targets, epoch)
        if reduction == "none":
            return entries[0]
        return normalised(entries, norms(weight, reduction))

    def state_dict(self) -> dict[str, Tensor]:
        """Return what ``consistency`` remembers, for a checkpoint; nothing for other losses."""
        return self._provider.state()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        self._provider.load_state(state)

    def _targets(self, rows: ArrayLike | Tensor) -> BatchTargets:
        numbers = np.atleast_1d(as_array(rows))
        is_outside = (numbers < 0) | (numbers >= self.labels.n_clips)
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or is_outside.any():
            raise EarmarkError(
                f"rows are numbers of clips, from 0 to {self.labels.n_clips - 1:,}, one for each "
                f"example, got {numbers.dtype} {numbers.shape}: {numbers.ravel()[:3].tolist()} ..."
            )
        return self._provider.targets(numbers.astype(np.int64))


@dataclass(frozen=True)
class _GivenScores:
    """Scores and chances of some labels, opened when a strategy asks for them."""

    labels: LabelSet
    strategy: str
    given_scores: ScoresLike | Tensor | None
    given_chances: ScoresLike | Tensor | None
    ontology: Ontology

    @cached_property
    def scores(self) -> ScoreMatrix:
        scores = _open(_needed(self.given_scores, self.strategy, "scores"), self.labels)
        n_rows = min(_SAMPLED_CLIPS, scores.n_clips)
        spread = np.linspace(0, scores.n_clips, n_rows, endpoint=False, dtype=np.int64)
        if n_rows and scale_of(scores.sample(spread)) == "probabilities":
            raise EarmarkError(
                "the scores all lie between 0 and 1: give logits and not probabilities, which are "
                "too coarse near 1; for float64 p, scipy.special.logit(p)"
            )
        return scores

    @cached_property
    def chances(self) -> TeacherScores:
        if self.given_chances is not None:
            return _as_teacher(_open(self.given_chances, self.labels), "chances")
        evidence = gather_evidence(self.labels, self.scores, self.ontology)
        if not evidence.knowledge.is_enough:
            raise EarmarkError(
                f"strategy {self.strategy!r}: no chances can be found, because the scores do not "
                "know the labels, or no class has a positive; pass scores of a better teacher"
            )
        matrix = _room_beside(self.scores)
        evidence.p_missing.fill(matrix)
        return HeldScores(matrix, "chances")


def _as_teacher(scores: ScoreMatrix, digest: str) -> TeacherScores:
    """Return scores as students hold them; those of a file are found again in any process."""
    if scores.path is None:
        return HeldScores(scores.array, digest)
    return MappedScores(scores.path.absolute(), digest)


def _open(scores: ScoresLike | Tensor, labels: LabelSet) -> ScoreMatrix:
    return open_scores(scores if isinstance(scores, str | Path) else as_array(scores), labels)


def _room_beside(scores: ScoreMatrix) -> NDArray[np.float32]:
    """Return an empty matrix of the same shape: in memory if the scores are, else in a file."""
    if scores.path is None and not isinstance(scores.array, np.memmap):
        return np.empty(scores.array.shape, np.float32)
    with tempfile.TemporaryFile() as file:  # has no name, and goes with the map
        return np.memmap(file, np.float32, "w+", shape=scores.array.shape)


def _checked(text: str, *, of_workspace: bool = False) -> tuple[Strategy, float]:
    """Read a strategy; refuse what a loss cannot do."""
    strategy, point = one_point(text)
    if strategy.adjusts:
        raise EarmarkError(
            f"strategy {text!r}: 'adjust' changes the scores of a trained network, and no loss; "
            "leave it out here, and subtract tau * log(prior) from the logits afterwards"
        )
    is_told = strategy.labels in (GIVEN, FILLED) and strategy.policy != "oracle"
    if not is_told and not of_workspace:
        raise EarmarkError(
            f"strategy {text!r}: which labels are corrected or true is known of a workspace alone; "
            "use Supervision.from_workspace, or pass those labels and leave the word out"
        )
    return strategy, point


def _needed(value: Any, strategy: str, name: str) -> Any:
    if value is None:
        raise EarmarkError(f"strategy {strategy!r} needs {name}: Supervision(..., {name}=...)")
    return value


def _check_length(recordings: Sequence[object], labels: LabelSet) -> None:
    if len(recordings) != labels.n_clips:
        raise EarmarkError(
            f"recordings: one is needed for each of {labels.n_clips:,} clips, got {len(recordings)}"
        )


def _check_logits(logits: Tensor, targets: BatchTargets) -> None:
    expected = tuple(targets.implicit.shape)
    if tuple(logits.shape) != expected or not logits.is_floating_point():
        raise EarmarkError(
            f"logits: expected floats of shape {expected} [example, class], one example for each "
            f"row, got {logits.dtype} {tuple(logits.shape)}"
        )
