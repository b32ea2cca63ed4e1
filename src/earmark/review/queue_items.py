"""The items of a review, as a table, and the file that keeps the blocks drawn so far.

A queue to measure flags is drawn at once (:mod:`earmark.review.random_queue`). A queue to find
missing labels grows while people answer (:mod:`earmark.review.queue`). Its blocks are rows of an
SQLite file beside the judgements. Rows are only ever added, so the queue that a rater saw can be
read again later, with the chances of that moment and the number of answers behind them.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self

import polars as pl

from earmark.config import QueueAim
from earmark.errors import reading
from earmark.review.judgements import open_sqlite, store_refusal, switch_to_write_ahead_log
from earmark.storage import digest, make_folder

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
        "probability": pl.Float64(),
        "chance": pl.Float64(),
    }
)

GROWING = ("find", "train")
"""Aims whose queue is drawn while people answer."""

CONTROLS = ("positive", "negative", "repeat")
"""The kinds of items that test the rater rather than a label."""


@dataclass(frozen=True)
class QueueSnapshot:
    """The items of a queue at one moment, and the sizes of the cells that they were drawn from.

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
    - is_shared: whether every rater judges the block (see :class:`earmark.review.ReviewQueue`)
    - repeats: the item that a repeat repeats, which has a lower place in the same block
    - probability: with which it was drawn; of a queue that learns, 1 for those that p_missing
      chose, and for one of the sample the probability to have had its turn by then
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

    @property
    def grows(self) -> bool:
        """Whether it is drawn while people answer."""
        return self.aim in GROWING


def items_by_name(items: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return clip_id, class_id, logit and block of items by their names."""
    columns = items.select("item", "clip_id", "class_id", "logit", "block")
    return {row["item"]: row for row in columns.iter_rows(named=True)}


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


def item_id(clip_id: str, class_id: str, *, is_repeat: bool = False) -> str:
    """Return the name of a clip and class in a review: 16 hexadecimal digits."""
    return digest(clip_id, class_id, "repeat") if is_repeat else digest(clip_id, class_id)


Mode = Literal["class", "clip"]
"""Whether labels are heard class by class, or all likely ones of a clip at once."""

_CREATE = """
CREATE TABLE IF NOT EXISTS drawn (
    queue TEXT NOT NULL,
    block INTEGER NOT NULL,
    rater TEXT NOT NULL,
    is_shared INTEGER NOT NULL,
    mode TEXT NOT NULL,
    at TEXT NOT NULL,
    n_answers INTEGER NOT NULL,
    n_turns INTEGER NOT NULL,
    items TEXT NOT NULL,
    PRIMARY KEY (queue, block)
) STRICT;
CREATE TABLE IF NOT EXISTS added (
    queue TEXT NOT NULL,
    item TEXT NOT NULL,
    block INTEGER NOT NULL,
    clip_id TEXT NOT NULL,
    class_id TEXT NOT NULL,
    logit REAL,
    rater TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (queue, item)
) STRICT;
"""


@dataclass(frozen=True)
class DrawnBlock:
    """A block: whom it was drawn for, after how many answers, and its items.

    ``n_turns`` of the sample had passed with it. ``items`` has the columns of QUEUE_SCHEMA.
    """

    block: int
    rater: str
    is_shared: bool
    mode: Mode
    n_answers: int
    n_turns: int
    items: pl.DataFrame

    def is_for(self, rater: str) -> bool:
        """Tell whether a rater judges the block: it is theirs, or everybody's."""
        return self.is_shared or self.rater == rater


_MOVE_AWAY = "damaged? move it away: answers are kept elsewhere"


class DrawnBlocks:
    """The blocks drawn of one queue, in one file that several processes may add to."""

    def __init__(self, path: Path, queue_digest: str) -> None:
        self.path, self._queue, self._lock = path, queue_digest, Lock()
        make_folder(path.parent)
        self._connection = open_sqlite(path)
        try:
            switch_to_write_ahead_log(self._connection)
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_CREATE)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise store_refusal(path, "blocks", error, _MOVE_AWAY) from None

    def since(self, n_known: int) -> list[DrawnBlock]:
        """Return the blocks from a number on, in their order."""
        query = (
            "SELECT block, rater, is_shared, mode, n_answers, n_turns, items FROM drawn "
            "WHERE queue = ? AND block >= ? ORDER BY block"
        )
        with self._lock, reading(self.path, "a store of blocks", _MOVE_AWAY):
            rows = self._connection.execute(query, (self._queue, n_known)).fetchall()
            return [_read(*row) for row in rows]

    def add(self, block: DrawnBlock) -> bool:
        """Store a block for good; False if its number was taken meanwhile."""
        told = json.dumps(block.items.select(_KEPT).to_dicts(), separators=(",", ":"))
        row = (
            self._queue,
            block.block,
            block.rater,
            block.is_shared,
            block.mode,
            _now(),
            block.n_answers,
            block.n_turns,
            told,
        )
        with self._lock:
            done = self._connection.execute(
                "INSERT OR IGNORE INTO drawn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row
            )
            return done.rowcount == 1

    def add_label(
        self, block: int, item: str, clip_id: str, class_id: str, logit: float | None, rater: str
    ) -> None:
        """Store a label that a rater wants to answer though it was not asked about."""
        row = (self._queue, item, block, clip_id, class_id, logit, rater, _now())
        with self._lock:
            self._connection.execute(
                "INSERT OR IGNORE INTO added VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
            )

    def added(self) -> pl.DataFrame:
        """Return the labels that raters added, as items at the ends of their blocks."""
        query = (
            "SELECT item, block, clip_id, class_id, logit FROM added WHERE queue = ? ORDER BY at"
        )
        with self._lock:
            rows = self._connection.execute(query, (self._queue,)).fetchall()
        names = ("item", "block", "clip_id", "class_id", "logit")
        table = pl.DataFrame(rows, {name: QUEUE_SCHEMA[name] for name in names}, orient="row")
        return as_items(
            table.with_columns(kind=pl.lit("added"), place=_AFTER_ALL + pl.int_range(pl.len()))
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_KEPT = [name for name in QUEUE_SCHEMA.names() if name not in ("block", "is_shared")]

_AFTER_ALL = 10_000
"""Places of added labels: behind all that a block holds."""


def as_items(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table as items of a queue, with nulls where it has no such column."""
    missing = [name for name in QUEUE_SCHEMA.names() if name not in table.columns]
    whole = table.with_columns(pl.lit(None, QUEUE_SCHEMA[name]).alias(name) for name in missing)
    return whole.select(QUEUE_SCHEMA.names()).cast(QUEUE_SCHEMA)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _read(
    block: int, rater: str, is_shared: int, mode: Mode, n_answers: int, n_turns: int, items: str
) -> DrawnBlock:
    rows: list[dict[str, Any]] = json.loads(items)
    table = pl.DataFrame(rows, {name: QUEUE_SCHEMA[name] for name in _KEPT})
    known = as_items(table.with_columns(block=pl.lit(block), is_shared=pl.lit(bool(is_shared))))
    return DrawnBlock(block, rater, bool(is_shared), mode, n_answers, n_turns, known)
