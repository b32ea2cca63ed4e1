"""How many labels are missing, by ear: the model's sum, which the sample of answers corrects.

- A class's number is the sum of its chances. How sure that is follows from how sure the model is of
  its weights and of the class's effect, and is widened a little: it is a model.
- The number of all classes is a *difference estimate*: the sum of all chances, and for every answer
  the difference between what was heard and its chance, times the labels that the answer stands for.
  The chances come from models that did not hear the answer. So the total is right on average
  whatever the model, and its interval, by the spread of the differences, shrinks with answers.

Answers that are no sample (the likeliest first) teach the model and correct nothing; with fewer
than twenty others the total is the model's.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from earmark.config import PAPER_DISCARD_PERCENTS
from earmark.flags.chances.chances import Chances, clues_of, find_taught
from earmark.flags.chances.learnt import LEAST_ANSWERS, Model, learn
from earmark.flags.chances.sums import LOWEST, N_STEPS, STEP
from earmark.flags.histograms import Matrix

N_FOLDS = 5
"""Parts of the answers; the chances of each are learnt from the others."""

WIDENED_DOWN, WIDENED_UP = 1.75, 1.25
"""How many times farther down, and up, than the model has it a class's interval reaches: a class of
which nothing is missing looks like many others."""

SAMPLED_CLIPS = 2_048
"""Clips that tell about how sure more answers would be."""

REACH = NormalDist().inv_cdf(0.95)


def count_by_ear(chances: Chances) -> Matrix:
    """Return low, middle and high [3, class] of the number of missing labels of each class."""
    sums = chances.sums
    middle = sums.n_expected
    per = np.maximum(middle, 1e-9)
    # Even if the chances were right, how many of the labels are missing would vary.
    by_chance = sums.doubt / per**2
    down, up = (
        np.exp(REACH * np.sqrt(widened**2 * chances.variances + by_chance))
        for widened in (WIDENED_DOWN, WIDENED_UP)
    )
    found = np.stack([middle / down, middle, middle * up])
    found[:, ~chances.clues.by_score.has_chances] = np.nan
    return np.asarray(np.minimum(found, chances.clues.labels.n_implicit))


def total_by_ear(chances: Chances) -> tuple[float, float, float]:
    """Return low, middle and high of the missing labels of all classes with chances."""
    assert chances.answers is not None
    answers, sums = chances.answers, chances.sums
    by_model = float(sums.n_expected.sum())
    if not answers.has_sample:
        _, middle, high = count_by_ear(chances)
        reach = float(np.nansum(high - middle))  # as if all classes erred alike
        return max(by_model - reach, 0.0), by_model, by_model + reach
    totals, heard_chances, fold = _by_others(chances)
    stands_for = np.where(answers.is_sampled, answers.stands_for, 0.0)
    differences = (answers.present - heard_chances) * stands_for
    # Each part corrects the sum of the chances that were learnt without it.
    by_part = totals + N_FOLDS * np.bincount(fold, weights=differences, minlength=N_FOLDS)
    middle = float(by_part.mean())
    # One more surprise than were heard: few answers speak for most labels, and may all be alike.
    surprise = float((stands_for**2).sum() / max(stands_for.sum(), 1.0))
    spread = float((differences**2).sum())
    down, up = (REACH * float(np.sqrt(one)) for one in (spread, spread + surprise**2))
    return max(middle - down, 0.0), max(middle, 0.0), max(middle + up, 0.0)


def _by_others(chances: Chances) -> tuple[Matrix, Matrix, NDArray[np.int64]]:
    """Return what models say that did not hear a part of the answers, for every part.

    The sum of all chances [part], the chance of every answer by the model that did not hear it
    [answer], and its part [answer].
    """
    assert chances.answers is not None
    answers, found = chances.answers, np.empty(len(chances.answers))
    clues = clues_of(chances.clues, chances.scores, answers.rows, answers.columns)
    fold = np.random.default_rng(0).permutation(len(answers)) % N_FOLDS
    taught = find_taught(chances.clues, chances.scores)

    def without(part: int) -> Model | None:
        others = fold != part
        if others.sum() < LEAST_ANSWERS:
            return None
        return learn(answers.select(others), clues[others], taught, chances.scores.n_classes)

    models = [without(part) for part in range(N_FOLDS)]
    for part, model in enumerate(models):
        mine = fold == part
        if model is None:
            found[mine] = expit(clues[mine, 0])
        else:
            found[mine] = expit(model.log_odds_of(clues[mine], answers.columns[mine]))
    return chances.totals(models), found, fold


def reach_after(chances: Chances, n_more: int) -> float:
    """Return about how far off the total would be, either way, after so many more answers.

    As `earmark review` draws them: as many from each band between operating points. With answers at
    hand the reach of now shrinks by the root of their number.
    """
    answers = chances.answers
    if answers is not None and answers.has_sample:
        low, _, high = total_by_ear(chances)
        n_sampled = int(answers.is_sampled.sum())
        return (high - low) / 2 * float(np.sqrt(n_sampled / (n_sampled + n_more)))
    counts = chances.counts_of_some(SAMPLED_CLIPS) * max(1, chances.scores.n_clips / SAMPLED_CLIPS)
    if not counts.any():  # where implicit labels are so rare
        counts = chances.sums.counts.astype(np.float64)
    levels = expit(LOWEST + STEP * (np.arange(N_STEPS) + 0.5))
    n_above = counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    share_above = n_above / np.maximum(n_above[:, :1], 1)
    edges = np.array(PAPER_DISCARD_PERCENTS) / 100
    band = np.searchsorted(edges, share_above).clip(1, len(edges))
    n_labels, doubt = (
        np.bincount(band.ravel(), weights=weights.ravel(), minlength=len(edges) + 1)
        for weights in (counts, counts * levels * (1 - levels))
    )
    per_band = n_more / np.count_nonzero(n_labels)
    return REACH * float(np.sqrt((n_labels * doubt).sum() / per_band))
