from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sqlite3
import threading
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.review import JUDGEMENT_SCHEMA, Judgement, JudgementStore, combine_votes, store_refusal
from reviews import judgement, table, uuid

N_JUDGEMENTS = 10_000


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    given_in = [
        judgement(1, span_start=0.0, span_end=1.25),
        judgement(2, "unsure", whole_clip=True, shown_score=True),
    ]
    with JudgementStore(tmp_path / "j.sqlite") as store:
        assert store.add_all(given_in) == 2
        assert store.rows().schema == JUDGEMENT_SCHEMA
        assert store.rows().rows() == [one.row() for one in given_in]
    with JudgementStore(tmp_path / "j.sqlite", must_exist=True) as again:
        assert again.current().rows() == [one.row() for one in given_in]
        assert again.current("bob").is_empty()


def test_sending_an_answer_twice_stores_it_once(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "j.sqlite") as store:
        assert store.add(judgement(1))
        assert not store.add(judgement(1))
        with pytest.raises(EarmarkError, match="other content"):
            store.add(judgement(1, "not_present"))
        assert len(store.rows()) == 1


def test_a_batch_with_a_contradiction_stores_nothing(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "j.sqlite") as store:
        store.add(judgement(1))
        with pytest.raises(EarmarkError):
            store.add_all([judgement(2), judgement(1, "unsure")])
        assert len(store.rows()) == 1
        assert store.add(judgement(2))


def test_an_undo_takes_back_and_the_row_stays(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "j.sqlite") as store:
        first = judgement(1, item="x", span_start=1, span_end=2)
        second = judgement(2, "not_present", item="x")
        store.add_all([first, second])
        assert store.current()["answer"].to_list() == ["not_present"]
        store.add(judgement(3, None, item="x", retracts=second.id))
        assert store.current()["answer"].to_list() == ["present"]
        store.add(judgement(4, None, item="x", retracts=first.id))
        assert store.current().is_empty()
        assert len(store.rows()) == 4
        assert store.rows()["span_start"].to_list() == [1, None, None, None]


def test_nobody_takes_back_anothers_answer(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "j.sqlite") as store:
        store.add(judgement(1))
        store.add(judgement(2, None, rater="bob", item="item1", retracts=uuid(1)))
        assert len(store.current()) == 1


def test_rows_are_never_updated_or_deleted(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "j.sqlite") as store:
        store.add(judgement(1))
    connection = sqlite3.connect(tmp_path / "j.sqlite")
    for statement in ("UPDATE judgement SET answer = 'unsure'", "DELETE FROM judgement"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def _write(path: Path, numbers: range) -> None:
    with JudgementStore(path) as store:
        for number in numbers:
            store.add(judgement(number))


def test_two_processes_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    overlap = 500  # both send these
    ranges = (range(N_JUDGEMENTS // 2 + overlap), range(N_JUDGEMENTS // 2, N_JUDGEMENTS))
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, numbers)) for numbers in ranges]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    with JudgementStore(path) as store:
        rows = store.rows().sort("at").rows()
        assert rows == [judgement(number).row() for number in range(N_JUDGEMENTS)]
        assert len(store.current()) == N_JUDGEMENTS


def test_a_new_store_waits_for_another_process_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.3, other.rollback).start()
    with JudgementStore(path) as store:
        assert store.add(judgement(1))
    other.close()


def _write_and_die(path: Path) -> None:
    store = JudgementStore(path)
    for number in range(3):
        store.add(judgement(number))
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_answer_survives_a_kill_right_after_it(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    victim = multiprocessing.get_context("spawn").Process(target=_write_and_die, args=(path,))
    victim.start()
    victim.join()
    assert victim.exitcode == -signal.SIGKILL
    with JudgementStore(path) as store:
        assert store.current()["item"].to_list() == ["item0", "item1", "item2"]


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE judgement (id TEXT)")
    connection.commit()
    connection.close()


def _newer(path: Path) -> None:
    JudgementStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_foreign, "another program"),
        (_newer, "version 99"),
        (lambda path: path.write_bytes(b"not a database, but long enough to look" * 40), "damaged"),
    ],
)
def test_other_files_are_refused_and_left_alone(tmp_path: Path, spoil, told: str) -> None:
    path = tmp_path / "other.sqlite"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(EarmarkError, match=told):
        JudgementStore(path)
    assert path.read_bytes() == before
    with JudgementStore(tmp_path / "j.sqlite") as store, pytest.raises(EarmarkError, match=told):
        store.merge(path)


def test_a_missing_store_is_refused_where_it_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="earmark review"):
        JudgementStore(tmp_path / "none.sqlite", must_exist=True)
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"answer": "maybe"},
        {"answer": None},
        {"retracts": uuid(7)},
        {"heard_seconds": -1},
        {"heard_seconds": float("nan")},
        {"span_start": 1},
        {"span_end": 1},
        {"span_start": 2, "span_end": 2},
        {"span_start": -1, "span_end": 2},
        {"span_start": 1, "span_end": float("inf")},
        {"span_start": float("nan"), "span_end": 2},
        {"at": "2026-03-01T12:00:00"},
        {"rater": ""},
        {"id": "not-a-uuid"},
        {"score": 1},
    ],
)
def test_a_malformed_judgement_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        judgement(1, **changes)


