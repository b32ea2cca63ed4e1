"""A store of judgements in trouble: full, held by another program, or read-only."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from uuid import UUID

from earmark.errors import EarmarkError
from earmark.review import Judgement, JudgementStore


@contextmanager
def store_trouble(store: JudgementStore, trouble: str) -> Iterator[str]:
    """Let a store fail; yield what is said of it."""
    connection = store._connection
    if trouble == "full":
        (n_pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {n_pages}")
        _fill(store)
        yield "the disk is full"
        connection.execute("PRAGMA max_page_count = 1000000")
    elif trouble == "locked":
        connection.execute("PRAGMA busy_timeout = 100")
        with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield "another program holds it"
    else:
        connection.execute("PRAGMA query_only = ON")
        yield "may its folder be written to?"
        connection.execute("PRAGMA query_only = OFF")


def _fill(store: JudgementStore) -> None:
    """Add answers of nobody until there is no room for one more."""
    now = datetime.now(UTC)
    for number in itertools.count(1):
        filler = {"id": UUID(int=number), "at": now, "rater": "nobody", "item": "none"}
        try:
            store.add(Judgement(**filler, clip_id="none", class_id="none", answer="unsure"))
        except EarmarkError:
            return
