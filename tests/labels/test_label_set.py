from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from earmark.errors import EarmarkError
from earmark.labels import LabelSet, find_problems, form_labels, label_set, rows_of
from earmark.storage import LINE, SourceTable

ANSWERS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from(["x", "y", "z", "", None]),
        st.sampled_from([True, True, True, True, False, None]),
    ),
    min_size=1,
    max_size=9,
)
STATES = arrays.arrays(
    np.int8, st.tuples(st.integers(0, 8), st.integers(1, 6)), elements=st.sampled_from([-1, 0, 1])
)


def rows(*lines: tuple[str, str, object]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "clip_id": [line[0] for line in lines],
            "class_id": [line[1] for line in lines],
            "present": [line[2] for line in lines],
        }
    )


@given(STATES)
def test_dense_states_come_back(states: np.ndarray) -> None:
    labels = LabelSet.from_dense(states)
    assert np.array_equal(labels.states(), states)
    assert np.array_equal(labels.n_positives, (states == 1).sum(axis=0))
    assert np.array_equal(labels.n_negatives, (states == -1).sum(axis=0))
    assert np.array_equal(labels.n_implicit, (states == 0).sum(axis=0))


@given(STATES, st.data())
def test_any_choice_of_clips_matches_the_dense_matrix(
    states: np.ndarray, data: st.DataObject
) -> None:
    labels = LabelSet.from_dense(states)
    some = st.lists(st.integers(0, max(len(states) - 1, 0)), unique=True)
    chosen = np.array(data.draw(some) if len(states) else [], dtype=np.int64)
    assert np.array_equal(labels.states(chosen), states[chosen])
    assert np.array_equal(labels.select(chosen).states(), states[chosen])


@given(STATES)
def test_rows_and_dense_states_are_the_same_labels(states: np.ndarray) -> None:
    labels = LabelSet.from_dense(states)
    again = LabelSet.from_rows(labels.rows(), labels.clip_ids, labels.class_ids)
    assert np.array_equal(again.states(), states)
    assert again.digest == labels.digest


@given(STATES, st.randoms())
def test_labels_are_sorted_by_clip_and_class(states: np.ndarray, random) -> None:
    labels = LabelSet.from_dense(states)
    clips, classes = np.nonzero(states)
    order = list(range(len(clips)))
    random.shuffle(order)
    numbers = (clips[order], classes[order], states[clips, classes][order] == 1)
    shuffled = LabelSet.from_numbers(labels.clip_ids, labels.class_ids, *numbers)
    assert shuffled.digest == labels.digest


@given(ANSWERS, st.booleans(), st.sampled_from(["class_id", "labels"]))
def test_repeated_answers_count_once_and_contradictions_are_refused(
    answers, has_present, column
) -> None:
    """Unsure answers and empty classes among them."""
    table = rows(*answers).rename({"class_id": column})
    table = table if has_present else table.drop("present")
    try:
        formed = form_labels(SourceTable.of(table, "t.csv"))
    except EarmarkError:
        return
    expected: dict[tuple[str, str], bool] = {}
    contradicts = False
    for clip, of_class, is_present in formed.long.rows.drop(LINE).drop_nulls().rows():
        contradicts |= expected.setdefault((clip, of_class), is_present) != is_present
    if contradicts:
        with pytest.raises(EarmarkError, match="contradicts"):
            LabelSet.from_table(formed.long, formed.clip_ids, formed.class_ids)
        return
    labels = LabelSet.from_table(formed.long, formed.clip_ids, formed.class_ids)
    assert sorted(labels.rows().rows()) == sorted((*pair, p) for pair, p in expected.items())


@pytest.mark.parametrize("n_clips", [0, 1, 3, 7])
def test_a_digest_is_that_of_all_names_and_arrays(n_clips: int, monkeypatch) -> None:
    monkeypatch.setattr(label_set, "_CLIPS_AT_ONCE", 3)
    states = np.resize(np.array([1, 0, -1], np.int8), (n_clips, 2))
    labels = LabelSet.from_dense(states, [f"clip é {i}" for i in range(n_clips)], ["ö", "b"])
    content = "\0".join(labels.clip_ids.to_list()) + "\1" + "\0".join(labels.class_ids) + "\1"
    numbers = (labels.starts, labels.columns, labels.present)
    whole = content.encode() + b"".join(array.tobytes() for array in numbers)
    assert labels.digest == hashlib.sha256(whole).hexdigest()[:16]