@st.composite
def histories(draw: st.DrawFn) -> list[Judgement]:
    """Answers of two raters to three items in any order, some of them taken back."""
    made: list[Judgement] = []
    for number in range(draw(st.integers(0, 8))):
        rater, item = draw(st.sampled_from("ab")), draw(st.sampled_from("xyz"))
        keys = {"rater": rater, "item": item, "clip_id": item}
        undone = draw(st.sampled_from([None, *made]))
        if undone is None or undone.answer is None:
            made.append(judgement(number, draw(st.sampled_from(["present", "unsure"])), **keys))
        else:
            made.append(judgement(number, None, **keys, retracts=undone.id))
    return draw(st.permutations(made))


def _slow_current(rows: list[Judgement]) -> set[tuple[object, ...]]:
    """The answer stored last by rater and item that none of the rater's rows retracts."""
    retracted = {(row.rater, row.retracts) for row in rows}
    last = {}
    for row in rows:
        if row.answer is not None and (row.rater, row.id) not in retracted:
            last[row.rater, row.item] = row.row()
    return set(last.values())


@settings(max_examples=40, deadline=None)
@given(histories())
def test_current_is_the_last_unretracted_answer(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Judgement]
) -> None:
    with JudgementStore(tmp_path_factory.mktemp("store") / "j.sqlite") as store:
        store.add_all(rows)
        assert set(store.current().rows()) == _slow_current(rows)


@settings(max_examples=25, deadline=None)
@given(histories(), st.integers(0, 8), st.integers(0, 8))
def test_merging_takes_every_row_once_after_those_here(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Judgement], cut: int, from_: int
) -> None:
    folder = tmp_path_factory.mktemp("stores")
    here, there = rows[:cut], rows[from_:]
    with JudgementStore(folder / "there.sqlite") as store:
        store.add_all(there)
    with JudgementStore(folder / "here.sqlite") as store:
        store.add_all(here)
        new = [row for row in there if row not in here]
        assert store.merge(folder / "there.sqlite") == len(new)
        assert store.merge(folder / "there.sqlite") == 0
        assert store.rows().rows() == [row.row() for row in here + new]
        assert set(store.current().rows()) == _slow_current(here + new)


def test_an_answer_dated_far_ahead_does_not_win(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "j.sqlite") as store:
        store.add(judgement(1, "present", item="x", at="9999-12-31T00:00:00Z"))
        store.add(judgement(2, "not_present", item="x"))
        assert store.current()["answer"].to_list() == ["not_present"]


def _tampered(path: Path, *statements: str) -> Path:
    """Write a store with an answer, and change it as its writer never would."""
    with JudgementStore(path) as store:
        store.add(judgement(1))
    connection = sqlite3.connect(path)
    for statement in ("DROP TRIGGER never_updated", "DROP TRIGGER never_deleted", *statements):
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("at = 'zzz'", "row 1: at: .*got 'zzz'"),
        ("at = '2026-03-01T12:00:00'", "row 1: at: .*timezone"),
        ("id = 'zzz'", "row 1: id: .*uuid"),
        ("rater = ''", "row 1: rater: "),
        ("heard_seconds = 1e300", "row 1: heard_seconds: "),
        ("retracts = 'zzz', answer = NULL", "row 1: retracts: "),
        ("clip_id = printf('%.*c', 5000, 'x')", "row 1: clip_id: "),
        ("clip_id = 'c' || char(0)", r"row 1: clip_id: .*control characters, got 'c\\x00'"),
    ],
)
def test_a_row_that_the_page_would_not_store_is_not_merged(
    tmp_path: Path, change: str, message: str
) -> None:
    theirs = _tampered(tmp_path / "theirs.sqlite", f"UPDATE judgement SET {change}")
    with JudgementStore(tmp_path / "j.sqlite") as store:
        with pytest.raises(EarmarkError, match=message):
            store.merge(theirs)
        assert store.rows().is_empty()


_ENDLESS = (
    "CREATE VIEW judgement AS WITH RECURSIVE endless(n) AS "
    "(SELECT 1 UNION ALL SELECT n + 1 FROM endless) SELECT "
    + ", ".join(f"printf('%d', n) AS {name}" for name in JUDGEMENT_SCHEMA)
    + " FROM endless"
)
_GENERATED = "CREATE TABLE judgement (" + ", ".join(
    f"{name} GENERATED ALWAYS AS (hex(zeroblob(500000000))) VIRTUAL" if name == "answer" else name
    for name in JUDGEMENT_SCHEMA
)


