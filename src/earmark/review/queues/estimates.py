"""How many labels are missing, by the random sample that goes along with every queue that learns.

The number is a *difference estimate*. In strata of which every label is a candidate, the chances
are summed up and the sample's answers correct the sum: each by what was heard less its chance,
times the labels that it stands for, with chances from models that did not hear it. In other strata
the sample alone counts. So it is right on average whatever the model chose or believes.

Its 90 % interval holds every number that the estimate does not speak against (a *score interval*):
were so many missing, how far would the estimate stray by the luck of the draw? That depends on
where they are. A line fitted to the sample, log-odds against those of the first chance, says so,
but for a share that is taken to be spread over all labels alike: answers from the strata that hold
nearly all labels are few, and what the scores know nothing of is there. The luck of few and heavy
answers leans to one side, which the ends allow for (Cornish and Fisher). The upper end is never
nearer than one more surprise than were heard would put it: on what people heard, the score interval
alone held too seldom there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtri, stdtrit

from earmark.flags import LEAST_ANSWERS
from earmark.review.queues.candidates import Candidates, Ints
from earmark.review.queues.heard import HeardSoFar, Mask, Numbers, learn_from, stands_for

N_FOLDS = 5
"""Parts of the answers; the chances of each are learnt from the others."""

REACH = float(ndtri(0.95))
"""Of 90 % intervals, in sds."""

SPREAD_SHARE = 0.3
"""Share of the missing labels that is taken to be spread over all labels alike."""

SLOPE, SLOPE_SD, LEVEL_SD = 0.6, 0.2, 5.0
"""What is believed of the fitted line before any answer; chances are surer than they should be."""

LEAST_REACH, MOST_SKEW = 0.8, 3.0
"""Bounds of the correction for skewness: the nearest end, in sds, and the skewness that counts."""

LEAST_OF_SOME = 10
"""Answers of the sample about some labels, such as the flags, from which on it speaks of them."""

LEAST_FREEDOM = 5.0
"""Degrees of freedom of an interval at least."""

N_STEPS = 400
"""Numbers that are tried, spaced evenly, and as many by their logarithms."""

Interval = tuple[float, float, float]


@dataclass(frozen=True)
class Cells:
    """Strata, or parts of them, of which something was heard: all float64 [cell].

    ``n_labels`` and ``n_heard`` count labels and the sample's answers, ``log_odds`` are those of
    the mean first chance, and ``n_present`` counts what was heard to be there.
    """

    n_labels: Numbers
    n_heard: Numbers
    n_present: Numbers
    log_odds: Numbers

    def shares(self) -> Numbers:
        """Return the chance that a missing label is a certain one of the cell."""
        level, slope = _fitted_line(self)
        by_line = expit(level + slope * self.log_odds)
        shares = by_line / (self.n_labels @ by_line)
        return np.asarray((1 - SPREAD_SHARE) * shares + SPREAD_SHARE / self.n_labels.sum())


def estimate(
    candidates: Candidates, heard: HeardSoFar, wanted: Sequence[Mask]
) -> list[Interval | None]:
    """Estimate how many of some labels are missing, for each set of labels [label] wanted.

    None where the sample is too small, or too little of it is among those wanted.
    """
    is_sampled = np.isfinite(stands_for(candidates, heard)[heard.places])
    if is_sampled.sum() < LEAST_ANSWERS:
        return [None] * len(wanted)
    fold = np.random.default_rng(0).permutation(len(heard)) % N_FOLDS
    is_whole = candidates.is_whole[candidates.strata]
    by_others, totals = np.empty(len(heard)), np.zeros(len(wanted))
    for part in range(N_FOLDS):
        chances = candidates.chances(learn_from(candidates, heard, fold != part)) * is_whole
        mine = fold == part
        by_others[mine] = chances[heard.places[mine]]
        totals += [chances[one].sum(dtype=np.float64) / N_FOLDS for one in wanted]
    surprises = heard.present - by_others
    return [
        _estimate_one(candidates, heard, one, total, surprises, is_sampled)
        for one, total in zip(wanted, totals, strict=True)
    ]


def _estimate_one(
    candidates: Candidates,
    heard: HeardSoFar,
    wanted: Mask,
    total: float,
    surprises: Numbers,
    is_sampled: Mask,
) -> Interval | None:
    """Correct a sum of chances by the sample's surprises, with the interval."""
    is_own = wanted[heard.places]
    sampled = is_sampled & is_own
    if sampled.sum() < LEAST_OF_SOME:
        return None
    cells, own = _cells(candidates, heard, wanted, sampled)
    each = cells.n_labels / cells.n_heard
    middle = float(total + (each[own] * surprises[sampled]).sum())
    known = heard.present[is_own]
    least, most = float(known.sum()), float(cells.n_labels.sum() - (1 - known).sum())
    middle = min(max(middle, least), most)
    left = (1 - cells.n_heard / cells.n_labels).clip(0)
    variances = (left * each**2)[own] * _squares(heard.present[sampled], surprises[sampled])
    if wanted.all():
        low, high = score_ends(cells, middle)
        # One more surprise than were heard, as heavy as the answers are.
        surprise = float(each[own] @ each[own] / each[own].sum())
        high = max(high, middle + REACH * float(np.sqrt(variances.sum() + surprise**2)))
    else:
        # Flags are few and half of them right: what strayed says how far the estimate does.
        reach = _reach(variances)
        low, high = middle - reach, middle + reach
    return min(max(low, least), middle), middle, max(min(high, most), middle)


