from __future__ import annotations

import contextlib
import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.labels import (
    Ontology,
    Reading,
    label_set,
    read_class_list,
    read_clip_list,
    read_label_file,
)
from earmark.scores import ScoreFile, arrange
from earmark.storage import arrays

STATES = np.array([[1, 0, -1], [0, 0, 0], [0, 1, 1]], np.int8)
IDS = Ontology(("a", "b", "c"), names={"a": "Ape", "b": "Bee", "c": "Cat"})
SHARED_FOLDER = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def states_of(path, n_clips=3, clip_ids=None, classes=IDS, **options):
    scores = ScoreFile(Path("scores.npy"), (n_clips, len(classes.class_ids)))
    return arrange(read_label_file(path, **options), scores, clip_ids, classes).states()


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_rows_are_put_in_the_order_of_the_scores(tmp_path, ending):
    rows = pl.DataFrame(
        {
            "clip_id": ["z", "x", "x", "z"],
            "class_id": ["c", "c", "a", "b"],
            "present": [True, False, True, True],
        }
    )
    path = tmp_path / f"labels.{ending}"
    if ending == "parquet":
        rows.write_parquet(path)
    else:
        rows.write_csv(path, separator="\t" if ending == "tsv" else ",")
    states = states_of(path, clip_ids=pl.Series(["x", "y", "z"]))
    np.testing.assert_array_equal(states, STATES)


def test_lists_may_have_any_delimiter_and_the_row_numbers_of_pandas(tmp_path):
    (tmp_path / "classes.csv").write_text("class_id;name\nb;Bee, wild\na;Ape\n")
    assert read_class_list(tmp_path / "classes.csv").names == {"b": "Bee, wild", "a": "Ape"}
    (tmp_path / "clips.csv").write_text(",clip_id,n\n0,007,1\n1,08,2\n")
    assert read_clip_list(tmp_path / "clips.csv").to_list() == ["007", "08"]
    (tmp_path / "clips.tsv").write_text("clip_id\na, b\nc\n")
    assert read_clip_list(tmp_path / "clips.tsv").to_list() == ["a, b", "c"]
    (tmp_path / "gap.csv").write_text("name,clip_id\n\nx,a\ny,\n")
    with pytest.raises(EarmarkError, match=r"gap\.csv, line 4: clip_id is empty"):
        read_clip_list(tmp_path / "gap.csv")


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32])
def test_a_dense_matrix_is_read_as_it_stands(tmp_path, dtype):
    np.save(tmp_path / "states.npy", STATES.astype(dtype))
    np.testing.assert_array_equal(states_of(tmp_path / "states.npy"), STATES)


def test_an_archive_may_name_its_clips_and_classes_in_another_order(tmp_path):
    path = tmp_path / "labels.npz"
    np.savez(path, labels=STATES[::-1, ::-1], clip_ids=["z", "y", "x"], class_ids=["c", "b", "a"])
    states = states_of(path, clip_ids=pl.Series(["x", "y", "z"]))
    np.testing.assert_array_equal(states, STATES)


def test_of_several_matrices_one_has_to_be_named(tmp_path):
    path = tmp_path / "labels.npz"
    np.savez(path, one=STATES, two=STATES)
    with pytest.raises(EarmarkError, match=r"one \(3, 3\), two \(3, 3\)"):
        read_label_file(path)
    np.testing.assert_array_equal(states_of(path, key="two"), STATES)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.csv", "clip_id,class_id,present\nx,a,1\nx,a,0\n", "line 3: contradicts line 2"),
        ("l.csv", "clip_id,class_id,present\nx,a,perhaps\n", "line 2: present must say"),
        ("l.csv", "what,class\nx,a\n", "no column names the clips"),
        ("l.csv", "clip_id,class_id,present\n", "not one label"),
        ("l.csv", "clip_id,class_id\nx,q\n", "no score column for the classes 'q'"),
        ("l.csv", "clip_id,class_id\nw,a\n", "no row for the clips 'w'"),
        ("l.txt", "x", "got '.txt'"),
    ],
)
def test_says_what_is_wrong_with_a_file(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(EarmarkError, match=message):
        states_of(path, 1, pl.Series(["x"]))


def test_a_score_in_place_of_a_state_is_named_with_its_row(tmp_path):
    states = np.zeros((20_000, 2), np.float32)
    states[17_000, 1] = 0.3
    np.save(tmp_path / "states.npy", states)
    with pytest.raises(EarmarkError, match=r"got 0\.3.* at clip 17000, class 1"):
        read_label_file(tmp_path / "states.npy")


def test_a_dense_file_that_lacks_a_scored_clip_is_refused(tmp_path):
    path = tmp_path / "labels.npz"
    np.savez(path, labels=STATES, clip_ids=["x", "y", "z"])
    with pytest.raises(EarmarkError, match="no labels for the clips 'w'"):
        states_of(path, 4, pl.Series(["x", "y", "z", "w"]))


def test_what_is_no_table_is_read_without_a_say(tmp_path):
    np.save(tmp_path / "states.npy", STATES)
    with pytest.raises(EarmarkError, match="no table of labels"):
        read_label_file(tmp_path / "states.npy", reading=Reading(zeros="absent"))


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "labels.npy", np.array([{"a": 1}], object), allow_pickle=True)
    (tmp_path / "pickled.npy").write_bytes(pickle.dumps(STATES))
    for name in ("labels.npy", "pickled.npy"):
        with pytest.raises(EarmarkError):
            read_label_file(tmp_path / name)


