"""What students are told: flags and what becomes of them, derived batch by batch.

A flagged label is one that scores above its class's threshold, or one of a list. Neither a label
set nor a matrix of targets is ever copied: a batch reads its scores from disk and compares. See
:mod:`earmark.experiments.strategies` for the names of policies, treatments and losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor

from earmark.errors import EarmarkError, short_repr
from earmark.flags import Thresholds, flag, stored_thresholds, thresholds
from earmark.labels import NOT_PRESENT, PRESENT, LabelSet, Ontology, find_implied
from earmark.losses import Moment, Targets, Treatment, treat
from earmark.runs import digest
from earmark.scores import TeacherScores
from earmark.training.lessons import EVERYBODY, Masks, asked_of
from earmark.training.names import BY_PERCENT
from earmark.training.rivals import Loss, RememberingLoss, make_loss

KNOBS = {
    "precision": "target",
    "positives_quantile": "quantile",
    "global": "probability",
}
"""The option of a policy that its operating points set, beside those that go by per cent."""


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

    def listed_states(self, rows: NDArray[np.int64]) -> NDArray[np.int8] | None:
        """Return +1 for the listed labels [clip, class] of some clips; None without a list."""
        return None if self.listed is None else self.listed.states(rows)

    @property
    def digest(self) -> str:
        """Identifies scores and flags."""
        listed = None if self.listed is None else self.listed.digest
        return digest(self.scores.digest, self.thresholds.tobytes(), listed)


@dataclass(frozen=True)
class Told:
    """What one student is told: flags (None: no label is suspect), their treatment, its loss."""

    flags: Flags | None = None
    treatment: Treatment = "mask"
    loss: str = "bce"
    point: float | None = None
    """The operating point of the loss, where it has one."""

    __repr__ = short_repr

    def select(self, rows: NDArray[np.int64]) -> Told:
        """Return the same for some of the clips."""
        if self.flags is None or self.flags.listed is None:
            return self
        return replace(self, flags=replace(self.flags, listed=self.flags.listed.select(rows)))

    @property
    def changes_targets(self) -> bool:
        """Whether a flagged label is anything but a negative, of whatever weight."""
        return self.flags is not None and self.treatment in ("flip", "soft", "hedge")

    @property
    def is_mask(self) -> bool:
        """Whether every label keeps its part in cross-entropy or has none."""
        return self.loss == "bce" and (self.flags is None or self.treatment == "mask")

    @property
    def digest(self) -> str:
        """Identifies the treatment; the same for all that change nothing."""
        treated = None if self.flags is None else [self.flags.digest, self.treatment]
        return digest(treated, None if self.loss == "bce" else [self.loss, self.point])


@dataclass(frozen=True)
class Treated:
    """Labels of which every student of a stack is told something of its own."""

    labels: LabelSet
    score_rows: NDArray[np.int64]
    """The row of each clip in the score matrices."""
    told: tuple[Told, ...]
    rulings: LabelSet | None = None
    """What raters settled about implicit labels: +1 is always ignored, -1 is never flagged."""
    recordings: NDArray[np.int64] | None = None
    """The recording of each clip by number; -1 where no other clip is of it."""

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the scores itself: a map that is sent is sent as all it holds.
        mapped = ("_matrices", "_masks")
        return {name: value for name, value in self.__dict__.items() if name not in mapped}

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""
        return self.labels.class_ids

    @property
    def n_students(self) -> int:
        """One student for everything told."""
        return len(self.told)

    @property
    def digest(self) -> str:
        """Identifies labels and treatments."""
        rulings = None if self.rulings is None else self.rulings.digest
        parts: list[object] = [self.labels.digest, rulings, [one.digest for one in self.told]]
        if self.recordings is not None and any(one.loss == "consistency" for one in self.told):
            parts.append(self.recordings.tobytes())
        return digest(*parts)

    def of(self, told: Sequence[Told]) -> Treated:
        """Return the same labels for other students."""
        return replace(self, told=tuple(told))

    def select(self, rows: NDArray[np.int64]) -> Treated:
        """Return what the students are told of some of the clips."""
        return Treated(
            self.labels.select(rows),
            self.score_rows[rows],
            tuple(one.select(rows) for one in self.told),
            None if self.rulings is None else self.rulings.select(rows),
            None if self.recordings is None else self.recordings[rows],
        )

    def targets(self, rows: NDArray[np.int64]) -> Targets:
        """Return targets and weights [student or 1, clip, class] of some clips."""
        asked, is_implicit = asked_of(self.labels, rows)
        ruled = None if self.rulings is None else self.rulings.states(rows)
        is_open = is_implicit if ruled is None else is_implicit & (ruled != NOT_PRESENT)
        if self._masks is None:
            target, weight = self._treated(rows, asked, is_open)
        else:
            target, weight = asked[None], self._masks.of(self.score_rows[rows], is_open)
        if ruled is not None:
            weight[:, (ruled == PRESENT) & is_implicit] = 0
        recordings = None if self.recordings is None else torch.from_numpy(self.recordings[rows])
        told = [torch.from_numpy(one) for one in (target, weight, is_implicit, rows)]
        return Targets(told[0], told[1], told[2], told[3], recordings)

    def entries(
        self, logits: Tensor, targets: Targets, moment: Moment, students: slice = EVERYBODY
    ) -> Tensor:
        """Return every student's own loss of every label [student, example, class].

        ``logits`` and ``targets`` may be of some of the ``students`` only.
        """
        if len(self._losses) == 1:  # a slice of all would have its gradient copied
            return self._losses[0][1](logits, targets, moment)
        parts = []
        for own, loss in self._losses:
            start, stop = own.start - students.start, own.stop - students.start
            here = slice(max(start, 0), min(stop, len(logits)))
            if here.start < here.stop:
                parts.append(loss(logits[here], targets.of(here), moment))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def state(self) -> dict[str, Tensor]:
        """Return what the losses remember, for a checkpoint; empty if none does."""
        return {place: loss.memory for place, loss in self._remembering.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint; from an empty one, begin anew."""
        for place, loss in self._remembering.items():
            loss.memory = state.get(place, loss.memory[:0]).cpu()

    @property
    def _remembering(self) -> dict[str, RememberingLoss]:
        losses = enumerate(loss for _, loss in self._losses)
        return {str(i): loss for i, loss in losses if isinstance(loss, RememberingLoss)}

    @cached_property
    def _losses(self) -> list[tuple[slice, Loss]]:
        """Neighbouring students with one loss between them, and the loss.

        A loss that remembers labels is one student's own.
        """

        def kind(student: int) -> tuple[str, float | None, int]:
            told = self.told[student]
            is_own = isinstance(make_loss(told.loss), RememberingLoss)
            return told.loss, told.point, student if is_own else 0

        found = []
        for (name, point, _), group in groupby(range(self.n_students), kind):
            students = list(group)
            found.append((slice(students[0], students[-1] + 1), make_loss(name, point)))
        return found

    @cached_property
    def _matrices(self) -> dict[str, NDArray[np.floating]]:
        # Plain arrays over the same memory: indexing a np.memmap costs more.
        opened = {one.flags.scores.digest: one.flags.scores for one in self.told if one.flags}
        return {name: np.asarray(scores.open()) for name, scores in opened.items()}

    @cached_property
    def _masks(self) -> Masks | None:
        """All masks at once, where every student's is by thresholds of one teacher's scores."""
        listed = any(one.flags is not None and one.flags.listed is not None for one in self.told)
        if len(self._matrices) != 1 or listed or not all(one.is_mask for one in self.told):
            return None
        (logits,) = self._matrices.values()
        if logits.dtype != np.float32 or not (logits.flags.c_contiguous and logits.flags.aligned):
            return None
        edges = np.empty((self.n_students, self.labels.n_classes), np.float32)
        for own, one in zip(edges, self.told, strict=True):
            own[:] = np.inf if one.flags is None else one.flags.thresholds
        return Masks(logits.view(np.float32), edges)

    def _treated(
        self, rows: NDArray[np.int64], asked: NDArray[np.float32], is_open: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | NDArray[np.bool_]]:
        """Return targets and weights [student or 1, clip, class], told one by one."""
        target = asked[None]
        if any(one.changes_targets for one in self.told):
            target = target.repeat(self.n_students, axis=0)
        kind = np.bool_ if all(one.is_mask for one in self.told) else np.float32
        weight = np.ones((self.n_students, *asked.shape), kind)
        scored = self._scored(is_open, rows)
        for student, one in enumerate(self.told):
            if one.flags is not None:
                own = target[min(student, len(target) - 1)], weight[student]
                _treat(one, scored[one.flags.scores.digest], one.flags.listed_states(rows), *own)
        return target, weight

    def _scored(self, is_open: NDArray[np.bool_], rows: NDArray[np.int64]) -> dict[str, _Scored]:
        """Return what every teacher says of some clips, by its digest."""
        found = {}
        with np.errstate(over="ignore"):  # too large for float32 is above every threshold
            for scores, logits in self._matrices.items():
                own = logits[self.score_rows[rows]].astype(np.float32, order="C", copy=False)
                found[scores] = _Scored(own, is_open)
        return found


