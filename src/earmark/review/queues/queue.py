"""The review queue: which labels are listened to, and in what order.

A queue is drawn at once to measure flags (:mod:`earmark.review.queues.measuring`), or grows while
people answer, to find missing labels (:mod:`earmark.review.queues.live`); then it holds what was
drawn of it so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from earmark.errors import EarmarkError
from earmark.runs import QueueAim, digest

QUEUE_SCHEMA = pl.Schema(
    {
        "item": pl.String(),
        "kind": pl.String(),
        "class_id": pl.String(),
        "clip_id": pl.String(),
        "band_low": pl.Float64(),
        "band_high": pl.Float64(),
        "rank": pl.Int64(),
        "logit": pl.Float32(),
        "block": pl.Int64(),
        "place": pl.Int64(),
        "is_shared": pl.Boolean(),
        "repeats": pl.String(),
        "stratum": pl.Int64(),
        "probability": pl.Float64(),
        "chance": pl.Float64(),
    }
)

GROWING = ("find", "train")
"""Aims whose queue is drawn while people answer."""

CONTROLS = ("positive", "negative", "repeat")
"""The kinds of items that test the rater rather than a label."""


@dataclass(frozen=True)
class Queue:
    """A review: its items, and the sizes of the cells that they were drawn from.

    ``items``, sorted by block and place, has the columns of QUEUE_SCHEMA:

    - item: names clip and class (16 hexadecimal digits, the same in every queue); a repeat has one
      of its own
    - kind: ``flag`` (within the last operating point), ``unflagged`` (below it); of a queue that
      learns ``likely`` (chosen by its chance), ``sample`` or ``added`` (by a rater); or one of
      the controls ``positive``, ``negative`` and ``repeat``
    - class_id, clip_id
    - band_low, band_high: per cent of the class's implicit labels; the unflagged band ends at 100;
      null for controls
    - rank: 1 + the implicit labels of the class that score higher; null unless a flag
    - logit: the teacher's score
    - block, place: numbers from 0, the order of listening; a block has one class
    - is_shared: whether every rater judges the block (see :func:`blocks_of`)
    - repeats: the item that a repeat repeats, which has a lower place in the same block
    - stratum: of a queue that learns, the label's stratum in the sample
    - probability: with which it was drawn; of a queue that learns, 1 for those that the chances
      chose, and for one of the sample the share of its stratum that had its turn by then
    - chance: that the label is missing, by what was known when it was drawn

    ``sizes`` has a row for each cell of the chosen classes: class_id, band_low, band_high,
    is_flagged, n_labels. ``population`` is the digest of labels and scores. A queue that learns has
    one ``name`` however far it was drawn.
    """

    items: pl.DataFrame
    sizes: pl.DataFrame
    aim: QueueAim = "measure"
    population: str = ""
    name: str = ""

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits identifying the items and their order, or the name."""
        return self.name or digest(self.items.write_csv())

    @cached_property
    def plan(self) -> pl.DataFrame:
        """The blocks (see :func:`block_plan`)."""
        return block_plan(self.items)

    @cached_property
    def by_item(self) -> dict[str, dict[str, Any]]:
        """The items by their names."""
        columns = self.items.select("item", "clip_id", "class_id", "logit", "block")
        return {row["item"]: row for row in columns.iter_rows(named=True)}

    @property
    def grows(self) -> bool:
        """Whether it is drawn while people answer."""
        return self.aim in GROWING


def block_plan(items: pl.DataFrame) -> pl.DataFrame:
    """Return one row per block of a queue's items, in the order of listening.

    Columns: block, class_id (of the first item), class_ids, is_shared, n_items, n_controls (of
    n_items).
    """
    return (
        items.group_by("block")
        .agg(
            pl.col("class_id").first(),
            pl.col("is_shared").first(),
            class_ids=pl.col("class_id").unique(maintain_order=True),
            n_items=pl.len().cast(pl.Int64),
            n_controls=pl.col("kind").is_in(CONTROLS).sum().cast(pl.Int64),
        )
        .sort("block")
    )


def blocks_of(plan: pl.DataFrame, rater: str, raters: Sequence[str]) -> list[int]:
    """Return the blocks that a rater judges: the shared ones, and a share of all others.

    ``plan`` is a :func:`block_plan`. A rater alone judges all blocks.

    >>> plan = pl.DataFrame({"block": [0, 1, 2], "is_shared": [True, False, False]})
    >>> blocks_of(plan, "ann", ["ann", "bob"]), blocks_of(plan, "bob", ["ann", "bob"])
    ([0, 1], [0, 2])
    """
    if rater not in raters:
        raise EarmarkError(f"there is no rater {rater!r}; the raters are {', '.join(raters)}")
    dealt = plan.with_columns(turn=(~pl.col("is_shared")).cum_sum() - 1)
    is_own = pl.col("turn") % len(raters) == list(raters).index(rater)
    return dealt.filter(pl.col("is_shared") | is_own)["block"].to_list()


def item_id(clip_id: str, class_id: str, *, is_repeat: bool = False) -> str:
    """Return the name of a clip and class in a review: 16 hexadecimal digits."""
    return digest(clip_id, class_id, "repeat") if is_repeat else digest(clip_id, class_id)
