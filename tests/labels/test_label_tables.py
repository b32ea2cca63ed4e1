from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.labels import LabelTable, Reading, read_label_table

ROWS = [("a", "dog", True), ("a", "cat", True), ("b", "cat", True)]


def read(folder: Path, text: str, name: str = "labels.csv", **reading: object) -> LabelTable:
    (folder / name).write_text(text)
    return read_label_table(folder / name, Reading(**reading))  # type: ignore[arg-type]


def rows(table: LabelTable) -> list[tuple[str, str, bool | None]]:
    return table.long.rows.select("clip_id", "class_id", "present").rows()


@pytest.mark.parametrize(
    ("text", "has_row_per_clip", "lists_classes"),
    [
        ("clip_id,class_id,present\na,dog,1\na,cat,yes\nb,cat,TRUE\n", False, False),
        ("clip_id,class_id\na,dog\na,cat\nb,cat\n", False, False),
        ("filename;label\na;dog\na;cat\nb;cat\n", False, False),
        ("fname,labels\na,dog;cat\nb,cat\nc,\n", True, False),
        ('fname,tags\na,"dog,cat"\nb,cat\n', True, False),
        ("clip_id,dog,cat\na,1,1\nb,0,1\n", True, True),
        ("clip_id,dog,cat\na,1,0\na,0,1\nb,0,1\n", False, True),
    ],
    ids=["long", "no present", "filename", "lists", "commas", "multi-hot", "two rows"],
)
def test_every_form_says_the_same(
    tmp_path: Path, text: str, has_row_per_clip: bool, lists_classes: bool
) -> None:
    table = read(tmp_path, text)
    assert rows(table) == ROWS
    assert table.class_ids == ("dog", "cat")
    assert (table.has_row_per_clip, table.lists_classes) == (has_row_per_clip, lists_classes)


def test_clips_without_labels_are_listed(tmp_path: Path) -> None:
    assert read(tmp_path, "fname,labels\na,dog\nb,\n").clip_ids.to_list() == ["a", "b"]
    assert read(tmp_path, "clip_id,dog\na,1\nb,0\n").clip_ids.to_list() == ["a", "b"]


def test_the_lines_are_those_of_the_file(tmp_path: Path) -> None:
    table = read(tmp_path, "clip_id,dog,cat\n\na,1,-1\n\nb,0,1\n")
    assert table.long.rows["__line__"].to_list() == [3, 3, 5]


def test_notes_say_how_a_table_was_read_unless_it_is_our_own_form(tmp_path: Path) -> None:
    assert read(tmp_path, "clip_id,class_id,present\na,dog,1\n").notes == ()
    notes = read(tmp_path, "file,tags\na,dog;cat\n").notes
    assert notes == (
        "labels.csv: clip_id from 'file', labels from 'tags'",
        "'tags' holds lists of classes, separated by ';'",
    )


def test_a_row_that_says_whether_it_is_present_speaks_of_one_class(tmp_path: Path) -> None:
    text = "clip_id,class_id,present\na,dog;wild,1\nb,dog;wild,0\n"
    assert read(tmp_path, text).class_ids == ("dog;wild",)
    assert read(tmp_path, text, separator=";").class_ids == ("dog", "wild")


def test_an_empty_answer_is_unsure_and_an_empty_class_is_refused_beside_one(tmp_path: Path) -> None:
    table = read(tmp_path, "clip_id,class_id,present\na,dog,\nb,dog,1\nc,,\n")
    assert rows(table) == [("a", "dog", None), ("b", "dog", True)]
    assert table.clip_ids.to_list() == ["a", "b", "c"]
    with pytest.raises(EarmarkError, match=r"line 3: class_id is empty"):
        read(tmp_path, "clip_id,class_id,present\na,dog,1\nb,,1\n")


def test_zeros_may_be_absent(tmp_path: Path) -> None:
    table = read(tmp_path, "clip_id,dog\na,1\nb,0\n", zeros="absent")
    assert rows(table) == [("a", "dog", True), ("b", "dog", False)]