@dataclass(frozen=True)
class _Scored:
    """A teacher's scores of a batch [clip, class], and which labels are open to doubt."""

    logits: NDArray[np.float32]
    is_open: NDArray[np.bool_]

    @cached_property
    def outputs(self) -> NDArray[np.float32]:
        outputs: NDArray[np.float32] = expit(self.logits)
        return outputs


def _treat(
    told: Told,
    scored: _Scored,
    listed: NDArray[np.int8] | None,
    target: NDArray[np.float32],
    weight: NDArray[np.float32] | NDArray[np.bool_],
) -> None:
    """Write the weights of a batch's labels [clip, class], and its flagged ones into targets."""
    assert told.flags is not None
    masks = Masks(scored.logits, np.ascontiguousarray(told.flags.thresholds)[None])
    (is_kept,) = masks.of(np.arange(len(target)), scored.is_open)
    if listed is None and weight.dtype == np.bool_:  # all that becomes of them is a mask
        weight[...] = is_kept
    else:
        is_flagged = ~is_kept if listed is None else ~is_kept & (listed == PRESENT)
        treat(told.treatment, is_flagged, scored.outputs, target, weight)


@dataclass(frozen=True)
class FlagSources:
    """All that flags of one train set can be made from.

    ``rows`` are the places of the labels' clips in the score matrices; ``truth`` is parallel to
    ``labels`` and known for simulated data only. ``flags_folder`` may hold thresholds already.
    """

    labels: LabelSet
    rows: NDArray[np.int64]
    teacher: TeacherScores
    ontology: Ontology
    truth: LabelSet | None = None
    flags_folder: Path | None = None


