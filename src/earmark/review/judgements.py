"""Raters' answers: an append-only store in which nothing is ever updated.

Every key press is one row, committed before anything else happens. Undo is a further row that
retracts an older one. Rows are identified by a UUID made where the answer was given, so sending
one twice is harmless, and two stores are merged by taking every row once. What counts is the
*current* judgements: for each rater and item the answer stored last that was not retracted.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import quote
from uuid import UUID

import polars as pl
from pydantic import AwareDatetime, Field, ValidationError, model_validator

from earmark.config import Params
from earmark.errors import EarmarkError, EarmarkWarning, reading
from earmark.storage import make_folder

Answer = Literal["present", "not_present", "unsure", "cannot_play"]
"""``cannot_play``: the sound is missing or cannot be decoded; says nothing about the label."""

ANSWERS: tuple[Answer, ...] = get_args(Answer)

DECIDED = ("present", "not_present", "unsure")
"""Answers about the label, in the order of a confusion matrix's rows and columns."""

HOW_PRESENT = {"present": 1.0, "not_present": 0.0, "unsure": 0.5}
"""How far an answer says that the label is there."""

_DAMAGED = "another kind of file, or damaged? put a copy in its place"

_TROUBLES = {
    ("SQLITE_FULL",): "the disk is full: make room and go on. What was saved is safe",
    ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"): "may its folder be written to?",
    ("SQLITE_IOERR",): "the disk failed or is full: what was saved is safe; look at the disk",
    ("SQLITE_BUSY", "SQLITE_LOCKED"): "another program holds it: close that, and try again",
}
"""What to do about troubles of SQLite's that say nothing against the file."""

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

MAX_NAME_LENGTH = 4_096
"""Characters of a clip's or a class's identifier."""

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
"""Of sound: at most a day."""

SECONDS_TO_WAIT = 20.0
"""For another program that holds the store; then the page says so and tries again. On a busy
machine, writers in turn wait for seconds. The page itself waits 30 s for a reply."""

_COLUMNS = ", ".join(JUDGEMENT_SCHEMA)

_MOST_CHUNKS = 100

_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S%.f%:z"

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
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION};
"""


class Conflict(EarmarkError):  # noqa: N818 - named for what it is
    """What is asked contradicts what is stored."""


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


class JudgementFields(Params):
    """What the page sends and what every other source gives: checked in one way.

    A judgement either has an ``answer``, or it ``retracts`` the judgement of that id by the same
    rater and has none. ``item`` is the queue's name for clip and class. ``at`` needs a time zone.
    ``span_start`` and ``span_end`` are the part that the answer speaks of, in seconds from the
    clip's start; None where the rater set no such part.
    """

    id: UUID
    at: AwareDatetime
    rater: str = Field(min_length=1, max_length=100)
    item: str = Field(min_length=1, max_length=100)
    answer: Answer | None = None
    span_start: Seconds | None = None
    span_end: Seconds | None = None
    heard_seconds: Seconds = 0.0
    """Seconds of sound that were really played before the answer."""
    whole_clip: bool = False
    """Whether the whole clip was heard: then ``not_present`` is a claim about all of it."""
    shown_score: bool = False
    shown_picture: bool = True
    retracts: UUID | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if (self.answer is None) == (self.retracts is None):
            raise ValueError("a judgement has either an answer or the id that it retracts")
        check_span(self.span_start, self.span_end)
        check_time(self.at)
        return self


class Judgement(JudgementFields):
    """What one rater said about one item, or that an earlier judgement is taken back."""

    clip_id: str = Field(min_length=1, max_length=MAX_NAME_LENGTH)
    class_id: str = Field(min_length=1, max_length=MAX_NAME_LENGTH)
    queue_digest: str = Field("", max_length=100)

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
        make_folder(self.path.parent)
        self._lock = Lock()
        self._n_read, self._read = 0, JUDGEMENT_SCHEMA.to_frame()
        self._connection = open_sqlite(self.path)
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

    def merge(self, other: str | Path) -> int:
        """Add the rows of another store that are not here yet, in its order, after those here.

        Every row is checked as the page's answers are. Returns the number of new rows.
        """
        return self.add_all(read_store(Path(other)))

    def has(self, judgement_id: UUID, rater: str, item: str) -> bool:
        """Tell whether a rater has stored a judgement of this id about an item."""
        query = "SELECT 1 FROM judgement WHERE id = ? AND rater = ? AND item = ?"
        values = (str(judgement_id), rater, item)
        with self._lock, _explained(self.path):
            return self._connection.execute(query, values).fetchone() is not None

    def rows(self) -> pl.DataFrame:
        """Return every row ever stored, retractions included, in the order of storing.

        Rows that were read before are kept: only new ones are read.
        """
        with self._lock, _explained(self.path):
            query = f"SELECT rowid, {_COLUMNS} FROM judgement WHERE rowid > ? ORDER BY rowid"
            rows = self._connection.execute(query, (self._n_read,)).fetchall()
            if rows:
                names = ["rowid", *JUDGEMENT_SCHEMA]
                new = pl.DataFrame(rows, names, orient="row", infer_schema_length=None)
                new = self._with_times(new.drop("rowid").cast(JUDGEMENT_SCHEMA))
                has_many_parts = self._read.n_chunks() >= _MOST_CHUNKS
                self._read = pl.concat([self._read, new], rechunk=has_many_parts)
                self._n_read = rows[-1][0]
            return self._read

    def current(self, rater: str | None = None) -> pl.DataFrame:
        """Return the last unretracted answer for each rater and item, in the order of storing.

        Which one is the last is decided by the order of storing, not by the raters' clocks.
        """
        rows = self.rows() if rater is None else self.rows().filter(rater=rater)
        undone = rows.select("rater", id="retracts").drop_nulls("id")
        answers = rows.filter(pl.col("answer").is_not_null())
        answers = answers.join(undone, on=["id", "rater"], how="anti", maintain_order="left")
        return answers.unique(["rater", "item"], keep="last", maintain_order=True)

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

    def _with_times(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Leave out rows whose time is none, which imports once let in; say how many."""
        has_time = rows["at"].str.to_datetime(_TIME_FORMAT, strict=False).is_not_null()
        if n_without := len(rows) - int(has_time.sum()):
            example = rows.filter(~has_time).row(0, named=True)
            warnings.warn(
                f"{self.path}: left out {n_without} judgements without a valid time, such as "
                f"{example['id']!r} of {example['rater']!r} at {example['at'][:100]!r}; they were "
                "imported before such rows were refused, and count nowhere",
                EarmarkWarning,
                stacklevel=2,
            )
        return rows.filter(has_time)

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
            raise Conflict(
                f"{self.path}: judgement {row[0]} is stored with other content; an id stands for "
                "one answer, so give a new answer a new id"
            )
        return False


