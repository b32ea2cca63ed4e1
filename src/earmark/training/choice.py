"""How good a teacher's scores are by the labels as given, and which teacher is the best.

Two numbers. AUC says how often a label that was given outscores one that was not, within a class.
*Hits* are pooled over classes: of n labels that were given, the share that stands among the first n
of the list of all labels, best score first. That is what flags are made of, the top of one list
over all classes; so the choice goes by hits. What else stands at the top may be a missing label, so
hits are below the share of flags that are right, but rank teachers alike. Classes without scores
cannot be found: their labels stand last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.datasets import Workspace, held_out_scores
from earmark.flags import median_auc
from earmark.labels import LabelSet
from earmark.metrics import auc_per_class
from earmark.runs import Way
from earmark.scores import ScoreFolder, logits_of, scored_labels

MOST_CLIPS = 8_192
"""Clips that teachers are compared on."""

LEAST_POSITIVES = 30
"""Positives in the tune split from which on it decides; below, clips of the train split do."""


@dataclass(frozen=True)
class Tried:
    """A way in which a pretrained network was tried as a teacher, and how good it is."""

    way: Way | None
    """None: a network trained from scratch."""
    auc: float
    """Of the class in the middle; NaN where no class can be measured."""
    hits: float
    """Share of the labels given that it finds again; NaN where none was given."""
    n_classes: int
    """Classes that have scores."""


@dataclass(frozen=True)
class Exam:
    """The clips that teachers are compared on: the tune split, or the train split out of fold."""

    labels: LabelSet
    is_tune: bool

    @property
    def told(self) -> str:
        """What the clips are, in words."""
        whose = "of the tune split" if self.is_tune else "that it was not trained on"
        return f"{len(self.labels):,} clips {whose}"

    def logits(self, workspace: Workspace, scores: ScoreFolder) -> NDArray[np.float32]:
        """Return what a teacher said of the clips [clip, class]; ``scores`` are of train."""
        of_exam = held_out_scores(workspace, scores) if self.is_tune else scores
        assert of_exam is not None
        return logits_of(of_exam, self.labels.clip_ids)


def hold_exam(workspace: Workspace, scores: ScoreFolder) -> Exam:
    """Choose the clips on which teachers are compared, given the scores of one of them.

    The tune split, where it has positives enough and was scored; else clips of the train split.
    """
    held_out = held_out_scores(workspace, scores)
    if held_out is not None:
        is_tune = (workspace.clips["split"] == "tune").to_numpy()
        ids = workspace.clips["clip_id"].filter(is_tune)
        tuned = held_out.clip_ids.filter(held_out.clip_ids.is_in(ids.implode()))
        labels = scored_labels(held_out, workspace.labels)
        labels = labels.select(np.flatnonzero(labels.clip_ids.is_in(tuned.implode()).to_numpy()))
        if int(labels.n_positives.sum()) >= LEAST_POSITIVES:
            return Exam(_some(labels), True)
    return Exam(_some(scored_labels(scores, workspace.labels)), False)


def judge_way(workspace: Workspace, way: Way | None, scores: ScoreFolder, exam: Exam) -> Tried:
    """Say how good a teacher's scores are on the clips of an exam."""
    logits = exam.logits(workspace, scores)
    states = exam.labels.states()
    is_scored = np.isfinite(logits).all(axis=0)
    known = np.where(is_scored, logits, 0.0)
    auc = np.where(is_scored, auc_per_class(states, known, negatives="all"), np.nan)
    median = median_auc(auc, (states > 0).sum(axis=0))
    return Tried(way, median, _hits(states, logits), int(is_scored.sum()))


def best_way(tried: list[Tried]) -> Tried:
    """Return the best of several ways, the simplest of those that are as good."""
    return max(tried, key=lambda one: -1.0 if np.isnan(one.hits) else one.hits)


def _hits(states: NDArray[np.int8], logits: NDArray[np.float32]) -> float:
    """Return the share of the n given labels that stand among the first n of all."""
    is_given = (states > 0).ravel()
    n = int(is_given.sum())
    if not n:
        return float("nan")
    scores = np.where(np.isnan(logits), -np.inf, logits).ravel()
    is_first = scores >= np.partition(scores, len(scores) - n)[len(scores) - n]
    is_first &= np.isfinite(scores)
    return float((is_given & is_first).sum() / max(n, int(is_first.sum())))


def _some(labels: LabelSet) -> LabelSet:
    """Return at most MOST_CLIPS of the clips, spread over all."""
    n_clips = min(len(labels), MOST_CLIPS)
    return labels.select(np.linspace(0, len(labels), n_clips, endpoint=False, dtype=np.int64))
