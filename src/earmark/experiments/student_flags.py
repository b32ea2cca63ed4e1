"""What students are trained on: clips, labels, and the flags and treatment of every strategy.

The flags of a policy are those of :func:`earmark.flags.flag`, which ``earmark flag`` asks too, with
the class tree and with what people answered. Students of a sweep and the public
:class:`~earmark.experiments.supervision.Supervision` come by theirs here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import logit

from earmark.audio import FrameStore
from earmark.datasets import ReadableClips, Workspace, read_labels, readable_clips
from earmark.errors import EarmarkError, quoted
from earmark.experiments.strategies import BASELINE, Strategy
from earmark.flags import POLICIES, Answers, flag, stored_thresholds, thresholds
from earmark.labels import LabelSet, Ontology, find_implied, subset
from earmark.review import read_heard
from earmark.scores import MappedScores, ScoreFolder, TeacherScores, check_aligned
from earmark.storage import digest, file_sha256, write_array
from earmark.training import Flags, LabelTreatment, TargetProvider


@dataclass(frozen=True)
class FlagSources:
    """All that flags of some clips can be made from.

    ``rows`` are the places of the labels' clips in the score matrices; ``chances`` returns the
    log-odds that labels are missing, and ``random`` scores by a teacher that knows nothing, for a
    seed. ``truth`` is parallel to ``labels``; ``answers`` are what people said of these labels;
    ``flags_folder`` may hold thresholds already. For ``rulings`` and ``recordings`` see
    :class:`~earmark.training.TargetProvider`.
    """

    labels: LabelSet
    rows: NDArray[np.int64]
    teacher: Callable[[], TeacherScores]
    chances: Callable[[], TeacherScores]
    random: Callable[[int], TeacherScores]
    ontology: Ontology
    answers: Answers | None = None
    truth: LabelSet | None = None
    flags_folder: Path | None = None
    rulings: LabelSet | None = None
    recordings: NDArray[np.int64] | None = None


StrategyPoint = tuple[Strategy, float, int]
"""A strategy, its operating point, and the seed that says what ``random`` draws."""


def build_targets(sources: FlagSources, points: Sequence[StrategyPoint]) -> TargetProvider:
    """Return the targets of one student a point; all percentages share a pass over the scores."""
    groups: dict[tuple[str, bool, int], set[float]] = {}
    for strategy, point, seed in points:
        if (key := _scores_key(strategy, point, seed)) is not None:
            groups.setdefault(key, set()).add(point)
    flags = {
        key: find_flags(sources, _scores(sources, *key), key[0], sorted(group))
        for key, group in groups.items()
    }
    treatments = []
    for strategy, point, seed in points:
        key = _scores_key(strategy, point, seed)
        treatments.append(
            LabelTreatment(
                None if key is None else flags[key][point],
                strategy.treatment or "mask",
                strategy.loss,
                strategy.loss_point(point),
            )
        )
    return TargetProvider(
        sources.labels, tuple(treatments), sources.rows, sources.rulings, sources.recordings
    )


def _scores_key(strategy: Strategy, point: float, seed: int) -> tuple[str, bool, int] | None:
    """Return policy, whether it goes by chances, and seed; None where no label is flagged."""
    if strategy.policy is None or (strategy == BASELINE and point == 0):
        return None
    return strategy.policy, strategy.by_chance, seed if strategy.policy == "random" else 0


def _scores(sources: FlagSources, policy: str, by_chance: bool, seed: int) -> TeacherScores:
    if policy == "random":
        return sources.random(seed)
    return sources.chances() if by_chance else sources.teacher()


def find_flags(
    sources: FlagSources, scores: TeacherScores, policy: str, points: Sequence[float]
) -> dict[float, Flags]:
    """Find a policy's flags at several operating points.

    ``percentile`` and ``global`` give thresholds, any other policy a list. ``random`` is
    ``percentile`` by a teacher that knows nothing; ``ancestors`` flags the labels that the class
    tree implies. A probability of 0 (``global``) flags all that has a score.
    """
    labels = sources.labels
    if policy in ("percentile", "random"):
        logits = _logits(sources, scores)
        if sources.flags_folder is None:
            found = thresholds(labels, logits, points)
        else:
            folder = sources.flags_folder
            found = stored_thresholds(folder, labels, logits, scores.digest, points)
        by_point = zip(points, found.values, strict=True)
        return {point: Flags(scores, values) for point, values in by_point}
    every = np.ones(labels.n_classes, np.float32)
    if policy == "global":
        return {point: Flags(scores, logit(np.float32(point)) * every) for point in points}
    if policy in ("all", "ancestors", "oracle"):
        listed = None if policy == "all" else _LISTS[policy](sources)
        return dict.fromkeys(points, Flags(scores, -np.inf * every, listed))
    return {
        point: Flags(scores, -np.inf * every, _flagged(sources, scores, policy, point))
        for point in points
    }


def _flagged(sources: FlagSources, scores: TeacherScores, policy: str, point: float) -> LabelSet:
    """List what :func:`earmark.flags.flag` flags at an operating point."""
    options: dict[str, Any] = {}
    if policy == "psla":
        policy, options = "positives_quantile", {"gate": sources.ontology}
    option = POLICIES[policy].point
    if option == "n_flags":
        options[option] = int(point / 100 * sources.labels.n_implicit.sum())
    elif option is not None:
        options[option] = point
    flags = flag(
        sources.labels,
        _logits(sources, scores),
        policy,
        with_chance=False,
        ontology=sources.ontology,
        answers=sources.answers,
        **options,
    )
    rows = flags.select("clip_id", "class_id", present=pl.lit(True))
    return LabelSet.from_rows(rows, sources.labels.clip_ids, sources.labels.class_ids)


def _logits(sources: FlagSources, scores: TeacherScores) -> NDArray[np.floating]:
    logits = scores.open()
    return logits if len(sources.rows) == len(logits) else logits[sources.rows]


def _missing(sources: FlagSources) -> LabelSet:
    """Return the labels that the truth has and the labels lack."""
    if sources.truth is None:
        raise EarmarkError("an oracle needs the truth, which only simulated datasets have")
    truth, given = sources.truth, sources.labels
    places = truth.clip_rows * truth.n_classes + truth.columns
    given_places = given.clip_rows * given.n_classes + given.columns
    is_missing = truth.present & ~np.isin(places, given_places)
    return LabelSet.from_rows(truth.rows().filter(is_missing), truth.clip_ids, truth.class_ids)


def _implied(sources: FlagSources) -> LabelSet:
    """Return the implicit labels of ancestors of positives."""
    implied, labels = find_implied(sources.labels, sources.ontology), sources.labels
    rows = implied.table().filter(kind="implied").select("clip_id", "class_id")
    rows = rows.with_columns(present=pl.lit(True))
    return LabelSet.from_rows(rows, labels.clip_ids, labels.class_ids)


_LISTS = {"ancestors": _implied, "oracle": _missing}
"""Policies that list labels, whatever they score."""


def draw_scores(teacher: NDArray[np.floating], seed: int) -> NDArray[np.float32]:
    """Draw scores [clip, class] at random for the classes that a teacher scored; NaN elsewhere."""
    drawn = np.random.default_rng(seed).random(teacher.shape, np.float32)
    drawn[:, np.isnan(teacher[0])] = np.nan
    return drawn


def open_train_set(
    workspace: Workspace, store: FrameStore, share: float, labels: str, scores: ScoreFolder
) -> tuple[ReadableClips, FlagSources]:
    """Choose the clips of a share of the train split, and open what their flags are made from.

    ``labels`` are named as :func:`read_labels` has it; ``scores`` are the teacher's of the whole
    train split.
    """
    given = readable_clips(workspace, store, "train")
    check_aligned(scores, given.labels)
    rows = np.flatnonzero(subset(given.labels, given.sources, share))

    def chosen(every: LabelSet) -> ReadableClips:
        return readable_clips(workspace, store, "train", every).select(rows)

    named = read_labels(workspace, labels)
    clips = chosen(named.labels)
    judged = read_heard(workspace, clips.labels)
    teacher = MappedScores(scores.folder / "logits.npy", scores.digest)
    sources = FlagSources(
        clips.labels,
        rows,
        lambda: teacher,
        cache(partial(_learnt_chances, workspace, teacher)),
        partial(_random_scores, workspace, teacher),
        workspace.ontology,
        None if judged is None else judged.answers,
        None if workspace.truth is None else chosen(workspace.truth).labels,
        workspace.flags_folder,
        None if named.rulings is None else chosen(named.rulings).labels,
        clips.recordings,
    )
    return clips, sources


def _learnt_chances(workspace: Workspace, teacher: TeacherScores) -> MappedScores:
    """Return the learnt chances, which may take the place of the teacher's scores."""
    path, expected = workspace.chances_path, teacher.open().shape
    command = f"`earmark flag {quoted(workspace.root)} --chances` learns them"
    if not path.exists():
        raise EarmarkError(f"{path}: there are no learnt chances of missing labels; {command}")
    chances = MappedScores(path, file_sha256(path))
    if chances.open().shape != expected:
        raise EarmarkError(
            f"{path}: learnt chances of {chances.open().shape} clips and classes, and not of the "
            f"{expected} that the teacher scored; {command} anew"
        )
    return chances


def _random_scores(workspace: Workspace, teacher: TeacherScores, seed: int) -> MappedScores:
    """Return scores drawn at random for the classes that the teacher scored, written once."""
    logits = teacher.open()
    is_unscored = np.isnan(logits[0])
    drawn_digest = digest("random scores", seed, list(logits.shape), is_unscored.tolist())
    path = workspace.random_scores_path(f"seed{seed}-{drawn_digest}")
    if not path.exists():
        write_array(path, draw_scores(logits, seed))
    return MappedScores(path, drawn_digest)
