"""What people said of the candidates, from their judgements and the blocks that were drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from earmark.review.judgements import DECIDED, HOW_PRESENT, after_adjudication
from earmark.review.queues.drawn import DrawnBlock
from earmark.review.queues.gains import HeardSoFar
from earmark.review.queues.population import Population
from earmark.review.queues.queue import QUEUE_SCHEMA


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