def find_flags(sources: FlagSources, policy: str, points: Sequence[float]) -> dict[float, Flags]:
    """Find a policy's flags at several operating points.

    A policy that amounts to a threshold per class gives thresholds, any other a list. ``random``
    is ``percentile`` by a teacher that knows nothing; ``ancestors`` flags the labels that the class
    tree implies. A probability of 0 (``global``) flags all that has a score.
    """
    if policy in ("percentile", "random"):
        found = _thresholds(sources, points)
        by_point = zip(points, found.values, strict=True)
        return {point: Flags(sources.teacher, values) for point, values in by_point}
    if policy == "global":
        every = np.ones(sources.labels.n_classes, np.float32)
        return {point: Flags(sources.teacher, logit(np.float32(point)) * every) for point in points}
    if policy in ("all", "ancestors", "oracle"):
        listed = None if policy == "all" else _LISTS[policy](sources)
        return dict.fromkeys(points, Flags(sources.teacher, _everything(sources), listed))
    return {point: _flags_of_policy(sources, policy, point) for point in points}


def _thresholds(sources: FlagSources, points: Sequence[float]) -> Thresholds:
    labels, logits = sources.labels, _logits(sources)
    if sources.flags_folder is None:
        return thresholds(labels, logits, points)
    return stored_thresholds(sources.flags_folder, labels, logits, sources.teacher.digest, points)


def _flags_of_policy(sources: FlagSources, policy: str, point: float) -> Flags:
    options: dict[str, Any] = {}
    if policy == "psla":
        policy, options = "positives_quantile", {"gate": sources.ontology}
    if policy in BY_PERCENT:
        options["n_flags"] = int(point / 100 * sources.labels.n_implicit.sum())
    elif policy in KNOBS:
        options[KNOBS[policy]] = point
    flags = flag(sources.labels, _logits(sources), policy, with_chance=False, **options)
    if "gate" in options:
        rows = flags.select("clip_id", "class_id", present=pl.lit(True))
        clip_ids, class_ids = sources.labels.clip_ids, sources.labels.class_ids
        listed = LabelSet.from_rows(rows, clip_ids, class_ids)
        return Flags(sources.teacher, _everything(sources), listed)
    return Flags(sources.teacher, lowest_flagged(flags, sources.labels.class_ids))


def lowest_flagged(flags: pl.DataFrame, class_ids: Sequence[str]) -> NDArray[np.float32]:
    """Return thresholds float32 [class] just below the lowest flag of each class; +inf without.

    A label that ties with the lowest flag is then above the threshold too.
    """
    lowest = flags.group_by("class_id").agg(pl.col("logit").min())
    classes = pl.DataFrame({"class_id": list(class_ids)}, schema={"class_id": pl.String})
    values = classes.join(lowest, on="class_id", how="left", maintain_order="left")["logit"]
    edges = values.fill_null(np.inf).to_numpy().astype(np.float32)
    return np.where(np.isinf(edges), edges, np.nextafter(edges, np.float32(-np.inf)))


def _logits(sources: FlagSources) -> NDArray[np.floating]:
    logits = sources.teacher.open()
    return logits if len(sources.rows) == len(logits) else logits[sources.rows]


def _everything(sources: FlagSources) -> NDArray[np.float32]:
    return np.full(sources.labels.n_classes, -np.inf, np.float32)


def _missing(sources: FlagSources) -> LabelSet:
    """Return the labels that the truth has and the labels lack."""
    if sources.truth is None:
        raise EarmarkError("an oracle needs the truth, which only simulated datasets have")
    truth, given = sources.truth, sources.labels
    places = truth.clip_rows * truth.n_classes + truth.columns
    known = given.clip_rows * given.n_classes + given.columns
    is_missing = truth.present & ~np.isin(places, known)
    return LabelSet.from_rows(truth.rows().filter(is_missing), truth.clip_ids, truth.class_ids)


def _implied(sources: FlagSources) -> LabelSet:
    """Return the implicit labels of ancestors of positives."""
    found, given = find_implied(sources.labels, sources.ontology), sources.labels
    implied = found.table().filter(pl.col("kind") == "implied").select("clip_id", "class_id")
    rows = implied.with_columns(present=pl.lit(True))
    return LabelSet.from_rows(rows, given.clip_ids, given.class_ids)


_LISTS = {"ancestors": _implied, "oracle": _missing}
"""Policies that list labels, whatever they score."""
