"""What was drawn: every block that a rater was given, as it was, for good.

One row a block in an SQLite file beside the judgements; nothing is ever changed. The queue that a
rater saw can be read again from it, with the chances of then and how many answers they rested on.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self

import polars as pl

from earmark.errors import reading
from earmark.review.queues.queue import QUEUE_SCHEMA
from earmark.runs import open_sqlite, store_refusal

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


_MOVE_AWAY = "damaged? move it away: answers are kept elsewhere"


class DrawnBlocks:
    """The blocks drawn of one queue, in one file that several processes may add to."""

    def __init__(self, path: Path, queue_digest: str) -> None:
        self.path, self._queue, self._lock = path, queue_digest, Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = open_sqlite(path, 60)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
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
