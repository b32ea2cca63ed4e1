"""What people said of the candidates, from judgements and blocks drawn; the chances it teaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.flags import LEAST_ANSWERS, Answers, Model, learn
from earmark.review.judgements import DECIDED, HOW_PRESENT, after_adjudication
from earmark.review.queues.candidates import Candidates, Ints
from earmark.review.queues.drawn import DrawnBlock
from earmark.review.queues.population import Population
from earmark.review.queues.queue import QUEUE_SCHEMA

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]


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


def heard_of(
    population: Population, blocks: Sequence[DrawnBlock], current: pl.DataFrame
) -> HeardSoFar:
    """Return what current judgements say of candidates, in the order of time.

    The sample's turns of a block count once the labels of all of them were answered, wherever they
    were asked about, or could not be played.
    """
    own = population.with_places(after_adjudication(current))
    decided = own.filter(pl.col("answer").is_in(DECIDED))
    present = pl.col("answer").replace_strict(HOW_PRESENT, return_dtype=pl.Float64)
    labels = decided.group_by("label", maintain_order=True).agg(present=present.mean())
    places = labels["label"].to_numpy()
    drawn_at = np.full(len(population.candidates), np.nan)
    answered, passed, start = set(own["label"]), [], 0
    drawn = pl.concat([QUEUE_SCHEMA.to_frame(), *(block.items for block in blocks)])
    likely = population.with_places(drawn.filter(kind="likely"))
    drawn_at[likely["label"].to_numpy()] = likely["chance"].to_numpy()
    for block in blocks:
        turns = population.candidates.sample[start : block.n_turns]
        if answered.issuperset(turns.tolist()):
            passed.append(turns)
        start = block.n_turns
    every = np.concatenate([np.empty(0, np.int64), *passed])
    return HeardSoFar(places, labels["present"].to_numpy(), drawn_at[places], every)
