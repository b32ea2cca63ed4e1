"""What is asked next: the likeliest labels by now, and the next turns of the sample.

By class, a block holds runs of labels of one class each: the classes with most to find among the
labels that stand highest. By clip, it holds clips with the most missing labels to be expected among
a few that are offered. Either way the sample's labels stand among them and look like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.review.queues.candidates import Candidates, Ints

LOOK_AHEAD = 2
"""How many times the labels of a block are looked at to find those that share a class."""

Chances = NDArray[np.floating]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Portion:
    """Labels for a block, by their places among the candidates, in the order of asking.

    ``is_sample`` [label] tells those of the sample. ``n_turns`` of the sample have passed, those
    included whose label was heard before.
    """

    places: Ints
    is_sample: Mask
    n_turns: int


def turns_due(share: float, n_drawn: int, n_more: int) -> int:
    """Return how many turns of the sample should have passed once ``n_more`` labels are drawn.

    >>> turns_due(0.12, 0, 25), turns_due(0.12, 25, 25), turns_due(0.12, 50, 25)
    (3, 6, 9)
    """
    return int(np.ceil(share * (n_drawn + n_more) - 1e-9))


def next_by_class(
    candidates: Candidates,
    worth: Chances,
    is_open: Mask,
    turns: tuple[int, int],
    n_labels: int,
) -> Portion:
    """Choose labels in runs of one class, the class with most to find first.

    ``worth`` [label] is what finding out is worth, by now; ``is_open`` [label] which were not
    drawn yet. The sample's ``turns`` (from, to) come along.
    """
    sampled, n_turns = _turns(candidates, is_open, turns)
    is_free = is_open.copy()
    is_free[sampled] = False
    n_likely = max(n_labels - len(sampled), 0)
    best = _best(worth, is_free, LOOK_AHEAD * n_likely)
    columns = candidates.columns[best]
    sums = np.bincount(columns, weights=worth[best], minlength=candidates.n_classes)
    order = np.lexsort((-worth[best], columns, -sums[columns]))
    likely = best[order][:n_likely]
    return _in_runs(candidates, likely, sampled, n_turns)


def next_by_clip(
    candidates: Candidates,
    worth: Chances,
    is_open: Mask,
    turns: tuple[int, int],
    n_clips: int,
    n_offers: int,
) -> Portion:
    """Choose clips with the most to find, and for each of them the labels to offer.

    Labels of one clip follow each other, the likeliest first.
    """
    sampled, n_turns = _turns(candidates, is_open, turns)
    (free,) = np.nonzero(is_open)
    by_clip = free[np.lexsort((-worth[free], candidates.rows[free]))]
    rows = candidates.rows[by_clip]
    is_first = np.diff(rows, prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    place = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    offered = by_clip[place < n_offers]
    n_rows = int(candidates.rows.max(initial=-1)) + 1
    expected = np.bincount(candidates.rows[offered], worth[offered], n_rows)
    own = list(dict.fromkeys(candidates.rows[sampled].tolist()))
    expected[own] = -1
    n_likely = max(n_clips - len(own), 0)
    best = np.argsort(-expected, kind="stable")[:n_likely]
    clips = own + best[expected[best] > 0].tolist()
    chosen: list[int] = []
    for clip in _spread(clips, len(own)):
        mine = by_clip[slice(*np.searchsorted(rows, (clip, clip + 1)))]
        asked = [label for label in sampled.tolist() if candidates.rows[label] == clip]
        others = [label for label in mine.tolist() if label not in asked]
        both = asked + others[: max(n_offers - len(asked), 0)]
        chosen += sorted(both, key=lambda label: -worth[label])
    places = np.array(chosen, np.int64)
    return Portion(places, np.isin(places, sampled), n_turns)


def next_alike(
    candidates: Candidates, label: int, alike: Chances, is_open: Mask, n_labels: int, n_turns: int
) -> Portion:
    """Choose labels of one class whose clips are most like that of a label.

    ``alike`` [label] says how much; NaN leaves a label out. The sample waits.
    """
    is_wanted = is_open & (candidates.columns == candidates.columns[label]) & np.isfinite(alike)
    places = _best(np.nan_to_num(alike, nan=-np.inf), is_wanted, n_labels)
    places = places[np.argsort(-alike[places], kind="stable")]
    return Portion(places, np.zeros(len(places), bool), n_turns)


def _turns(candidates: Candidates, is_open: Mask, turns: tuple[int, int]) -> tuple[Ints, int]:
    """Return the labels of the sample's next turns that were not drawn yet, and the turns passed.

    A turn whose label was drawn before passes: its answer counts, and costs nothing.
    """
    start, end = turns
    passed = candidates.sample[start : max(end, start)]
    return passed[is_open[passed]], start + len(passed)


def _best(worth: Chances, is_free: Mask, n_labels: int) -> Ints:
    """Return the labels that are worth most, in no certain order."""
    (free,) = np.nonzero(is_free)
    if len(free) <= n_labels:
        return free
    return free[np.argpartition(-worth[free], n_labels)[:n_labels]]


def _in_runs(candidates: Candidates, likely: Ints, sampled: Ints, n_turns: int) -> Portion:
    """Put labels of one class together: runs in the order of the likely ones, others at the end."""
    both = np.concatenate([likely, sampled])
    columns = candidates.columns[both]
    first = {column: place for place, column in reversed(list(enumerate(columns.tolist())))}
    order = np.argsort([first[column] for column in columns.tolist()], kind="stable")
    places = both[order]
    return Portion(places, np.isin(places, sampled), n_turns)


def _spread(clips: list[int], n_first: int) -> list[int]:
    """Spread the first few evenly among the others."""
    own, others = clips[:n_first], clips[n_first:]
    step = (len(others) + 1) / (len(own) + 1)
    for turn, clip in enumerate(own):
        others.insert(round(step * (turn + 1)) + turn, clip)
    return others
