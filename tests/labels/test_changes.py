from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest

from earmark.labels import LabelSet, find_changes

WORDS = {1: "present", -1: "not_present", 0: "implicit"}
EXPLICIT = ("present", "not_present")


def random_labels(seed: int, clips: range, classes: range) -> LabelSet:
    rng = np.random.default_rng(seed)
    states = rng.choice(np.array([0, 0, 1, -1], np.int8), size=(len(clips), len(classes)))
    return LabelSet.from_dense(states, [f"c{i}" for i in clips], [f"k{i}" for i in classes])


def plain_states(labels: LabelSet) -> dict[tuple[str, str], str]:
    states = labels.states()
    return {
        (clip_id, class_id): WORDS[int(states[row, column])]
        for row, clip_id in enumerate(labels.clip_ids)
        for column, class_id in enumerate(labels.class_ids)
    }


def plain_changes(before: LabelSet, after: LabelSet) -> set[tuple[object, ...]]:
    """Go through every label of both sides, one by one."""
    one, other = plain_states(before), plain_states(after)
    found = set()
    for pair in {**one, **other}:
        was, now = one.get(pair), other.get(pair)
        if was == now or {was, now} <= {None, "implicit"}:
            continue
        if was not in EXPLICIT:
            kind = "added"
        else:
            kind = "changed" if now in EXPLICIT else "removed"
        found.add((*pair, kind, was, now))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_every_label_that_differs_is_found(seed: int) -> None:
    before = random_labels(seed, range(12), range(4))
    after = random_labels(seed + 100, range(3, 15), range(1, 6))
    changes = find_changes(before, after)
    expected = plain_changes(before, after)
    assert set(changes.table.rows()) == expected
    assert len(changes.table) == len(expected)
    kinds = Counter(row[2] for row in expected)
    assert {kind: changes.n_of(kind) for kind in kinds} == kinds
    by_class = {row["class_id"]: row for row in changes.by_class.to_dicts()}
    for class_id, row in by_class.items():
        own = Counter(one[2] for one in expected if one[1] == class_id)
        assert {name: row[name] for name in ("added", "removed", "changed")} == {
            name: own[name] for name in ("added", "removed", "changed")
        }
    assert sum(changes.by_states["n"]) == len(expected)


def test_clips_and_classes_of_one_side_are_named() -> None:
    changes = find_changes(
        random_labels(0, range(3), range(2)), random_labels(0, range(1, 4), range(1, 2))
    )
    assert [one.to_list() for one in changes.only_before] == [["c0"], ["k0"]]
    assert [one.to_list() for one in changes.only_after] == [["c3"], []]
    assert not changes.is_none


def test_order_is_no_difference() -> None:
    labels = random_labels(0, range(6), range(3))
    turned = LabelSet.from_rows(
        labels.rows().reverse(), labels.clip_ids.reverse(), labels.class_ids[::-1]
    )
    assert find_changes(labels, turned).is_none


def test_rulings_are_states() -> None:
    labels = LabelSet.from_dense([[1, 0, 0]], ["x"], "abc")
    rows = pl.DataFrame({"clip_id": ["x", "x"], "class_id": ["b", "c"], "present": [True, False]})
    rulings = LabelSet.from_rows(rows, labels.clip_ids, labels.class_ids)
    changes = find_changes(labels, labels, None, rulings)
    assert changes.table.rows() == [
        ("x", "b", "changed", "implicit", "ignored"),
        ("x", "c", "changed", "implicit", "cleared"),
    ]
