"""Rows of labels: mistakes with their lines."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from earmark.labels import find_problems, rows_of
from earmark.storage import SourceTable

NAMES = st.sampled_from(["", "a", "b", "aa", "é", "0001", "1", "-x_1Y9zzzzz_30000", "x" * 40])
ROWS = st.lists(NAMES | st.none(), max_size=12)


def texts(names: list[str | None]) -> pl.Series:
    return pl.Series("clip_id", names, pl.String)


@given(ROWS, st.lists(NAMES, max_size=12, unique=True))
def test_rows_are_those_of_the_list(names: list[str | None], among: list[str]) -> None:
    expected = [among.index(name) if name in among else None for name in names]
    assert rows_of(texts(names), texts(among)).to_list() == expected


def table_of(*lines: tuple[str, str, object]) -> SourceTable:
    table = pl.DataFrame(lines, schema=["clip_id", "class_id", "present"], orient="row")
    return SourceTable.of(table, "labels.csv")


def test_it_names_everything_with_its_line() -> None:
    table = table_of(
        ("a", "x", True),
        ("nobody", "x", True),
        ("a", "z", True),
        ("a", "x", True),
        ("b", "x", True),
        ("b", "x", False),
    )
    findings = find_problems(table, ["a", "b"], ["x", "y"])
    assert [(finding.kind, finding.line) for finding in findings] == [
        ("unknown clip", 3),
        ("unknown class", 4),
        ("duplicate row", 5),
        ("contradictory rows", 7),
        ("class without positives", None),
    ]
    assert "'y'" in findings[-1].message
    assert [finding.is_error for finding in findings] == [True, True, False, True, False]


def test_it_says_when_nobody_ever_answered_no() -> None:
    findings = find_problems(table_of(("a", "x", True)), ["a"], ["x"])
    assert [finding.kind for finding in findings] == ["no explicit negatives"]


def test_it_finds_nothing_in_good_labels() -> None:
    assert find_problems(table_of(("a", "x", True), ("b", "x", False)), ["a", "b"], ["x"]) == []


def test_unsure_answers_contradict_nobody() -> None:
    table = table_of(("a", "x", "unsure"), ("a", "x", "yes"), ("b", "x", "no"), ("c", "x", "?"))
    findings = find_problems(table, ["a", "b"], ["x"])
    assert [finding.message for finding in findings] == [
        "line 5: clip 'c' is not in the list of clips"
    ]
