"""Raters' answers: an append-only store in which nothing is ever updated.

Every key press is one row, committed before anything else happens. Undo is a further row that
retracts an older one. Rows are identified by a UUID made where the answer was given, so sending
one twice is harmless, and two stores are merged by taking every row once. What counts is the
*current* judgements: for each rater and item the last answer that was not retracted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Literal, Self, get_args
from uuid import UUID

import polars as pl
from pydantic import AwareDatetime, Field, model_validator

from earmark.errors import EarmarkError, reading
from earmark.runs import Params, open_sqlite, store_refusal

Answer = Literal["present", "not_present", "unsure", "cannot_play"]
"""``cannot_play``: the sound is missing or cannot be decoded; says nothing about the label."""

ANSWERS: tuple[Answer, ...] = get_args(Answer)

DECIDED = ("present", "not_present", "unsure")
"""Answers about the label, in the order of a confusion matrix's rows and columns."""

HOW_PRESENT = {"present": 1.0, "not_present": 0.0, "unsure": 0.5}
"""How far an answer says that the label is there."""

_DAMAGED = "another kind of file, or damaged? put a copy in its place"

_APPLICATION_ID = 0x4541524D
"""SQLite's mark of whose file this is: EARM."""

_SCHEMA_VERSION = 2

JUDGEMENT_SCHEMA = pl.Schema(
    {
        "id": pl.String(),
        "at": pl.String(),
        "rater": pl.String(),
        "item": pl.String(),
        "clip_id": pl.String(),
        "class_id": pl.String(),
        "answer": pl.String(),
        "span_start": pl.Float64(),
        "span_end": pl.Float64(),
        "heard_seconds": pl.Float64(),
        "whole_clip": pl.Boolean(),
        "shown_score": pl.Boolean(),
        "shown_picture": pl.Boolean(),
        "queue_digest": pl.String(),
        "retracts": pl.String(),
    }
)
"""The columns of the tables that a store returns, in this order."""

ADJUDICATED = "-adjudicated"
"""Ends the name of an item that an adjudicator hears; the rest is the name of the label's item."""

_SECONDS_TO_WAIT = 60.0

_CREATE = f"""
CREATE TABLE judgement (
    id TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    rater TEXT NOT NULL,
    item TEXT NOT NULL,
    clip_id TEXT NOT NULL,
    class_id TEXT NOT NULL,
    answer TEXT CHECK (answer IN {ANSWERS}),
    span_start REAL,
    span_end REAL,
    heard_seconds REAL NOT NULL,
    whole_clip INTEGER NOT NULL,
    shown_score INTEGER NOT NULL,
    shown_picture INTEGER NOT NULL,
    queue_digest TEXT NOT NULL,
    retracts TEXT,
    CHECK ((answer IS NULL) = (retracts IS NOT NULL)),
    CHECK ((span_start IS NULL) = (span_end IS NULL)),
    CHECK (span_start IS NULL OR (0 <= span_start AND span_start < span_end))
) STRICT;
CREATE INDEX by_rater_and_item ON judgement (rater, item);
CREATE INDEX by_retracted ON judgement (retracts);
CREATE TRIGGER never_updated BEFORE UPDATE ON judgement
    BEGIN SELECT RAISE(ABORT, 'judgements are never updated'); END;
CREATE TRIGGER never_deleted BEFORE DELETE ON judgement
    BEGIN SELECT RAISE(ABORT, 'judgements are never deleted'); END;
CREATE VIEW current AS
    SELECT * FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY rater, item ORDER BY at DESC, id DESC) AS age
        FROM judgement AS answered
        WHERE answer IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM judgement AS undo
            WHERE undo.retracts = answered.id AND undo.rater = answered.rater
        )
    ) WHERE age = 1;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION};
"""


def check_span(start: float | None, end: float | None) -> None:
    """Refuse a span that has one end only, or that does not end after its start."""
    if (start is None) != (end is None):
        raise ValueError("a span has both a start and an end, or neither")
    if start is not None and end is not None and not start < end:
        raise ValueError(f"a span ends after its start: from {start:g} s to {end:g} s")


def check_time(at: datetime) -> None:
    """Refuse a time that cannot be told in UTC, such as the first hours of the year 1."""
    try:
        at.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{at.isoformat()} is no time that UTC can tell") from None


