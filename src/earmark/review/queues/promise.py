"""What every class promises: how many of its next labels would be there, by the chances of now."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from earmark.review.queues.candidates import Candidates
from earmark.review.queues.gains import N_LATELY, N_NEXT, PRIOR_FINDS, Gains
from earmark.review.queues.heard import HeardSoFar

N_JUST_HEARD = 25
"""Answers that tell which classes somebody is listening to."""

LEAST_HEARD, LEAST_OPEN = 50, 25
"""Answers before anything is advised, and labels left in a class that is advised."""

FALLEN, TIMES_MORE = 0.5, 2.0
"""Another class is advised when less than this share is found, and it promises so much more."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Promise:
    """What to expect of the classes [class of the dataset], each by itself.

    ``n_found`` of the ``n_asked`` likeliest labels that were not heard, at most N_NEXT, would be
    there.
    """

    n_found: Numbers
    n_asked: NDArray[np.int64]


def find_promise(
    candidates: Candidates, heard: HeardSoFar, chances: NDArray[np.floating]
) -> Promise:
    """Say what the next labels of every class would hold."""
    is_open = np.ones(len(candidates), bool)
    is_open[heard.places] = False
    (places,) = np.nonzero(is_open)
    columns = candidates.columns[places]
    order = np.lexsort((-chances[places], columns))
    places, columns = places[order], columns[order]
    starts = np.searchsorted(columns, columns)
    is_next = np.arange(len(columns)) - starts < N_NEXT
    own = np.minimum(chances[places[is_next]] * _correction(heard), 1)
    n_asked = np.bincount(columns[is_next], minlength=candidates.n_classes)
    n_found = np.bincount(columns[is_next], own, candidates.n_classes)
    return Promise(n_found.astype(np.float64), n_asked)


def limited_forecast(
    gains: Gains, heard: HeardSoFar, chances: NDArray[np.floating], is_wanted: NDArray[np.bool_]
) -> Gains:
    """Return gains whose forecast speaks of some labels [label] alone, without a sample."""
    is_open = is_wanted.copy()
    is_open[heard.places] = False
    own = np.sort(np.minimum(chances[is_open] * _correction(heard), 1))[::-1][: 10 * N_NEXT]
    found = np.cumsum(own, dtype=np.float64)
    steps = range(N_NEXT, len(found) + 1, N_NEXT)
    ahead = tuple((len(heard) + n, heard.n_found + round(float(found[n - 1]))) for n in steps)
    n_next = float(found[:N_NEXT][-1]) if len(found) else 0.0
    return replace(gains, n_next_found=n_next, forecast=ahead)


def advise_change(
    candidates: Candidates,
    heard: HeardSoFar,
    chances: NDArray[np.floating],
    name: Callable[[int], str],
    only: Collection[int] = (),
) -> str:
    """Name a class that promises far more than those listened to; empty where there is none.

    ``name`` names a class by its number. ``only`` are the classes that are drawn from; without them
    it is those of the last answers.
    """
    if len(heard) < LEAST_HEARD:
        return ""
    just_heard = candidates.columns[heard.places[-N_JUST_HEARD:]]
    own = np.array(sorted(set(only or just_heard.tolist())), np.int64)
    promise = find_promise(candidates, heard, chances)
    is_other = promise.n_asked >= LEAST_OPEN
    is_other[own] = False
    if not is_other.any():
        return ""
    best = int(np.argmax(np.where(is_other, _per_hundred(promise), -1)))
    mine, theirs = (float(_per_hundred(promise)[one].max()) for one in (own, [best]))
    if mine >= FALLEN * N_NEXT or theirs < max(TIMES_MORE * mine, 0.15 * N_NEXT):
        return ""
    told = ", ".join(name(int(one)) for one in own[:2]) + (" and others" if len(own) > 2 else "")
    return (
        f"Change class: of the next {N_NEXT} answers about {told} some {round(mine)} would be "
        f"there, about {name(best)} some {round(theirs)}."
    )


def _per_hundred(promise: Promise) -> Numbers:
    """Return the finds among N_NEXT answers; fewer labels than that are all there is."""
    return np.asarray(promise.n_found / np.maximum(promise.n_asked, LEAST_OPEN) * N_NEXT)


def _correction(heard: HeardSoFar) -> float:
    """Return by how much the chances drawn lately were too low, as the forecast does."""
    lately = np.flatnonzero(np.isfinite(heard.drawn_at))[-N_LATELY:]
    n_right, n_expected = heard.present[lately].sum(), heard.drawn_at[lately].sum()
    return float((n_right + PRIOR_FINDS) / (n_expected + PRIOR_FINDS))
