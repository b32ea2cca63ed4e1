from __future__ import annotations

import polars as pl

from earmark.report import flags_to_hear


def made_flags(chances: dict[str, list[float | None]]) -> pl.DataFrame:
    rows = [
        {"clip_id": f"{name}{i}", "class_id": name, "rank": i + 1, "chance": chance}
        for name, own in chances.items()
        for i, chance in enumerate(own)
    ]
    schema = {"clip_id": pl.String, "class_id": pl.String, "rank": pl.Int32, "chance": pl.Float32}
    return pl.DataFrame(rows, schema)


def chosen(flags: pl.DataFrame, n_most: int) -> list[str]:
    return flags_to_hear(flags, n_most)["clip_id"].to_list()


def test_the_likeliest_come_first_whatever_their_class() -> None:
    flags = made_flags({"a": [0.35, 0.2], "b": [0.99, 0.5]})
    assert chosen(flags, 3) == ["b0", "b1", "a0"]


def test_one_class_does_not_fill_the_list() -> None:
    flags = made_flags({"a": [0.9] * 50} | {f"c{i}": [0.1, 0.05] for i in range(20)})
    heard = flags_to_hear(flags, 20)
    assert heard["class_id"].to_list()[:3] == ["a"] * 3
    assert (heard["class_id"] == "a").sum() == 3
    assert len(heard) == 20


def test_few_classes_fill_the_list_together() -> None:
    flags = made_flags({"a": [0.9] * 50, "b": [0.8] * 50})
    assert flags_to_hear(flags, 40)["class_id"].value_counts().sort("class_id")[
        "count"
    ].to_list() == [20, 20]


def test_without_chances_classes_take_turns_by_rank() -> None:
    flags = made_flags({"a": [None] * 3, "b": [None] * 3})
    assert chosen(flags, 4) == ["a0", "b0", "a1", "b1"]


def test_what_has_no_chance_comes_last() -> None:
    flags = made_flags({"a": [None] * 3, "b": [0.01]})
    assert chosen(flags, 2) == ["b0", "a0"]


def test_no_flags_are_no_list() -> None:
    assert chosen(made_flags({}), 5) == []
