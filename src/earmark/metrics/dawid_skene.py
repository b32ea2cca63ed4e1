"""How likely items are present by the votes of several raters, and how good each rater is.

The model is that of Dawid and Skene (1979): an item is present or it is not, and a rater answers
by a table of chances [truth, answer] of their own, the same for all items, whatever others say. The
share of present items is one of each group. Nobody is told the truth, so it is drawn, then the
tables and shares by it, and so on (Gibbs sampling): draws in place of a single best fit say how
sure all this is, also of raters with few answers.

Written by hand, because crowd-kit brings pandas and transformers, and knows neither priors nor
items whose truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRESENT, NOT_PRESENT, UNSURE, NO_ANSWER = 0, 1, 2, -1

MEAN_ANSWERS = 40.0
"""Answers to each truth that the mean rater is believed to have given before anyone answered."""

MEAN_RATER = MEAN_ANSWERS * np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])
"""... and what they were: mostly right. So present cannot change places with not present."""

OWN_ANSWERS = 10.0
"""Answers of the mean rater that each rater is lent, for each truth."""

EACH_ANSWER = 0.5
"""... and of each kind beside those (Jeffreys), so that a rare answer is no proof of anything."""

GROUP_ITEMS = 4.0
"""Items of the mean group that each group is lent."""

MOST_BY_MARK = np.log(9.0)
"""Log-odds by which a mark moves an item at most: nine to one."""

_N_CHAINS, _N_FIRST, _N_DRAWS = 8, 50, 150
_LEAST_CHANCE = 1e-6


@dataclass(frozen=True)
class Votes:
    """What was said of items.

    ``answers`` int64 [item, rater] are PRESENT, NOT_PRESENT, UNSURE or NO_ANSWER; ``groups`` int64
    [item] number the groups from 0; ``known`` float64 [item] is the chance of being present where
    the truth is nearly known, else NaN; ``marks`` int64 [item] is a machine's vote in levels from
    0, -1 where it has none.
    """

    answers: Ints
    groups: Ints
    known: Floats
    marks: Ints

    @property
    def is_compared(self) -> NDArray[np.bool_]:
        """Whether an answer [item, rater] can be held against another's, or against the truth."""
        is_decided = np.isin(self.answers, (PRESENT, NOT_PRESENT))
        n_others = is_decided.sum(axis=1, keepdims=True) - is_decided
        is_heard = self.answers != NO_ANSWER
        return np.asarray(is_heard & ((n_others > 0) | np.isfinite(self.known)[:, None]))


@dataclass(frozen=True)
class Weighed:
    """Draws of everything that the votes leave open.

    ``chances`` [item] of being present are means over the draws; ``tables`` [draw, rater, truth,
    answer] are raters' chances of each answer, the truth in the order present, not present;
    ``mark_odds`` [draw, level] are the log-odds by which a mark moves an item.
    """

    chances: Floats
    tables: Floats
    mark_odds: Floats


def weigh(votes: Votes, seed: int = 0) -> Weighed:
    """Draw the truth of items, raters' tables and groups' shares from what they are by the votes.

    Raters with few answers are pulled towards the mean rater, small groups towards the mean group.
    An answer that nothing can be held against says nothing of its rater. Marks learn from what
    raters say and teach nothing about raters; they move each item by MOST_BY_MARK at most.
    """
    rng, mark_rng = np.random.default_rng(seed).spawn(2)
    alike, place_of, n_items = _alike(votes)
    said = _one_hot(alike.answers, UNSURE + 1)  # [item, rater * answer]
    compared = said * np.repeat(alike.is_compared, UNSURE + 1, axis=1)
    is_known = np.isfinite(alike.known)[:, None]
    of_group = _one_hot(alike.groups).T * ~is_known.T
    of_mark = _counts_of_marks(votes, place_of, len(n_items)) * ~is_known.T
    known_odds = logit(np.where(is_known, alike.known[:, None], 0.5))
    by_mean = np.tile(np.log(MEAN_RATER[0] / MEAN_RATER[1]), votes.answers.shape[1])
    chances = expit(known_odds + (said @ by_mean)[:, None] + np.zeros(_N_CHAINS))  # [item, chain]
    sums, tables, mark_odds = np.zeros((len(n_items), len(of_mark) + 1)), [], []
    for number in range(_N_FIRST + _N_DRAWS):
        present = rng.binomial(n_items[:, None], chances).astype(np.float64)
        truths = np.stack([present, n_items[:, None] - present])  # [truth, item, chain]
        table = _draw_tables(rng, compared.T @ truths)  # [chain, rater, truth, answer]
        share = _draw_shares(rng, of_group @ truths)  # [group, chain]
        by_answer = np.log(table[:, :, 0] / table[:, :, 1]).reshape(_N_CHAINS, -1)
        log_odds = np.where(is_known, known_odds, logit(share)[alike.groups]) + said @ by_answer.T
        chances = expit(log_odds)
        if number >= _N_FIRST:
            by_mark = _draw_mark_odds(mark_rng, of_mark @ np.stack([chances, 1 - chances]))
            moves = np.vstack([by_mark, np.zeros(_N_CHAINS)])  # [level or none, chain]
            sums += expit(log_odds[:, None] + moves).mean(axis=-1)
            tables.append(table)
            mark_odds.append(by_mark.T)
    chance = sums[place_of, np.where(np.isfinite(votes.known), -1, votes.marks)] / _N_DRAWS
    return Weighed(chance, np.concatenate(tables), np.concatenate(mark_odds))