def read_store(path: Path) -> Iterator[Judgement]:
    """Yield the judgements of another store in its order; check each, and change nothing.

    The file may come from anybody: it is opened for reading alone, rows come from a plain table
    with a store's columns, never from a view, and reading ends when it takes more steps than the
    file can have rows for.
    """
    if not path.exists():
        raise EarmarkError(f"{path}: no judgements there yet; make some with `earmark review`")
    log = path.with_name(f"{path.name}-wal")
    n_steps = 1_000_000 + path.stat().st_size + (log.stat().st_size if log.exists() else 0)
    connection = open_sqlite(path, read_only=True)
    try:
        connection.set_progress_handler(lambda: 1, n_steps)
        with _explained(path):
            connection.execute("PRAGMA trusted_schema = OFF")
        _check_format(connection, path)
        query = f"SELECT {_COLUMNS} FROM judgement NOT INDEXED ORDER BY rowid"
        with _explained(path):
            rows = connection.execute(query).fetchall()
    finally:
        connection.close()
    for number, row in enumerate(rows, start=1):
        values = dict(zip(JUDGEMENT_SCHEMA, row, strict=True))
        yield checked_judgement(values, f"{path}, row {number}")


def checked_judgement(values: Mapping[str, Any], where: str) -> Judgement:
    """Return a judgement of values from elsewhere; say what is wrong with them."""
    for key, value in values.items():
        if isinstance(value, str) and _CONTROL_CHARACTER.search(value):
            raise EarmarkError(
                f"{where}: {key}: expected text without control characters, got {value[:200]!r}; "
                "is the file damaged, or in another encoding than UTF-8?"
            )
    try:
        return Judgement.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])) or "judgement"
        raise EarmarkError(
            f"{where}: {key}: {problem['msg'].lower()}, got {str(problem['input'])[:200]!r}"
        ) from None


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
    _check_format(connection, path)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is no store of judgements of this version."""
    with _explained(path):
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        schema = "SELECT type FROM sqlite_master WHERE name = 'judgement'"
        kinds = connection.execute(f"{schema} AND sql NOT LIKE 'CREATE VIRTUAL%'").fetchall()
        columns = connection.execute("PRAGMA table_xinfo(judgement)").fetchall()
    if owner != _APPLICATION_ID:
        raise EarmarkError(f"{path}: an SQLite file of another program, not of judgements")
    if version != _SCHEMA_VERSION:
        raise EarmarkError(
            f"{path}: judgements in version {version} of the format, expected {_SCHEMA_VERSION}; "
            "use the version of earmark that wrote it"
        )
    # A name, and no hidden or generated column: those are computed when they are read.
    is_plain = [(name, hidden) for _, name, *_, hidden in columns] == [
        (name, 0) for name in JUDGEMENT_SCHEMA
    ]
    if kinds != [("table",)] or not is_plain:
        raise EarmarkError(
            f"{path}: not a store of judgements: expected a table 'judgement' with the columns "
            f"{_COLUMNS}; export the answers as CSV and import that"
        )


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables unless another process did so meanwhile."""
    switch_to_write_ahead_log(connection)
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


def open_sqlite(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open an SQLite file, which is made if it is missing, for several threads and processes.

    Where it may not be written, or ``read_only``, it is read: with what the log beside it holds, if
    there is one.
    """
    address = ":memory:" if str(path) == ":memory:" else f"file:{quote(str(path.absolute()))}"
    # In this order: another process may make the file meanwhile.
    if path.exists() and (read_only or not _is_writable(path)):
        has_log = path.with_name(f"{path.name}-wal").exists()
        address += "?mode=ro" if has_log else "?immutable=1"
    return sqlite3.connect(
        address, timeout=SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False, uri=True
    )


def _is_writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)


def switch_to_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let others read while one writes. SQLite waits for others in everything but this."""
    give_up_at = time.monotonic() + SECONDS_TO_WAIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not is_busy or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)
        else:
            return


def store_refusal(path: Path, what: str, error: sqlite3.Error, damaged: str) -> EarmarkError:
    """Return what to say of a store that fails: a full disk endangers nothing, damage may."""
    name = getattr(error, "sqlite_errorname", "")
    for troubles, advice in _TROUBLES.items():
        if name.startswith(troubles):
            return EarmarkError(f"{path}: cannot be used now ({error}); {advice}")
    return EarmarkError(f"{path}: cannot be read as a store of {what} ({error}); {damaged}")
