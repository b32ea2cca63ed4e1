"""Names by number: the quick way against plain ones, on names of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import plain_names
from earmark.labels import loops, name_numbers
from earmark.labels.name_numbers import number_names, rows_of
from earmark.runs import tables
from earmark.runs.tables import are_distinct

NAMES = st.sampled_from(["", "a", "b", "aa", "é", "0001", "1", "-x_1Y9zzzzz_30000", "x" * 40])
ROWS = st.lists(NAMES | st.none(), max_size=12)
ORDERS: dict[str, Callable[[np.random.Generator, int], NDArray[np.int64]]] = {
    "as listed": lambda rng, n: np.repeat(np.arange(n), rng.integers(0, 4, n)),
    "few of the list": lambda rng, n: np.sort(rng.choice(n, n // 40, replace=False)),
    "backwards": lambda _, n: np.arange(n)[::-1].copy(),
    "shuffled": lambda rng, n: rng.integers(0, n, 3 * n),
}
BROKEN: dict[str, dict[str, tuple[int, Callable[[Any], Any]]]] = {
    "number_keys": {
        "keys: expected an array of int64": (0, lambda keys: keys.astype(np.int32)),
        "numbers": (1, lambda numbers: numbers[:-1].copy()),
        "firsts": (2, lambda firsts: firsts[:-1].copy()),
        "distinct": (3, lambda distinct: distinct[:-1].copy()),
    },
    "find_keys": {
        "keys: expected an array without gaps": (0, lambda keys: np.repeat(keys, 2)[::2]),
        "among": (1, lambda among: among.astype(np.float64)),
        "rows": (2, lambda rows: rows[:-1].copy()),
    },
}


def texts(names: list[str | None]) -> pl.Series:
    return pl.Series("clip_id", names, pl.String)


def keys_of(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return keys of which many share their upper or their lower bits."""
    return np.where(places % 2, places << 40, places) - 7


def arguments(name: str, order: str, n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    keys = keys_of(ORDERS[order](rng, n))
    if name == "number_keys":
        return [keys, *np.zeros((2, len(keys)), np.int32), np.zeros_like(keys)]
    among = keys_of(np.arange(n)[np.arange(n) % 7 != 3])
    return [keys, among, np.zeros(len(keys), np.int32)]


@pytest.mark.parametrize("n", [1, 100, 5_000])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", BROKEN)
def test_loops_equal_their_twins(name: str, order: str, n: int) -> None:
    found, expected = arguments(name, order, n), arguments(name, order, n)
    assert getattr(loops, name)(*found) == getattr(plain_names, name)(*expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name in BROKEN for what in BROKEN[name]]
)
def test_loops_refuse_what_does_not_fit(name: str, what: str) -> None:
    given = arguments(name, "shuffled", 10)
    place, breaks = BROKEN[name][what]
    given[place] = breaks(given[place])
    with pytest.raises((TypeError, ValueError), match=what):
        getattr(loops, name)(*given)
    with pytest.raises(TypeError, match="arguments"):
        getattr(loops, name)(*given[:-1])


@pytest.fixture(params=["usual", "first letter", "one for all"])
def keyed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give names keys that are good, or the same for many of them."""
    lengths = {"first letter": 1, "one for all": 0}
    if request.param in lengths:

        def key_names(names: pl.Series) -> NDArray[np.int64]:
            first = names.str.slice(0, lengths[request.param])
            return first.hash().to_numpy().view(np.int64)

        for module in (name_numbers, tables):
            monkeypatch.setattr(module, "key_names", key_names)
    return str(request.param)


def test_names_are_numbered_as_they_come(keyed: str) -> None:
    check_numbers()


@given(ROWS)
def check_numbers(rows: list[str | None]) -> None:
    numbered = number_names(texts(rows))
    names = list(dict.fromkeys(rows))
    assert numbered.names.to_list() == names
    assert numbered.numbers.tolist() == [names.index(name) for name in rows]
    assert (numbered.numbers.dtype, numbered.names.name) == (np.uint32, "clip_id")


def test_rows_are_those_of_a_join(keyed: str) -> None:
    check_rows()


@given(ROWS, ROWS)
def check_rows(names: list[str | None], among: list[str | None]) -> None:
    """Null is nowhere, and a name that is listed twice is found twice."""
    joined = pl.DataFrame({"name": texts(names)}).join(
        pl.DataFrame({"name": texts(among)}).with_row_index("row"),
        on="name",
        how="left",
        maintain_order="left",
    )
    found = rows_of(texts(names), texts(among))
    assert found.to_list() == joined["row"].to_list()
    assert found.dtype == joined["row"].dtype


def test_names_that_come_twice_are_noticed(keyed: str) -> None:
    check_distinct()


@given(ROWS)
def check_distinct(names: list[str | None]) -> None:
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
