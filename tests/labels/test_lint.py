from __future__ import annotations

import polars as pl

from earmark.labels.lint import find_problems
from earmark.runs.tables import SourceTable


def rows(*lines: tuple[str, str, object]) -> SourceTable:
    table = pl.DataFrame(lines, schema=["clip_id", "class_id", "present"], orient="row")
    return SourceTable.of(table, "labels.csv")


def test_it_names_everything_with_its_line() -> None:
    table = rows(
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
    findings = find_problems(rows(("a", "x", True)), ["a"], ["x"])
    assert [finding.kind for finding in findings] == ["no explicit negatives"]


def test_it_finds_nothing_in_good_labels() -> None:
    assert find_problems(rows(("a", "x", True), ("b", "x", False)), ["a", "b"], ["x"]) == []


def test_unsure_answers_contradict_nobody() -> None:
    table = rows(("a", "x", "unsure"), ("a", "x", "yes"), ("b", "x", "no"), ("c", "x", "?"))
    findings = find_problems(table, ["a", "b"], ["x"])
    assert [finding.message for finding in findings] == [
        "line 5: clip 'c' is not in the list of clips"
    ]
