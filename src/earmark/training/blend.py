"""The ways to make a teacher of a pretrained network: compare them, choose one, or blend two.

*Compare.* Scores are evaluated on the labels as given, by two numbers. AUC is how often a label
that was given outscores one that was not, within a class. *Hits* are pooled over classes: of n
labels that were given, the share that is among the first n of the list of all labels, best score
first. Flags are the top of one list over all classes, so the teacher with the most hits is chosen.
Some of the other labels at the top are missing labels, so hits are lower than the share of flags
that are right, but they rank teachers alike. Labels of classes without scores stand last.

*Blend.* Two teachers become one: a probe that was trained on the dataset, and a network's own
classes. A label's score is the log-odds of being labelled, given both scores: a logistic
regression pooled over classes, with one coefficient for the probe's logit and one for the
network's, standardised within each class. Classes that the network does not know have a second
regression, on the probe alone, so that all scores are on one scale. The weights are learnt out of
fold: the weights for a clip's scores come from the other folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from earmark.config import Way
from earmark.datasets import Workspace, held_out_scores, write_scores, write_stamp
from earmark.flags import median_auc
from earmark.labels import LabelSet
from earmark.metrics import auc_per_class
from earmark.scores import UNLOCATED, ScoreFolder, logits_of, scored_labels
from earmark.storage import digest, is_current, seal_path

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
class EvaluationClips:
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
        own_scores = held_out_scores(workspace, scores) if self.is_tune else scores
        assert own_scores is not None
        return logits_of(own_scores, self.labels.clip_ids)


def choose_evaluation_clips(workspace: Workspace, scores: ScoreFolder) -> EvaluationClips:
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
            return EvaluationClips(_some(labels), True)
    return EvaluationClips(_some(scored_labels(scores, workspace.labels)), False)


def evaluate_way(
    workspace: Workspace, way: Way | None, scores: ScoreFolder, clips: EvaluationClips
) -> Tried:
    """Measure how well a teacher's scores rank the labels of the evaluation clips."""
    logits = clips.logits(workspace, scores)
    states = clips.labels.states()
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


_MOST_LABELS = 200_000
"""Labels that are not positive, drawn at random, from which weights are learnt."""