class Judgement(Params):
    """What one rater said about one item, or that an earlier judgement is taken back.

    A judgement either has an ``answer``, or it ``retracts`` the judgement of that id by the same
    rater and has none. ``item`` is the queue's name for clip and class. ``at`` needs a time zone.
    ``span_start`` and ``span_end`` are the part that the answer speaks of, in seconds from the
    clip's start; None where the rater set no such part.
    """

    id: UUID
    at: AwareDatetime
    rater: str = Field(min_length=1, max_length=100)
    item: str = Field(min_length=1, max_length=100)
    clip_id: str = Field(min_length=1)
    class_id: str = Field(min_length=1)
    answer: Answer | None = None
    span_start: float | None = Field(None, ge=0, allow_inf_nan=False)
    span_end: float | None = Field(None, ge=0, allow_inf_nan=False)
    heard_seconds: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Seconds of sound that were really played before the answer."""
    whole_clip: bool = False
    """Whether the whole clip was heard: then ``not_present`` is a claim about all of it."""
    shown_score: bool = False
    shown_picture: bool = True
    queue_digest: str = ""
    retracts: UUID | None = None

    @model_validator(mode="after")
    def _answers_or_retracts(self) -> Self:
        if (self.answer is None) == (self.retracts is None):
            raise ValueError("a judgement has either an answer or the id that it retracts")
        return self

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_span(self.span_start, self.span_end)
        check_time(self.at)
        return self

    def row(self) -> tuple[str | float | bool | None, ...]:
        """Return the values in the order of JUDGEMENT_SCHEMA; the time in UTC, to microseconds."""
        values = self.model_dump()
        values["id"] = str(self.id)
        values["at"] = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        values["retracts"] = None if self.retracts is None else str(self.retracts)
        return tuple(values[name] for name in JUDGEMENT_SCHEMA)


class JudgementStore:
    """The judgements in one SQLite file, which several threads and processes may write at once.

    A missing file is made, unless ``must_exist``. A file that is not a store of judgements, or is
    one of another version, is refused and left as it is. In a folder that may not be written, a
    store can be read all the same. Close it, or use it in a ``with``.
    """

    def __init__(self, path: str | Path, *, must_exist: bool = False) -> None:
        self.path = Path(path)
        if must_exist and not self.path.exists():
            raise EarmarkError(f"{path}: no judgements there yet; make some with `earmark review`")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()
        self._connection = open_sqlite(self.path, _SECONDS_TO_WAIT)
        try:
            _prepare(self._connection, self.path)
        except BaseException:
            self._connection.close()
            raise

    def add(self, judgement: Judgement) -> bool:
        """Store a judgement for good; return False if it was there already.

        When this returns, the row is on the disk. A known id with other content is refused.
        """
        return self.add_all([judgement]) == 1

    def add_all(self, judgements: Iterable[Judgement]) -> int:
        """Store judgements, all or none; return how many were new."""
        return self._insert([judgement.row() for judgement in judgements])

    def retract(self, judgement: Judgement, new_id: UUID, at: datetime) -> bool:
        """Take back a judgement, in its rater's name, by a row of its own id and time."""
        taken_back = {"id": new_id, "at": at, "answer": None, "retracts": judgement.id}
        taken_back |= {"span_start": None, "span_end": None}
        return self.add(Judgement.model_validate(judgement.model_dump() | taken_back))

    def merge(self, other: str | Path) -> int:
        """Add the rows of another store that are not here yet; return their number."""
        with JudgementStore(other, must_exist=True) as store:
            return self._insert(store.rows().rows())

    def rows(self) -> pl.DataFrame:
        """Return every row ever stored, retractions included, in the order of time."""
        return self._table("SELECT {} FROM judgement ORDER BY at, id")

    def current(self, rater: str | None = None) -> pl.DataFrame:
        """Return the last unretracted answer for each rater and item, in the order of time."""
        if rater is None:
            return self._table("SELECT {} FROM current ORDER BY at, id")
        return self._table("SELECT {} FROM current WHERE rater = ? ORDER BY at, id", rater)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _insert(self, rows: Iterable[tuple[object, ...]]) -> int:
        with self._lock, _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                n_new = sum(self._insert_one(row) for row in rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # which a damaged file may have ended
                    self._connection.execute("ROLLBACK")
                raise
            return n_new

    def _insert_one(self, row: tuple[object, ...]) -> bool:
        marks = ", ".join("?" * len(row))
        done = self._connection.execute(f"INSERT OR IGNORE INTO judgement VALUES ({marks})", row)
        if done.rowcount == 1:
            return True
        stored = self._connection.execute(
            "SELECT * FROM judgement WHERE id = ?", row[:1]
        ).fetchone()
        if _but_when(stored) != _but_when(row):
            raise EarmarkError(
                f"{self.path}: judgement {row[0]} is stored with other content; an id stands for "
                "one answer, so give a new answer a new id"
            )
        return False

    def _table(self, query: str, *values: str) -> pl.DataFrame:
        with self._lock, _explained(self.path):
            found = self._connection.execute(query.format(", ".join(JUDGEMENT_SCHEMA)), values)
            rows = found.fetchall()
            stored = pl.DataFrame(
                rows, JUDGEMENT_SCHEMA.names(), orient="row", infer_schema_length=None
            )
            return stored.cast(JUDGEMENT_SCHEMA)


def combine_votes(current: pl.DataFrame, by: str | list[str]) -> pl.DataFrame:
    """Combine raters' current answers: one row for each value of ``by`` (columns of the table).

    Every rater has one vote (:func:`votes_of`), and where an adjudicator has answered, nobody else
    has one (:func:`after_adjudication`). ``answer`` is what more than half of the votes say, else
    ``unsure``. A sound that could not be played is no vote; ``cannot_play`` is left where nobody
    could play it. Further columns: whole_clip (whether a rater of that answer heard it all),
    n_raters, raters (joined by commas), at (the time of the last vote).
    """
    keys = [by] if isinstance(by, str) else by
    is_heard = pl.col("answer") != "cannot_play"
    counting = after_adjudication(current).filter(is_heard | ~is_heard.any().over(keys))
    return _majority(votes_of(counting, keys), keys)


def after_adjudication(current: pl.DataFrame) -> pl.DataFrame:
    """Leave out what raters said of labels that an adjudicator has answered, whatever the answer.

    Adjudicators' answers stand under the name of the label's item, too, so that they count in the
    queue that raters had heard. A sound that they could not play decides nothing.
    """
    is_ruling = pl.col("item").str.ends_with(ADJUDICATED) & (pl.col("answer") != "cannot_play")
    rulings = current.filter(is_ruling)
    others = current.join(rulings, on=["clip_id", "class_id"], how="anti", maintain_order="left")
    again = rulings.with_columns(pl.col("item").str.strip_suffix(ADJUDICATED))
    return pl.concat([others, rulings, again])


def votes_of(answers: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return one vote of each rater on each value of ``keys``: answer, whole_clip and at.

    It is the answer given, or ``unsure`` where a rater's own answers differ (an item and its
    silent repeat).
    """
    return answers.group_by(*keys, "rater").agg(
        answer=pl.when(pl.col("answer").n_unique() == 1)
        .then(pl.col("answer").first())
        .otherwise(pl.lit("unsure")),
        whole_clip=pl.col("whole_clip").any(),
        at=pl.col("at").max(),
    )


def _majority(votes: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the answer of more than half of the votes for each key, else unsure."""
    counts = votes.group_by(*keys, "answer").agg(
        n_votes=pl.len(), whole_clip=pl.col("whole_clip").any()
    )
    raters = votes.group_by(keys).agg(
        n_raters=pl.len(), raters=pl.col("rater").sort().str.join(","), at=pl.col("at").max()
    )
    winners = counts.join(raters, on=keys).filter(2 * pl.col("n_votes") > pl.col("n_raters"))
    chosen = raters.join(winners.select(*keys, "answer", "whole_clip"), on=keys, how="left")
    filled = chosen.with_columns(
        pl.col("answer").fill_null("unsure"), pl.col("whole_clip").fill_null(value=False)
    )
    return filled.select(*keys, "answer", "whole_clip", "n_raters", "raters", "at").sort(keys)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into what to do about it, and other damage into an error."""
    with reading(path, "a store of judgements", _DAMAGED):
        try:
            yield
        except sqlite3.Error as error:
            raise store_refusal(path, "judgements", error, _DAMAGED) from None


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check whose file it is, or make the tables of a new one; then make commits durable."""
    with _explained(path):
        connection.execute("PRAGMA synchronous = FULL")
        with_schema = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        if not with_schema:
            _create(connection)
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    if owner != _APPLICATION_ID:
        raise EarmarkError(f"{path}: an SQLite file of another program, not of judgements")
    if version != _SCHEMA_VERSION:
        raise EarmarkError(
            f"{path}: judgements in version {version} of the format, expected {_SCHEMA_VERSION}; "
            "use the version of earmark that wrote it"
        )


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables unless another process did so meanwhile."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        for statement in _statements(_CREATE):
            connection.execute(statement)
    connection.execute("COMMIT")


def _statements(script: str) -> Iterable[str]:
    """Yield the statements of a script; ``executescript`` would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _but_when(row: tuple[object, ...]) -> tuple[object, ...]:
    """Leave out the time: an answer without one of its own gets that of its import."""
    place = JUDGEMENT_SCHEMA.names().index("at")
    return row[:place] + row[place + 1 :]
