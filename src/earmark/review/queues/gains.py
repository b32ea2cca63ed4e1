"""What listening has found, what is left, and what more of it would find.

*How many are missing* is a difference estimate. In strata of which every label is a candidate, the
chances are summed up and the sample's answers correct the sum: each by what was heard less its
chance, times the labels that it stands for, with chances from models that did not hear it. In other
strata the sample alone counts. So it is right on average whatever the model chose or believes.

*How many flags are right* is the same sum over the flags; those that were heard are known, so what
is left follows by subtraction.

*What the next answers would find* is the model's word: the chances of what it would draw next,
corrected by how those drawn lately turned out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from earmark.flags import LEAST_ANSWERS, Answers, Model, learn
from earmark.review.queues.candidates import Candidates, Ints

N_FOLDS = 5
"""Parts of the answers; the chances of each are learnt from the others."""

REACH = float(ndtri(0.95))
"""Of 90 % intervals, in sds."""

N_NEXT = 100
"""Answers that the forecast speaks of."""

N_LATELY, PRIOR_FINDS = 100, 10.0
"""Answers by which chances are corrected in the forecast, and how many finds would agree anyway."""

FEW = 0.15
"""The share of finds among the next answers below which it is time to stop."""

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
Interval = tuple[float, float, float]


@dataclass(frozen=True)
class HeardSoFar:
    """What people said of candidates, each label once.

    ``present`` [answer] is 1, 0 or between where they were unsure or at odds; ``drawn_at`` is the
    chance by which a label was drawn, NaN where it was not chosen by its chance. ``passed`` are
    the labels of the sample's turns that have passed, whether their clip could be played or not.
    """

    places: Ints
    present: Numbers
    drawn_at: Numbers
    passed: Ints

    def __len__(self) -> int:
        return len(self.places)

    def is_same(self, other: HeardSoFar) -> bool:
        """Tell whether nothing was answered, changed or taken back in between."""
        pairs = ((self.places, other.places), (self.present, other.present))
        return all(np.array_equal(*pair) for pair in (*pairs, (self.passed, other.passed)))

    @property
    def n_found(self) -> int:
        """Labels that were heard to be there."""
        return int((self.present > 0.5).sum())


@dataclass(frozen=True)
class Gains:
    """What was found by so many answers, and what is to be expected.

    ``missing`` and ``right_left`` (the share of right ones among the ``n_left`` flags that were not
    heard) are low, middle and high of 90 % intervals; None while too little of the sample was
    heard. ``curve`` and ``forecast`` are points (answers, found).
    """

    n_answered: int
    n_found: int
    missing: Interval | None
    n_next_found: float | None
    n_left: int
    right_left: Interval | None
    curve: tuple[tuple[int, int], ...] = ()
    forecast: tuple[tuple[int, int], ...] = ()
    change: str = ""
    """That another class promises more, in a sentence."""

    @property
    def advice(self) -> str:
        """Whether to go on, in a sentence; empty where there is nothing to say."""
        if self.change:
            return self.change
        if self.n_next_found is None or self.n_answered < N_NEXT // 2:
            return ""
        share = self.n_next_found / N_NEXT
        if share >= FEW:
            return ""
        return (
            f"Of the next {N_NEXT} about {round(self.n_next_found)} would be there: most of what "
            "the scores can find is found. This is a good place to stop."
        )

    @property
    def told(self) -> str:
        """All of it in a sentence.

        >>> Gains(300, 214, (1500.0, 1900.0, 2400.0), 71.0, 820, (0.53, 0.58, 0.63)).told
        '214 found of about 1,900 (1,500 to 2,400); the next 100 answers would find about 71; \
precision of what is still flagged 0.58 (0.53 to 0.63)'
        """
        parts = [f"{self.n_found:,} found"]
        if self.missing is not None:
            low, middle, high = (f"{round(end):,}" for end in self.missing)
            parts[0] += f" of about {middle} ({low} to {high})"
        if self.n_next_found is not None:
            parts.append(f"the next {N_NEXT} answers would find about {round(self.n_next_found)}")
        if self.right_left is not None:
            low, middle, high = (f"{end:.2f}" for end in self.right_left)
            parts.append(f"precision of what is still flagged {middle} ({low} to {high})")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the page and other programs read it."""
        return {
            "n_answered": self.n_answered,
            "n_found": self.n_found,
            "missing": self.missing,
            "n_next": N_NEXT,
            "n_next_found": self.n_next_found,
            "n_left": self.n_left,
            "precision_left": self.right_left,
            "curve": self.curve,
            "forecast": self.forecast,
            "advice": self.advice,
            "told": self.told,
        }


def learn_from(
    candidates: Candidates, heard: HeardSoFar, is_used: Mask | None = None
) -> Model | None:
    """Learn chances from answers, or from some of them; None where they are too few."""
    places, present = heard.places, heard.present
    if is_used is not None:
        places, present = places[is_used], present[is_used]
    if len(places) < LEAST_ANSWERS:
        return None
    weights = stands_for(candidates, heard)[places]
    answers = Answers(candidates.rows[places], candidates.columns[places], present, weights)
    return learn(answers, candidates.clues[places], candidates.taught, candidates.n_classes)


