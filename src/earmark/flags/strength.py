"""How good the first flags can be, told from the labels that were given, before anyone listens.

A missing label is one like those that were given, of which nobody was asked. So among labels that
score as high as the first hundred flags, those that were given tell how many of the hundred are
right: if one is missing for every three that were given, a third as many. How many are missing is
not known, and at the top of a list it is fewer than elsewhere, because teachers score classes high
whose labels are nearly all given. So the assumption is a low one: a good teacher is better than is
said here, a weak one is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_FIRST = 100
"""Flags that a newcomer listens to before giving up."""

GIVEN_PER_MISSING = 3
"""Labels given for every one that is missing, as is assumed."""

GIVEN_PER_FLAG = 5
"""Labels given for every flag that is looked at, where there are few of them."""

WEAK_SHARE = 0.2
"""Right flags, under that assumption, below which a teacher is too weak."""

MOST_SHARE = 0.9
"""Share above which nothing more is promised."""


@dataclass(frozen=True)
class Strength:
    """What to expect of the first flags of a teacher's list."""

    n_first: int
    """Flags that it is about."""
    n_given: int
    """Labels that were given and score as high as those."""
    base_rate: float
    """Share of given labels among all."""

    @property
    def expected_right(self) -> float:
        """Share of the first flags that are right, if one is missing for every three given."""
        return min(self.n_given / GIVEN_PER_MISSING / self.n_first, 1.0) if self.n_first else 0.0

    @property
    def times_chance(self) -> float:
        """How many times better than labels drawn at random that is."""
        by_chance = self.base_rate / GIVEN_PER_MISSING
        return self.expected_right / by_chance if by_chance else float("nan")

    @property
    def is_weak(self) -> bool:
        """Whether listening to the flags would be a waste of time."""
        return self.expected_right < WEAK_SHARE

    @property
    def told(self) -> str:
        """What to expect, in a sentence."""
        by_chance = self.base_rate / GIVEN_PER_MISSING
        n_right, n_most, n_by_chance = (
            round(self.n_first * share) for share in (self.expected_right, MOST_SHARE, by_chance)
        )
        about = f"{n_most} or more" if n_right > n_most else f"about {n_right}"
        return (
            f"If one label is missing for every {GIVEN_PER_MISSING} given, {about} of the first "
            f"{self.n_first} flags are right (by chance {n_by_chance})"
        )


def find_strength(
    states: NDArray[np.int8], logits: NDArray[np.floating], n_first: int | None = None
) -> Strength:
    """Say what to expect of the first flags, from labels [clip, class] and scores out of fold.

    They are a hundred, or fewer where few labels were given: one for five of those, because more
    are hardly missing. NaN scores are of classes that the teacher does not know.

    >>> states = np.array([[1, 0, 0], [1, 0, 0]], np.int8)
    >>> find_strength(states, np.array([[3.0, 2, 0], [-1, 1, 0]]), n_first=2).n_given
    1
    """
    is_scored = np.isfinite(logits)
    implicit = logits[is_scored & (states == 0)]
    if n_first is None:
        n_first = min(N_FIRST, max(int((states > 0).sum()) // GIVEN_PER_FLAG, 1))
    n_first = min(n_first, len(implicit))
    if not n_first:
        return Strength(0, 0, 0.0)
    edge = np.partition(implicit, len(implicit) - n_first)[len(implicit) - n_first]
    given = logits[is_scored & (states > 0)]
    return Strength(n_first, int((given >= edge).sum()), float((states > 0).mean()))