def test_class_lists_come_as_text_as_audioset_s_file_and_with_parents(tmp_path):
    (tmp_path / "c.txt").write_text("dog\n\ncat \n")
    (tmp_path / "c.csv").write_text('index,mid,display_name\n1,/m/1,"B, b"\n0,/m/0,A\n')
    (tmp_path / "p.csv").write_text("class_id,parents\ndog,animal;pet\nrain,\n")
    assert read_class_list(tmp_path / "c.txt").class_ids == ("dog", "cat")
    audioset = read_class_list(tmp_path / "c.csv")
    assert audioset.class_ids == ("/m/0", "/m/1")
    assert audioset.name("/m/1") == "B, b"
    assert read_class_list(tmp_path / "p.csv").parents == {"dog": ("animal", "pet"), "rain": ()}


def test_lists_with_a_name_twice_or_without_the_column_are_refused(tmp_path):
    (tmp_path / "c.txt").write_text("dog\ndog\n")
    with pytest.raises(EarmarkError, match="'dog' is listed twice"):
        read_class_list(tmp_path / "c.txt")
    (tmp_path / "c.csv").write_text("clips\nx\n")
    with pytest.raises(EarmarkError, match="expected a column clip_id"):
        read_clip_list(tmp_path / "c.csv")
    with pytest.raises(EarmarkError, match="no such file"):
        read_clip_list(tmp_path / "none.csv")


@SHARED_FOLDER
@given(
    st.binary(max_size=300),
    st.sampled_from(["csv", "tsv", "parquet", "npy", "npz", "txt"]),
)
def test_random_bytes_are_read_or_refused_but_never_crash(tmp_path, content, ending):
    path = tmp_path / f"fuzz.{ending}"
    path.write_bytes(content)
    for read in (read_label_file, read_class_list, read_clip_list):
        with contextlib.suppress(EarmarkError):
            read(path)


@SHARED_FOLDER
@given(st.data(), st.sampled_from(["csv", "parquet", "npy", "npz"]))
def test_damaged_files_are_read_or_refused_but_never_crash(tmp_path, data, ending):
    path = tmp_path / f"damaged.{ending}"
    rows = pl.DataFrame({"clip_id": ["x", "y"], "class_id": ["a", "b"], "present": [True, False]})
    {
        "csv": lambda: rows.write_csv(path),
        "parquet": lambda: rows.write_parquet(path),
        "npy": lambda: np.save(path, STATES),
        "npz": lambda: np.savez_compressed(path, labels=STATES, clip_ids=["x", "y", "z"]),
    }[ending]()
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(EarmarkError):
        read_label_file(path)


def test_identifiers_that_are_lists_are_refused(tmp_path):
    table = pl.DataFrame({"clip_id": [["x"]], "class_id": [["a"]]})
    table.write_parquet(tmp_path / "odd.parquet")
    for read in (read_label_file, read_class_list, read_clip_list):
        with pytest.raises(EarmarkError, match="texts"):
            read(tmp_path / "odd.parquet")


def test_a_damaged_header_is_refused(tmp_path):
    np.save(tmp_path / "labels.npy", STATES)
    content = (tmp_path / "labels.npy").read_bytes()
    (tmp_path / "labels.npy").write_bytes(content.replace(b"(3, 3)", b"(3, 3G"))
    with pytest.raises(EarmarkError, match="cannot be read as numpy's"):
        read_label_file(tmp_path / "labels.npy")


def test_labels_that_are_nearly_all_implicit_are_read_in_blocks(tmp_path, monkeypatch):
    """Whole, an archive of a few kilobytes may take gigabytes."""
    states = np.zeros((50, 1_000), np.int8)
    states[7, 3], states[49, 999] = 1, -1
    np.savez_compressed(tmp_path / "l.npz", labels=states)
    monkeypatch.setattr(arrays, "_LEAST_LIMIT", 10_000)  # to read it whole would be refused
    monkeypatch.setattr(label_set, "_LABELS_AT_ONCE", 4_000)
    labels = read_label_file(tmp_path / "l.npz").labels
    assert np.array_equal(labels.states(), states)


def test_a_matrix_of_too_many_classes_is_refused(tmp_path):
    np.save(tmp_path / "l.npy", np.zeros((1, 1_000_001), np.int8))
    with pytest.raises(EarmarkError, match=r"expected a matrix \[clip, class\], got shape"):
        read_label_file(tmp_path / "l.npy")


def test_a_class_list_that_is_too_deep_is_named(tmp_path: Path) -> None:
    path = tmp_path / "classes.csv"
    path.write_text("class_id,parents\n" + "".join(f"c{i},c{i - 1}\n" for i in range(20_000)))
    with pytest.raises(EarmarkError, match=r"classes\.csv: the class tree is 20,001 levels deep"):
        read_class_list(path)