@pytest.mark.parametrize(
    "schema",
    [
        _ENDLESS,
        f"CREATE VIRTUAL TABLE judgement USING fts5({', '.join(JUDGEMENT_SCHEMA)})",
        f"{_GENERATED})",
        "CREATE TABLE judgement (id TEXT)",
    ],
    ids=["view", "virtual table", "generated column", "other columns"],
)
def test_only_a_plain_table_of_rows_is_merged(tmp_path: Path, schema: str) -> None:
    theirs = _tampered(tmp_path / "theirs.sqlite", "DROP TABLE judgement", schema)
    before = theirs.read_bytes()
    with JudgementStore(tmp_path / "j.sqlite") as store:
        with pytest.raises(EarmarkError, match="not a store of judgements: expected a table"):
            store.merge(theirs)
        assert store.rows().is_empty()
    assert theirs.read_bytes() == before


def test_a_large_store_is_merged(tmp_path: Path) -> None:
    """What ends the reading of an endless store leaves a long one alone."""
    (row,) = table(judgement(0, clip_id="c")).rows()
    with JudgementStore(tmp_path / "theirs.sqlite"):
        pass
    connection = sqlite3.connect(tmp_path / "theirs.sqlite")
    rows = ((str(uuid(number)), *row[1:]) for number in range(104_000))
    connection.executemany(f"INSERT INTO judgement VALUES ({', '.join('?' * len(row))})", rows)
    connection.commit()
    connection.close()
    with JudgementStore(tmp_path / "j.sqlite") as store:
        assert store.merge(tmp_path / "theirs.sqlite") == 104_000


def test_a_stored_row_without_a_time_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = _tampered(tmp_path / "j.sqlite", "UPDATE judgement SET at = 'zzz'")
    with JudgementStore(path) as store:
        store.add(judgement(2, item="item1"))
        with pytest.warns(EarmarkWarning, match="left out 1 judgements without a valid time.*zzz"):
            assert store.current()["id"].to_list() == [str(uuid(2))]


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        (("present",), "present"),
        (("present", "present", "not_present"), "present"),
        (("present", "not_present"), "unsure"),
        (("present", "unsure"), "unsure"),
        (("present", "not_present", "unsure"), "unsure"),
        (("present", "cannot_play"), "present"),
        (("cannot_play", "cannot_play"), "cannot_play"),
    ],
)
def test_more_than_half_of_the_raters_decide(answers: tuple[str, ...], verdict: str) -> None:
    for order in itertools.permutations(answers):
        rows = [judgement(i, a, rater=f"r{i}", item="x") for i, a in enumerate(order)]
        (row,) = combine_votes(table(*rows), "item").iter_rows(named=True)
        assert row["answer"] == verdict
        assert row["n_raters"] == len([a for a in answers if a != "cannot_play"]) or (
            verdict == "cannot_play"
        )


def test_a_rater_who_contradicts_herself_is_unsure() -> None:
    rows = [judgement(1, "present", clip_id="c"), judgement(2, "not_present", clip_id="c")]
    verdict = combine_votes(table(*rows), ["clip_id", "class_id"])
    assert verdict["answer"].to_list() == ["unsure"]
    assert verdict["n_raters"].to_list() == [1]


def test_no_judgements_give_no_verdicts() -> None:
    assert combine_votes(pl.DataFrame(schema=JUDGEMENT_SCHEMA), "item").is_empty()


def test_a_full_disk_is_not_called_damage(tmp_path: Path) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    told = str(store_refusal(tmp_path / "j.sqlite", "judgements", error, "damaged?"))
    assert "make room" in told
    assert "damaged" not in told
    error.sqlite_errorname = "SQLITE_CORRUPT"
    assert "damaged?" in str(store_refusal(tmp_path, "judgements", error, "damaged?"))


@pytest.mark.parametrize("fill", [b"\xff", b"\0", b"a"])
def test_a_damaged_page_is_named_whenever_it_is_met(tmp_path: Path, fill: bytes) -> None:
    """The first page is sound: the store opens, and fails where it is read or written."""
    path = tmp_path / "j.sqlite"
    with JudgementStore(path) as store:
        store.add_all([judgement(number) for number in range(200)])
    content = path.read_bytes()
    path.write_bytes(content[:4096] + fill * (len(content) - 4096))
    with JudgementStore(path) as store:
        for use in (store.rows, store.current, lambda: store.add(judgement(201))):
            with pytest.raises(EarmarkError, match=r"j\.sqlite: cannot be read as a store of"):
                use()


@pytest.mark.parametrize("has_log", [False, True])
def test_answers_in_a_folder_that_may_not_be_written_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_log: bool
) -> None:
    path = tmp_path / "of a review #1?.sqlite"
    writer = JudgementStore(path)
    writer.add(judgement(1))
    if not has_log:  # what was written stands in the file once all have closed it
        writer.close()
    before = {one.name for one in tmp_path.iterdir()}
    monkeypatch.setattr(os, "access", lambda *_: False)
    with JudgementStore(path, must_exist=True) as store:
        assert store.current().rows() == [judgement(1).row()]
        with pytest.raises(EarmarkError, match=r"readonly database.*may its folder be written to"):
            store.add(judgement(2))
        assert {one.name for one in tmp_path.iterdir()} == before
    writer.close()