def _cells(
    candidates: Candidates, heard: HeardSoFar, wanted: Mask, sampled: Mask
) -> tuple[Cells, Ints]:
    """Return the strata of some labels as cells, and the cell of each of the sample's answers."""
    strata = candidates.strata[heard.places[sampled]]
    sizes = candidates.stratum_sizes
    if not wanted.all():
        sizes = np.bincount(candidates.strata[wanted], minlength=len(sizes))
    cell_of = _joined(np.bincount(strata, minlength=len(sizes)))
    own, n_cells = cell_of[strata], int(cell_of.max()) + 1

    def summed(places: Ints, values: Numbers) -> Numbers:
        return np.bincount(places, values, n_cells).astype(np.float64)

    n_labels = summed(cell_of, sizes.astype(np.float64))
    log_odds = summed(cell_of, sizes * candidates.stratum_log_odds) / np.maximum(n_labels, 1)
    n_heard, n_present = (summed(own, one) for one in (np.ones(len(own)), heard.present[sampled]))
    return Cells(n_labels, n_heard, n_present, log_odds), own


def _reach(variances: Numbers) -> float:
    """Return how far a sum reaches whose parts have such variances, by Student's t.

    Its degrees of freedom are as many equal parts as would vary as much.
    """
    whole = float(variances.sum())
    n_equal = whole**2 / max(float((variances**2).sum()), 1e-300)
    return float(stdtrit(max(n_equal, LEAST_FREEDOM), 0.95) * np.sqrt(whole))


def _squares(present: Numbers, surprises: Numbers) -> Numbers:
    """Return squared surprises, or the doubt of the chances where that is more in all.

    Answers may all be as expected by luck.
    """
    chances = present - surprises
    doubt, squares = chances * (1 - chances), surprises**2
    return np.asarray(squares if squares.sum() > doubt.sum() else doubt)


def score_ends(cells: Cells, middle: float) -> tuple[float, float]:
    """Return the least and the largest number that an estimate does not speak against."""
    n_labels = cells.n_labels.sum()
    tried = np.append(np.geomspace(0.5, n_labels, N_STEPS), np.linspace(0, n_labels, N_STEPS))
    share = np.minimum(np.multiply.outer(tried, cells.shares()), 1)  # [number, cell]
    each, left = cells.n_labels / cells.n_heard, 1 - cells.n_heard / cells.n_labels
    spread = cells.n_heard * left.clip(0) * share * (1 - share)
    sd = np.sqrt(spread @ each**2)
    skew = spread * (1 - 2 * share) @ each**3 / np.maximum(sd, 1e-9) ** 3
    lean = skew.clip(-MOST_SKEW, MOST_SKEW) * (REACH**2 - 1) / 6
    is_held = middle - tried <= (REACH + lean).clip(LEAST_REACH) * sd
    is_held &= tried - middle <= (REACH - lean).clip(LEAST_REACH) * sd
    held = tried[is_held]
    return (float(held.min()), float(held.max())) if len(held) else (middle, middle)


def _fitted_line(cells: Cells) -> tuple[float, float]:
    """Fit the log-odds of being there to those of the first chance, by Newton's steps."""
    found = np.array([0.0, SLOPE])
    belief = np.array([LEVEL_SD, SLOPE_SD]) ** -2.0
    design = np.stack([np.ones_like(cells.log_odds), cells.log_odds], axis=1)
    for _ in range(30):
        shares = expit(design @ found)
        off = design.T @ (cells.n_present - cells.n_heard * shares)
        off -= belief * (found - [0.0, SLOPE])
        weights = cells.n_heard * shares * (1 - shares)
        step = np.linalg.solve((design.T * weights) @ design + np.diag(belief), off)
        found = found + step.clip([-2, -0.5], [2, 0.5])
    return float(found[0]), float(found[1].clip(0.2, 1.5))


def _joined(n_heard: Ints) -> Ints:
    """Return the cell [stratum] of each: one not heard joins the next that was, or the last.

    >>> _joined(np.array([0, 2, 0, 1, 0])).tolist()
    [0, 0, 1, 1, 1]
    """
    is_heard = (n_heard > 0).astype(np.int64)
    return np.asarray(np.minimum(np.cumsum(is_heard) - is_heard, is_heard.sum() - 1))
