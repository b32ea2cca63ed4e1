"""Whose an item is: raters hear and judge their own blocks, and those that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from earmark.errors import EarmarkError
from earmark.review.judgements import JudgementStore
from earmark.review.queues.live import LiveQueue
from earmark.review.queues.queue import Queue, blocks_of
from earmark.review.server.shelf import Unknown

ANOTHERS = "this is in the block of another rater"


class Conflict(EarmarkError):  # noqa: N818 - named for what it is
    """The request contradicts what is stored."""


class Dealt:
    """The items of a queue, by the raters who may hear them."""

    def __init__(
        self, asked: Queue | LiveQueue, raters: Sequence[str], judgements: JudgementStore
    ) -> None:
        self._asked, self._raters, self._judgements = asked, raters, judgements
        self._blocks: dict[str, frozenset[int]] = {}

    @property
    def queue(self) -> Queue:
        """The queue, as far as it was drawn."""
        return self._asked if isinstance(self._asked, Queue) else self._asked.queue

    def item(self, rater: str, item: str) -> dict[str, Any]:
        """Return an item that a rater may hear: of their blocks, or of one that they began."""
        if item not in self.queue.by_item:
            raise Unknown("there is no such item in the queue")
        row = self.queue.by_item[item]
        if not self._is_dealt(rater, row["block"]) and not self._is_begun(rater, row):
            raise Conflict(ANOTHERS)
        return row

    def _is_dealt(self, rater: str, block: int) -> bool:
        if isinstance(self._asked, LiveQueue):
            return self._asked.is_dealt(rater, block)
        if rater not in self._blocks:
            self._blocks[rater] = frozenset(blocks_of(self.queue.plan, rater, self._raters))
        return block in self._blocks[rater]

    def _is_begun(self, rater: str, row: dict[str, Any]) -> bool:
        """Tell whether a rater has answered in an item's block, or has its clip as a whole."""
        live = self._asked if isinstance(self._asked, LiveQueue) else None
        if live is not None and live.block_of_clip(rater, row["clip_id"]) is not None:
            return True
        own = self.queue.items.filter(pl.col("block") == row["block"])
        return not set(own["item"]).isdisjoint(self._judgements.current(rater)["item"])