@pytest.mark.parametrize("name", ["labels.parquet", "labels.csv"])
def test_labels_are_written_and_read(tmp_path: Path, name: str) -> None:
    states = np.array([[1, 0, -1], [0, 0, 0], [0, 1, 0]], np.int8)
    labels = LabelSet.from_dense(states, ["a", "b", "c"], ["Speech", "Siren", "Car, passing"])
    labels.write(tmp_path / name)
    again = LabelSet.read(tmp_path / name, labels.clip_ids, labels.class_ids)
    assert np.array_equal(again.states(), states)


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_names_of_digits_stay_as_they_are_whatever_the_delimiter(
    tmp_path: Path, delimiter: str
) -> None:
    lines = ["clip_id,class_id,present", "007,01,yes", "7,01,no", "7,1e3,1"]
    text = "\r\n".join(lines).replace(",", delimiter)
    (tmp_path / "labels.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    labels = LabelSet.read(tmp_path / "labels.csv")
    assert labels.clip_ids.to_list() == ["007", "7"]
    assert labels.class_ids == ("01", "1e3")
    assert labels.states().tolist() == [[1, 0], [-1, 1]]


def test_bad_rows_of_files_are_named_by_line_or_row(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("clip_id,class_id,present\n\na,x,1\n\na,x,0\n")
    with pytest.raises(EarmarkError, match=r"labels\.csv, line 5: contradicts line 3"):
        LabelSet.read(tmp_path / "labels.csv")
    rows(("a", "x", True), ("a", "x", False)).write_parquet(tmp_path / "labels.parquet")
    with pytest.raises(EarmarkError, match=r"labels\.parquet, row 2: contradicts row 1"):
        LabelSet.read(tmp_path / "labels.parquet")


def test_our_own_table_may_be_empty(tmp_path: Path) -> None:
    LabelSet.from_dense([[0, 0]], ["a"], ["x", "y"]).write(tmp_path / "labels.parquet")
    assert LabelSet.read(tmp_path / "labels.parquet", ["a"], ["x", "y"]).states().sum() == 0


def test_without_a_list_of_clips_those_that_occur_are_taken() -> None:
    labels = LabelSet.from_rows(rows(("b", "Siren", True), ("a", "Speech", False)))
    assert labels.clip_ids.to_list() == ["b", "a"]
    assert labels.class_ids == ("Siren", "Speech")
    assert labels.states().tolist() == [[1, 0], [0, -1]]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (rows(("a", "x", "perhaps")), ["line 2", "'perhaps'", "true or false"]),
        (rows(("a", "x", True)).rename({"clip_id": "clip"}), ["'clip_id'", "'clip'"]),
        (rows(("a", "x", True), ("a", None, True)), ["line 3", "class_id is empty"]),
        (rows(("a", "x", True), ("z", "x", True)), ["line 3", "'z'", "not in the list"]),
        (rows(("a", "sirenn", True)), ["line 2", "'sirenn'", "did you mean 'siren'"]),
        (rows(("a", "x", True), ("a", "x", False)), ["line 3", "contradicts line 2"]),
    ],
)
def test_bad_rows_are_refused_with_their_line(table: pl.DataFrame, told: list[str]) -> None:
    with pytest.raises(EarmarkError) as error:
        LabelSet.from_rows(table, ["a", "b"], ["x", "siren"], origin="labels.csv")
    for words in ("labels.csv", *told):
        assert words in str(error.value)


def test_scores_in_place_of_states_are_noticed() -> None:
    with pytest.raises(EarmarkError, match=r"0\.5.*clip 1, class 0.*in place of labels"):
        LabelSet.from_dense(np.array([[1.0, 0.0], [0.5, -1.0]]))


def test_identifiers_must_be_unique_and_as_many_as_rows() -> None:
    with pytest.raises(EarmarkError, match="'a' is listed twice"):
        LabelSet.from_dense(np.zeros((2, 1)), ["a", "a"])
    with pytest.raises(EarmarkError, match="3 clip identifiers given for 2"):
        LabelSet.from_dense(np.zeros((2, 1)), ["a", "b", "c"])


def test_one_clip_is_asked_for_by_its_number() -> None:
    labels = LabelSet.from_dense([[1, 0], [0, -1], [0, 0]])
    assert labels.states(1).tolist() == labels.states([1]).tolist() == [[0, -1]]
    assert labels.states(-3).tolist() == [[1, 0]]
    assert labels.states([]).shape == (0, 2)
    assert labels.states([True, False, True]).tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ([3], "no clip 3 among 3"),
        (-4, "no clip -4"),
        ([0.5], "numbers of clips.*float64"),
        ([True, False], "a mask of all 3 clips"),
        ([[0, 1]], r"shape \(1, 2\)"),
        (["a"], "numbers of clips"),
    ],
)
def test_clips_that_are_not_there_are_named(chosen: object, told: str) -> None:
    with pytest.raises(EarmarkError, match=told):
        LabelSet.from_dense([[1, 0], [0, -1], [0, 0]]).states(chosen)


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
