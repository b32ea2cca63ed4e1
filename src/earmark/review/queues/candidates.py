"""The labels that a review may ask about: the likeliest, and a random sample of all.

*Candidates* are the labels with the highest chances by what the labels alone teach, with the clues
from which chances are learnt anew while people answer. The *sample* is one fixed random sequence:
all implicit labels are cut into strata by those first chances (the likeliest thousandth, and eleven
further ones, each larger than the last), and strata take turns. Chances and order are functions of
labels, scores and seed, never of answers: whatever the model chooses besides, the first n turns are
a stratified random sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from earmark.errors import EarmarkError
from earmark.flags import LOWEST, STEP, Answers, Chances, Model, Taught, clues_of, find_taught
from earmark.labels import LabelSet
from earmark.review.queues.strata import Keys, Orders
from earmark.runs import open_archive, write_aside

MOST_CANDIDATES = 500_000
"""Labels whose chances are kept up to date."""

N_STRATA, FIRST_STRATUM = 12, 1e-3
"""Strata of the sample, and the share of all labels in the first one."""

TURNS_POWER = 0.25
"""Turns of a stratum go by this power of its size: most labels are in strata where few are missing,
and what is wrong with the flags shows in the small ones."""

MOST_TURNS = 500
"""Labels of a stratum that the sample holds; all together enough for 50,000 answers."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class NoChances(EarmarkError):  # noqa: N818 - named for what it is
    """No class has chances to go by."""


@dataclass(frozen=True)
class Candidates:
    """Labels to ask about; label i is clip ``rows[i]`` and class ``columns[i]`` of the dataset.

    ``clues`` [label, clue] and ``taught`` are what chances are learnt from. ``strata`` [label] are
    numbers from 0, the likeliest first, and ``stratum_sizes`` counts all labels of each, candidates
    or not. ``sample`` [turn] are labels in the fixed random sequence.
    """

    rows: Ints
    columns: Ints
    logits: Floats
    clues: Floats
    strata: Ints
    stratum_sizes: Ints
    sample: Ints
    worth: NDArray[np.float64]
    """What a find of each class [class of the dataset] is worth; 0 for those not asked about."""
    taught: Taught

    @property
    def n_classes(self) -> int:
        """Classes of the dataset."""
        return len(self.worth)

    def __len__(self) -> int:
        return len(self.rows)

    def chances(self, model: Model | None) -> Floats:
        """Return the chances [label] by a model, or before anyone has listened."""
        if model is None:
            return np.asarray(expit(self.clues[:, 0]))
        return np.asarray(expit(model.log_odds_of(self.clues, self.columns)))

    @property
    def n_labels(self) -> int:
        """All labels that the sample stands for."""
        return int(self.stratum_sizes.sum())

    @cached_property
    def is_whole(self) -> NDArray[np.bool_]:
        """Whether every label of a stratum [stratum] is here."""
        found = np.bincount(self.strata, minlength=len(self.stratum_sizes))
        return np.asarray(found >= self.stratum_sizes)

    @cached_property
    def stratum_log_odds(self) -> NDArray[np.float64]:
        """Log-odds of the mean first chance of a stratum's labels here [stratum]."""
        n_strata = len(self.stratum_sizes)
        chances = self.chances(None).astype(np.float64)
        sums = np.bincount(self.strata, chances, n_strata)
        means = sums / np.maximum(np.bincount(self.strata, minlength=n_strata), 1)
        return np.asarray(logit(means.clip(1e-9, 1 - 1e-9)))

    def write(self, path: Path) -> None:
        """Write all of it as one ``.npz`` file."""
        own = {name: getattr(self, name) for name in _ARRAYS}
        own |= {"taught_clues": self.taught.clues, "taught_log_odds": self.taught.log_odds}
        with write_aside(path) as aside, aside.open("wb") as file:
            np.savez(file, **own)

    @classmethod
    def read(cls, path: Path) -> Candidates:
        """Read what :meth:`write` wrote."""
        with open_archive(path) as kept:
            own = {name: kept[name].read() for name in _ARRAYS}
            taught = Taught(kept["taught_clues"].read(), kept["taught_log_odds"].read())
            return cls(**own, taught=taught)


_ARRAYS = ("rows", "columns", "logits", "clues", "strata", "stratum_sizes", "sample", "worth")