def find_gains(
    candidates: Candidates,
    heard: HeardSoFar,
    chances: NDArray[np.floating],
    flags: Ints,
    share: float,
) -> Gains:
    """Say what was found and what is left.

    ``chances`` [label] are those of now, ``flags`` the places of the labels that are flagged, and
    ``share`` that of the sample in what is drawn.
    """
    is_heard = np.zeros(len(candidates), bool)
    is_heard[heard.places] = True
    is_flag = np.zeros(len(candidates), bool)
    is_flag[flags] = True
    n_left = int((is_flag & ~is_heard).sum())
    missing, right = _estimates(candidates, heard, [np.ones(len(candidates), bool), is_flag])
    if missing is not None:
        low, middle, high = (max(end, heard.n_found) for end in missing)
        missing = (low, middle, high)
    right_left = None
    if right is not None and n_left:
        n_known = float(heard.present[is_flag[heard.places]].sum())
        low, middle, high = (min(max((end - n_known) / n_left, 0), 1) for end in right)
        right_left = (low, middle, high)
    found = np.cumsum(heard.present > 0.5, dtype=np.int64)
    expected = _forecast(heard, np.sort(chances[~is_heard])[::-1], share)
    steps = range(N_NEXT, 10 * N_NEXT + 1, N_NEXT)
    known = (n for n in steps if n <= len(expected))
    ahead = [(len(heard) + n, heard.n_found + round(expected[n - 1])) for n in known]
    return Gains(
        len(heard),
        heard.n_found,
        missing,
        float(expected[N_NEXT - 1]) if len(expected) >= N_NEXT else None,
        n_left,
        right_left,
        _thinned(found),
        tuple(ahead),
    )


def stands_for(candidates: Candidates, heard: HeardSoFar) -> Numbers:
    """Return how many labels each label [label] of the sample stands for; NaN for others."""
    passed = heard.passed
    is_heard = np.zeros(len(candidates), bool)
    is_heard[heard.places] = True
    passed = passed[is_heard[passed]]
    n_heard = np.bincount(candidates.strata[passed], minlength=len(candidates.stratum_sizes))
    found = np.full(len(candidates), np.nan)
    each = candidates.stratum_sizes / np.maximum(n_heard, 1)
    found[passed] = each[candidates.strata[passed]]
    return found


def _estimates(
    candidates: Candidates, heard: HeardSoFar, wanted: Sequence[Mask]
) -> list[Interval | None]:
    """Estimate how many of some labels are missing, for each set of labels [label] wanted."""
    weights = stands_for(candidates, heard)[heard.places]
    sampled = np.isfinite(weights)
    if sampled.sum() < LEAST_ANSWERS:
        return [None] * len(wanted)
    fold = np.random.default_rng(0).permutation(len(heard)) % N_FOLDS
    is_whole = candidates.is_whole[candidates.strata]
    by_others, totals = np.empty(len(heard)), np.zeros(len(wanted))
    for part in range(N_FOLDS):
        chances = candidates.chances(learn_from(candidates, heard, fold != part)) * is_whole
        mine = fold == part
        by_others[mine] = chances[heard.places[mine]]
        totals += [chances[one].sum(dtype=np.float64) / N_FOLDS for one in wanted]
    sizes = candidates.stratum_sizes
    n_heard = np.bincount(candidates.strata[heard.places[sampled]], minlength=len(sizes))
    left = 1 - n_heard / sizes
    weights = np.where(sampled, weights, 0.0)
    found: list[Interval | None] = []
    for total, one in zip(totals, wanted, strict=True):
        own = weights * one[heard.places]
        if not own.any():
            found.append(None)
            continue
        # Answers may all be as expected by luck: the spread is never less than the chances'.
        doubt = np.maximum(by_others * (1 - by_others), 0)
        shares = left[candidates.strata[heard.places]] * own**2
        spread = max(
            float((shares * squares).sum()) for squares in ((heard.present - by_others) ** 2, doubt)
        )
        # Where few answers speak for most labels, one more surprise than were heard.
        surprise = float((own**2).sum() / own.sum()) if one.all() else 0.0
        middle = float(total + ((heard.present - by_others) * own).sum())
        down, up = (REACH * np.sqrt(v) for v in (spread, spread + surprise**2))
        low, middle, high = (max(end, 0.0) for end in (middle - down, middle, middle + up))
        found.append((low, middle, high))
    return found


def _forecast(heard: HeardSoFar, chances: NDArray[np.floating], share: float) -> Numbers:
    """Return the finds expected by each of the next answers, added up."""
    is_likely = np.isfinite(heard.drawn_at)
    lately = np.flatnonzero(is_likely)[-N_LATELY:]
    n_right, n_expected = heard.present[lately].sum(), heard.drawn_at[lately].sum()
    corrected = (n_right + PRIOR_FINDS) / (n_expected + PRIOR_FINDS)
    n = min(len(chances), 10 * N_NEXT)
    likely = np.minimum(chances[: max(int(n * (1 - share)), 1)] * corrected, 1)
    sample = heard.present[~is_likely]
    by_sample = float((sample.sum() + 1) / (len(sample) + 4))
    steps = np.linspace(0, len(likely), n + 1)[1:]
    cumulated = np.interp(steps, np.arange(len(likely) + 1), np.append(0, np.cumsum(likely)))
    return np.asarray(cumulated + share * by_sample * np.arange(1, n + 1))


def _thinned(found: Ints, n_most: int = 200) -> tuple[tuple[int, int], ...]:
    """Return found against answered, at most so many points."""
    at = np.unique(np.linspace(0, len(found), min(len(found), n_most) + 1).round().astype(int))
    return tuple((int(n), int(found[n - 1]) if n else 0) for n in at)