def _alike(votes: Votes) -> tuple[Votes, Ints, Ints]:
    """Put items together of which raters said the same: these, the place of each, their numbers."""
    known = np.nan_to_num(votes.known, nan=-1.0)
    rows = np.column_stack([votes.groups, known, votes.answers])
    found, place_of, n_items = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    groups, known = found[:, 0].astype(np.int64), found[:, 1]
    answers = found[:, 2:].astype(np.int64)
    alike = Votes(answers, groups, np.where(known < 0, np.nan, known), np.full(len(found), -1))
    return alike, place_of.ravel(), n_items


def _counts_of_marks(votes: Votes, place_of: Ints, n_places: int) -> Floats:
    """Return the number of items [level, place] with each level of mark."""
    counts = np.zeros((votes.marks.max(initial=-1) + 1, n_places))
    is_marked = votes.marks >= 0
    np.add.at(counts, (votes.marks[is_marked], place_of[is_marked]), 1)
    return counts


def _one_hot(numbers: Ints, n_numbers: int | None = None) -> Floats:
    """Return [item, number], or [item, column * number]: 1 where an item has a number."""
    n = numbers.max(initial=-1) + 1 if n_numbers is None else n_numbers
    return np.asarray((numbers[..., None] == np.arange(n)).reshape(len(numbers), -1), np.float64)


def _draw_tables(rng: np.random.Generator, n_answers: Floats) -> Floats:
    """Draw tables [chain, rater, truth, answer] by counts [truth, rater * answer, chain]."""
    n_truths, _, n_chains = n_answers.shape
    counts = n_answers.reshape(n_truths, -1, UNSURE + 1, n_chains).transpose(3, 1, 0, 2)
    mean = MEAN_RATER + counts.sum(axis=1)  # [chain, truth, answer]
    lent = OWN_ANSWERS * mean / mean.sum(axis=-1, keepdims=True) + EACH_ANSWER
    drawn = rng.standard_gamma(lent[:, None] + counts) + _LEAST_CHANCE
    return np.asarray(drawn / drawn.sum(axis=-1, keepdims=True))


def _draw_shares(rng: np.random.Generator, n_items: Floats) -> Floats:
    """Draw the share of present items [group, chain] by counts [truth, group, chain]."""
    n_all = n_items.sum(axis=1)  # [truth, chain]
    lent = GROUP_ITEMS * (1 + n_all) / (2 + n_all.sum(axis=0))
    share = rng.beta(n_items[0] + lent[0], n_items[1] + lent[1])
    return np.asarray(share.clip(_LEAST_CHANCE, 1 - _LEAST_CHANCE))


def _draw_mark_odds(rng: np.random.Generator, n_items: Floats) -> Floats:
    """Draw the log-odds of marks [level, chain] by counts [truth, level, chain]."""
    drawn = rng.standard_gamma(n_items + 1.0) + _LEAST_CHANCE
    levels = drawn / drawn.sum(axis=1, keepdims=True)
    return np.asarray(np.log(levels[0] / levels[1]).clip(-MOST_BY_MARK, MOST_BY_MARK))