_ROWS_AT_ONCE = 4_096
_RIDGE = 1.0
"""Weight of the squared coefficients against the sum of losses: next to nothing, but never 0."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """What makes one score of two; ``of_both`` [1, probe, own], ``of_probe`` [1, probe]."""

    of_both: Matrix
    of_probe: Matrix
    mean: Matrix
    sd: Matrix

    def blended(self, probe: NDArray[np.floating], own: NDArray[np.floating]) -> Matrix:
        """Return log-odds [clip, class]; ``own`` is NaN where the network does not know a class."""
        standard = (own - self.mean) / self.sd
        alone = self.of_probe[0] + self.of_probe[1] * probe
        both = self.of_both[0] + self.of_both[1] * probe + self.of_both[2] * standard
        return np.asarray(np.where(np.isfinite(standard), both, alone))


def blend_scores(
    workspace: Workspace,
    name: str,
    probe: ScoreFolder,
    own: ScoreFolder,
    fold_of: NDArray[np.int64],
    *,
    seed: int = 0,
) -> ScoreFolder:
    """Write one folder of scores from those of a probe and of a network's own classes.

    ``fold_of`` [clip] are the folds of the probe's clips. The held-out splits are scored with the
    weights of the whole train split.
    """
    run_digest = digest("blend", probe.digest, own.digest, fold_of.tobytes(), seed)
    folder = workspace.scores_folder(name)
    if not is_current(folder, run_digest):
        labels = scored_labels(probe, workspace.labels)
        own_logits = logits_of(own, probe.clip_ids)
        logits = np.empty(probe.logits.shape, np.float32)
        for fold in np.unique(fold_of):
            others, rows = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            weights = learn_weights(labels, probe.logits, own_logits, others, seed)
            for part in _parts(rows):
                logits[part] = weights.blended(probe.logits[part], own_logits[part])
        parts = [(probe.clip_ids, logits, probe.best_patches)]
        held_out, own_held_out = (held_out_scores(workspace, one) for one in (probe, own))
        if held_out is not None and own_held_out is not None:
            rows = np.arange(len(logits))
            weights = learn_weights(labels, probe.logits, own_logits, rows, seed)
            of_both = held_out.logits, logits_of(own_held_out, held_out.clip_ids)
            blended = weights.blended(*of_both).astype(np.float32)
            parts.append((held_out.clip_ids, blended, held_out.best_patches))
        places = [
            np.full(values.shape, UNLOCATED, np.uint16) if best is None else best
            for _, values, best in parts
        ]
        write_scores(
            workspace,
            name,
            pl.concat([clip_ids for clip_ids, _, _ in parts]),
            np.concatenate([values for _, values, _ in parts]),
            np.concatenate(places),
            out_of_fold=probe.out_of_fold and own.out_of_fold,
            digest=run_digest,
            origin=None,
        )
    write_stamp(workspace, seal_path(folder), of_frames=workspace.embeddings_folder)
    return ScoreFolder.open(folder)


def learn_weights(
    labels: LabelSet,
    probe: NDArray[np.floating],
    own: NDArray[np.floating],
    rows: NDArray[np.int64],
    seed: int = 0,
) -> Weights:
    """Learn from the labels of some clips how much each score says; implicit labels count as 0."""
    clips, columns, target, weight = _drawn(labels, rows, seed)
    values = own[clips, columns]
    sample = own[rows[np.linspace(0, len(rows) - 1, min(len(rows), _ROWS_AT_ONCE)).astype(int)]]
    is_known = np.isfinite(sample).all(axis=0)
    mean = np.where(is_known, np.where(is_known, sample, 0).mean(axis=0, dtype=np.float64), 0.0)
    spread = np.where(is_known, sample, 0).std(axis=0, dtype=np.float64)
    sd = np.where(spread > 0, spread, 1.0)
    standard = (values - mean[columns]) / sd[columns]
    probed = np.asarray(probe[clips, columns], np.float64)
    has_both = np.isfinite(standard)
    everyone = np.ones(len(clips), bool)
    has_alone = ~has_both if target[~has_both].any() else everyone
    one = np.ones(len(clips))
    return Weights(
        _fit(np.stack([one, probed, np.where(has_both, standard, 0)], 1), target, weight, has_both),
        _fit(np.stack([one, probed], 1), target, weight, has_alone),
        mean,
        sd,
    )


def _drawn(
    labels: LabelSet, rows: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], Matrix]:
    """Return all positives of some clips and some of their other labels, with weights.

    A label is given by clip and class; the weight is how many labels it stands for.
    """
    chosen = labels.select(rows)
    is_positive = chosen.present
    place = chosen.clip_rows[is_positive] * chosen.n_classes + chosen.columns[is_positive]
    n_all = len(rows) * chosen.n_classes
    rng = np.random.default_rng(seed)
    drawn = rng.choice(n_all, _MOST_LABELS) if n_all > _MOST_LABELS else np.arange(n_all)
    others = np.setdiff1d(drawn, place)
    both = np.concatenate([place, others])
    n_others = n_all - len(place)
    weight = np.concatenate(
        [np.ones(len(place)), np.full(len(others), n_others / max(len(others), 1))]
    )
    target = np.arange(len(both)) < len(place)
    return rows[both // chosen.n_classes], both % chosen.n_classes, target, weight


def _fit(
    features: Matrix, target: NDArray[np.bool_], weight: Matrix, is_used: NDArray[np.bool_]
) -> Matrix:
    """Return the coefficients of a logistic regression [feature]; zeros where nothing is used."""
    x, y, w = features[is_used], target[is_used].astype(np.float64), weight[is_used]
    if not len(x):
        return np.zeros(features.shape[1])

    def loss(coefficients: Matrix) -> tuple[float, Matrix]:
        z = x @ coefficients
        value = (w * (np.logaddexp(0, z) - y * z)).sum() + _RIDGE * (coefficients[1:] ** 2).sum()
        gradient = x.T @ (w * (expit(z) - y))
        gradient[1:] += 2 * _RIDGE * coefficients[1:]
        return float(value), gradient

    start = np.zeros(x.shape[1])
    found: Matrix = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return found


def _parts(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    return (rows[first : first + _ROWS_AT_ONCE] for first in range(0, len(rows), _ROWS_AT_ONCE))