@pytest.mark.parametrize(
    "text",
    [
        "clip_id,class_id,present\n",
        "clip_id,dog,cat\n",
        "clip_id,class_id\na,\nb,\n",
        "clip_id,class_id,present\na,dog,unsure\n",
        "clip_id,dog,cat\na,0,0\nb,0,0\n",
    ],
)
def test_a_table_without_one_label_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(EarmarkError, match=r"labels\.csv: there is not one label in it"):
        read(tmp_path, text)


def test_swapped_columns_are_refused_by_the_names_of_sound_files(tmp_path: Path) -> None:
    text = "clip_id,class_id\ndog,1.wav\ndog,2.wav\ncat,3.wav\n"
    with pytest.raises(EarmarkError, match=r"holds sound files, such as '1\.wav'.*swapped"):
        read(tmp_path, text)
    turned = {"clip_id": "class_id", "class_id": "clip_id"}
    assert read(tmp_path, text, columns=turned).class_ids == ("dog", "cat")


def test_swapped_columns_are_refused_by_far_more_classes_than_clips(tmp_path: Path) -> None:
    lines = "".join(f"{'dog' if n % 3 else 'cat'},take{n}\n" for n in range(60))
    with pytest.raises(EarmarkError, match=r"60 classes, such as 'take0', of 2 clips.*swapped"):
        read(tmp_path, "clip_id,class_id\n" + lines)
    stated = read(tmp_path, "clip_id,class_id\n" + lines, columns={"class_id": "class_id"})
    assert len(stated.class_ids) == 60


def test_a_column_that_says_no_presence_can_be_left_out(tmp_path: Path) -> None:
    text = "clip_id,label,value\na,dog,0.7\n"
    with pytest.raises(EarmarkError, match=r"line 2: value must say .* --column present=-"):
        read(tmp_path, text)
    assert rows(read(tmp_path, text, columns={"present": "-"})) == [("a", "dog", True)]


def test_parquet_columns_of_lists_booleans_and_numbers(tmp_path: Path) -> None:
    table = pl.DataFrame({"clip_id": [7, 8], "tags": [["dog", "cat"], []]})
    table.write_parquet(tmp_path / "lists.parquet")
    read_lists = read_label_table(tmp_path / "lists.parquet")
    assert rows(read_lists) == [("7", "dog", True), ("7", "cat", True)]
    assert read_lists.clip_ids.to_list() == ["7", "8"]
    hot = pl.DataFrame({"clip_id": ["a", "b"], "dog": [True, False], "cat": [1.0, -1.0]})
    hot.write_parquet(tmp_path / "hot.parquet")
    states = [("a", "dog", True), ("a", "cat", True), ("b", "cat", False)]
    assert rows(read_label_table(tmp_path / "hot.parquet")) == states


@pytest.mark.parametrize(
    "names", ["event,dog", "speaker,dog", "dog,instrument", "label,event", "instrument,speaker"]
)
def test_classes_that_are_called_like_a_role_are_multi_hot_columns(
    tmp_path: Path, names: str
) -> None:
    found = read(tmp_path, f"clip_id,{names}\na,1,0\nb,0,1\nc,,1\n")
    first, second = names.split(",")
    assert found.class_ids == (first, second)
    assert rows(found) == [("a", first, True), ("b", second, True), ("c", second, True)]


def test_classes_that_are_called_by_number_stay_classes(tmp_path: Path) -> None:
    for text, given in (
        ("clip_id,label\na,1\nb,0\n", {}),
        ("clip_id,label,fold\na,1,5\nb,0,2\n", {}),
        ("clip_id,label,present\na,1,1\nb,0,1\n", {}),
        ("clip_id,label,dog\na,1,1\nb,0,1\n", {"class_id": "label"}),
    ):
        assert read(tmp_path, text, columns=given).class_ids == ("1", "0")
