"""Rows of labels: mistakes with their lines, and names of every kind as numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from earmark.labels import find_problems, number_names, rows_of
from earmark.storage import SourceTable, are_distinct

NAMES = st.sampled_from(["", "a", "b", "aa", "é", "0001", "1", "-x_1Y9zzzzz_30000", "x" * 40])
ROWS = st.lists(NAMES | st.none(), max_size=12)
ORDERS: dict[str, Callable[[np.random.Generator, int], NDArray[np.int64]]] = {
    "as listed": lambda rng, n: np.repeat(np.arange(n), rng.integers(0, 4, n)),
    "few of the list": lambda rng, n: np.sort(rng.choice(n, n // 40, replace=False)),
    "backwards": lambda _, n: np.arange(n)[::-1].copy(),
    "shuffled": lambda rng, n: rng.integers(0, n, 3 * n),
}


def texts(names: list[str | None]) -> pl.Series:
    return pl.Series("clip_id", names, pl.String)


@given(ROWS)
def test_names_are_numbered_as_they_come(rows: list[str | None]) -> None:
    numbered = number_names(texts(rows))
    names = list(dict.fromkeys(rows))
    assert numbered.names.to_list() == names
    assert numbered.numbers.tolist() == [names.index(name) for name in rows]
    assert (numbered.numbers.dtype, numbered.names.name) == (np.uint32, "clip_id")


@given(ROWS, st.lists(NAMES, max_size=12, unique=True))
def test_rows_are_those_of_the_list(names: list[str | None], among: list[str]) -> None:
    expected = [among.index(name) if name in among else None for name in names]
    assert rows_of(texts(names), texts(among)).to_list() == expected


@given(ROWS)
def test_names_that_come_twice_are_noticed(names: list[str | None]) -> None:
    assert are_distinct(texts(names)) == (len(set(names)) == len(names))


@pytest.mark.parametrize("order", ORDERS)
def test_many_names_in_pieces_are_found(order: str) -> None:
    n = 3_000
    listed = pl.Series([f"{place * 7919 % n}_{place}" for place in range(n)])
    rng = np.random.default_rng(0)
    places = ORDERS[order](rng, n)
    names = listed.gather(places)
    pieces = pl.concat([names.head(1_000), pl.Series(["other"]), names.slice(1_000)], rechunk=False)
    expected = [*places[:1_000].tolist(), None, *places[1_000:].tolist()]
    assert rows_of(pieces, listed).to_list() == expected
    numbered = number_names(pieces)
    assert numbered.names.gather(numbered.numbers).equals(pieces)
    assert numbered.names.equals(pieces.unique(maintain_order=True))


def test_numbers_that_come_twice_are_noticed() -> None:
    assert are_distinct(pl.Series([1, 2]))
    assert not are_distinct(pl.Series([1, 1]))
    assert are_distinct(pl.Series([[1], [2]]))


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
