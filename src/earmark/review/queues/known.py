"""Known labels among those that a clip is heard for: they test the rater, who is not told.

Where whole clips are heard, a known label takes the place of the clip's least likely one, so that
nothing more is heard for it and no clip has more rows than the others.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl

from earmark.review.queues.drawn import as_items
from earmark.review.queues.queue import item_id

KINDS = ("positive", "negative")
"""The kinds of known labels, which take turns."""


def with_known_labels(
    items: pl.DataFrame,
    explicit: pl.DataFrame,
    used: Collection[str],
    turns: tuple[int, int],
    rng: np.random.Generator,
) -> pl.DataFrame:
    """Let some of a block's clips ask about a label that is known, one each.

    ``explicit`` (clip_id, class_id, present) are labels that may be asked about, and ``used`` the
    items that were asked before. The kinds take turns; ``turns`` are the first and the last but
    one. Positives are taken from clips with several of them while there are any: a rater sees the
    others.
    """
    parts = {str(clip): part for (clip,), part in items.group_by("clip_id", maintain_order=True)}
    own = explicit.filter(pl.col("clip_id").is_in(list(parts)))
    own = own.with_columns(
        kind=pl.when("present").then(pl.lit(KINDS[0])).otherwise(pl.lit(KINDS[1]))
    )
    n_alike = pl.len().over("clip_id", "kind")
    own = own.with_columns(is_alone=(n_alike == 1) & pl.col("present"))
    names = [item_id(*pair) for pair in own.select("clip_id", "class_id").iter_rows()]
    own = own.with_columns(item=pl.Series(names, dtype=pl.String))
    own = own.filter(~pl.col("item").is_in(list(used)))
    own = own[rng.permutation(len(own))].sort("is_alone", maintain_order=True)
    n_most = max((len(part) for part in parts.values()), default=0)
    for turn in range(*turns):
        wanted = own.filter(kind=KINDS[turn % len(KINDS)])
        chosen = (wanted if len(wanted) else own).head(1)
        for clip in chosen["clip_id"]:
            parts[clip] = _asked_too(parts[clip], as_items(chosen), n_most, rng)
            own = own.filter(pl.col("clip_id") != clip)
    ordered = pl.concat(parts.values())
    return ordered.with_columns(place=pl.int_range(pl.len()).cast(pl.Int64))


def _asked_too(
    offered: pl.DataFrame, known: pl.DataFrame, n_most: int, rng: np.random.Generator
) -> pl.DataFrame:
    """Put a known label among a clip's, in place of the least likely one where there are many."""
    likely = offered.filter(kind="likely").sort("chance")
    if len(offered) >= n_most and len(likely):
        offered = offered.filter(pl.col("item") != likely["item"][0])
    place = int(rng.integers(0, len(offered) + 1))
    return pl.concat([offered.head(place), known, offered.slice(place)])
