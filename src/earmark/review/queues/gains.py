"""What listening has found, what is left, and what more of it would find.

How many labels are missing, and how many flags are right, the random sample says
(:mod:`earmark.review.queues.estimates`). Flags that were heard are known, so what is left follows
by subtraction.

*What the next answers would find* is the model's word: the chances of what it would draw next,
corrected by how those drawn lately turned out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.flags import VAGUE
from earmark.review.queues.candidates import Candidates, Ints
from earmark.review.queues.estimates import Interval, estimate
from earmark.review.queues.heard import HeardSoFar

N_NEXT = 100
"""Answers that the forecast speaks of."""

N_LATELY, PRIOR_FINDS = 100, 10.0
"""Answers by which chances are corrected in the forecast, and how many finds would agree anyway."""

FEW = 0.15
"""The share of finds among the next answers below which it is time to stop."""

Numbers = NDArray[np.float64]


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
            is_vague = self.missing[2] > VAGUE * self.missing[0]
            parts[0] += (
                f" of {low} to {high}" if is_vague else f" of about {middle} ({low} to {high})"
            )
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
    missing, right = estimate(candidates, heard, [np.ones(len(candidates), bool), is_flag])
    if missing is not None:
        low, middle, high = (max(end, heard.n_found) for end in missing)
        missing = (low, middle, high)
    right_left = None
    if right is not None and n_left:
        n_known = float(heard.present[is_flag[heard.places]].sum())
        low, middle, high = (min(max((end - n_known) / n_left, 0), 1) for end in right)
        right_left = (low, middle, high)
    found = np.cumsum(heard.present > 0.5, dtype=np.int64)
    (ahead_of_us,) = np.nonzero(~is_heard)
    worth = (chances * candidates.worth[candidates.columns])[ahead_of_us]
    by_worth = ahead_of_us[np.argsort(-worth, kind="stable")[: 10 * N_NEXT]]
    expected = _forecast(heard, chances[by_worth], share)
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