def find_candidates(
    labels: LabelSet,
    chances: Chances,
    columns: Ints,
    worth: NDArray[np.float64],
    seed: int,
    answers: Answers | None = None,
    n_most: int = MOST_CANDIDATES,
) -> Candidates:
    """Find the candidates among some classes, and draw the sample.

    ``chances`` are those before anyone has listened, and ``worth`` [class] is what a find is worth.
    Labels with ``answers`` are candidates too, so that chances learn from them. Two passes over the
    scores.
    """
    is_chosen = np.zeros(labels.n_classes, bool)
    is_chosen[columns] = True
    is_chosen &= chances.clues.by_score.has_chances
    counts = chances.sums.counts[is_chosen].sum(axis=0)
    if not counts.sum():
        raise NoChances("the scores know too little of the labels to say which are likely")
    edges, sizes = _cut(counts)
    limit = _edge_of_best(counts, n_most)
    shares = np.minimum((MOST_TURNS + 8 * np.sqrt(MOST_TURNS)) / sizes, 1)
    orders = Orders.of(labels, np.arange(labels.n_classes), seed)
    limits = np.where(shares < 1, shares * 2.0**64, 2.0**64)

    def is_wanted(rows: slice, log_odds: Floats) -> NDArray[np.bool_]:
        lots = orders.of_clips(rows).astype(np.float64)
        is_drawn = lots <= limits[_strata_of(log_odds, edges)]
        return np.asarray(((log_odds >= limit) | is_drawn) & is_chosen & np.isfinite(log_odds))

    listed = chances.where(is_wanted)
    rows, places = listed.rows, listed.columns.astype(np.int64)
    if answers is not None:
        rows, places = _with_answered(rows, places, answers.select(is_chosen[answers.columns]))
    clues = clues_of(chances.clues, chances.scores, rows, places)
    order = np.lexsort((places, rows, -clues[:, 0]))
    rows, places, clues = rows[order], places[order], clues[order]
    strata = _strata_of(clues[:, 0], edges)
    return Candidates(
        rows,
        places,
        np.asarray(clues[:, 1]),
        clues,
        strata,
        sizes,
        _sequence(strata, orders.of_pairs(rows, places), sizes),
        np.where(is_chosen, worth, 0.0),
        find_taught(chances.clues, chances.scores),
    )


def _with_answered(rows: Ints, columns: Ints, answers: Answers) -> tuple[Ints, Ints]:
    """Add the labels that were heard before to some labels."""
    both = np.concatenate([rows, answers.rows]), np.concatenate([columns, answers.columns])
    _, first = np.unique(np.stack(both), axis=1, return_index=True)
    return both[0][first], both[1][first]


def _cut(counts: Ints) -> tuple[NDArray[np.float64], Ints]:
    """Return the lowest log-odds of every stratum, descending, and the strata's sizes.

    ``counts`` [step] are of labels by log-odds; a step is never cut.
    """
    n_above = counts[::-1].cumsum()
    n_labels = int(n_above[-1])
    wanted = np.geomspace(FIRST_STRATUM * n_labels, n_labels, N_STRATA)
    ends = np.unique(np.searchsorted(n_above, np.ceil(wanted)).clip(0, len(counts) - 1))
    sizes = np.diff(n_above[ends], prepend=0)
    edges = LOWEST + STEP * (len(counts) - 1 - ends)
    edges[-1] = -np.inf
    return edges[sizes > 0].astype(np.float64), sizes[sizes > 0].astype(np.int64)


def _strata_of(log_odds: Floats, edges: NDArray[np.float64]) -> Ints:
    """Return the stratum of each of some log-odds; unknown ones are in the last."""
    n_reached = np.searchsorted(edges[::-1], np.nan_to_num(log_odds, nan=-np.inf), side="right")
    return np.asarray((len(edges) - n_reached).clip(0, len(edges) - 1), np.int64)


def _edge_of_best(counts: Ints, n_most: int) -> float:
    """Return the log-odds that at most so many labels reach; -inf where there are no more."""
    n_above = counts[::-1].cumsum()
    if n_above[-1] <= n_most:
        return -np.inf
    return float(LOWEST + STEP * (len(counts) - int(np.searchsorted(n_above, n_most, "right"))))


def _sequence(strata: Ints, lots: Keys, sizes: Ints) -> Ints:
    """Let strata take turns, each in its random order."""
    order = np.lexsort((lots, strata))
    turns = np.empty(len(order), np.int64)
    starts = np.searchsorted(strata[order], np.arange(len(sizes)))
    turns[order] = np.arange(len(order)) - starts[strata[order]]
    (drawn,) = np.nonzero(turns < np.minimum(MOST_TURNS, sizes)[strata])
    rates = (sizes / sizes.max()) ** TURNS_POWER
    when = (turns[drawn] + 0.5) / rates[strata[drawn]]
    return drawn[np.lexsort((strata[drawn], when))]
