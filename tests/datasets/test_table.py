from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from earmark.datasets import import_table
from earmark.errors import EarmarkError
from own_tables import CLIPS, LONG, STATES, imported, states, write


def test_two_tables_in_the_long_form(tmp_path: Path) -> None:
    write(tmp_path, "a.wav", "sound")
    write(tmp_path, "c.wav", "sound")
    summary = imported(tmp_path, LONG)
    assert states(summary) == STATES
    assert summary.workspace.labels.class_ids == ("cat", "dog")
    clips = summary.workspace.clips
    assert clips["split"].to_list() == ["train", "tune", "eval"]
    assert clips["source"].to_list() == ["one", "two", "three"]
    assert clips["audio"].to_list() == [str(tmp_path / "a.wav"), None, str(tmp_path / "c.wav")]
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (3, 2, 1)


def test_the_notes_say_which_column_was_taken_for_what(tmp_path: Path) -> None:
    labels = "File Name,Category\nx.wav,dog\ny.wav,cat\n"
    notes = imported(tmp_path, labels, None).notes
    assert "labels.csv: clip_id from 'File Name', audio from 'File Name'" in notes
    assert "labels.csv: clip_id from 'File Name', class_id from 'Category'" in notes


def test_one_table_may_hold_clips_and_labels(tmp_path: Path) -> None:
    labels = (
        "filename,split,src_file,label\na.wav,train,1,dog\na.wav,train,1,cat\nb.wav,val,2,cat\n"
    )
    write(tmp_path, "audio/a.wav", "sound")
    summary = imported(tmp_path, labels, None, audio=tmp_path / "audio")
    clips = summary.workspace.clips
    assert clips["clip_id"].to_list() == ["a.wav", "b.wav"]
    assert clips["split"].to_list() == ["train", "tune"]
    assert clips["source"].to_list() == ["1", "2"]
    assert clips["audio"].to_list() == [str(tmp_path / "audio/a.wav"), None]
    assert states(summary) == [[1, 1], [1, 0]]


def test_files_are_found_by_their_names(tmp_path: Path) -> None:
    write(tmp_path, "sounds/deep/a.flac", "sound")
    write(tmp_path, "sounds/b.mp3", "sound")
    labels = "clip_id,label\na,dog\nb,cat\nc,cat\n"
    summary = imported(tmp_path, labels, None, audio=tmp_path / "sounds")
    found = [Path(path).name if path else None for path in summary.workspace.clips["audio"]]
    assert found == ["a.flac", "b.mp3", None]
    assert summary.n_missing == 1


def test_names_with_spaces_quotes_newlines_and_letters_of_all_kinds(tmp_path: Path) -> None:
    names = ["with space.wav", 'quo"te.wav', "new\nline.wav", "Vögel 鳥.wav"]
    for name in names:
        write(tmp_path, name, "sound")
    table = pl.DataFrame({"filename": names, "label": ["dog"] * 4})
    table.write_csv(tmp_path / "labels.csv")
    summary = import_table(None, tmp_path / "labels.csv", tmp_path / "w")
    assert summary.workspace.clips["clip_id"].to_list() == names
    assert summary.n_found == 4


def test_stretches_of_one_file_are_clips_though_the_column_could_name_clips(tmp_path: Path) -> None:
    rows = "x.wav,0,10,dog\nx.wav,0,5,cat\nx.wav,9,10,cat\ny.wav,0,5,cat\n"
    labels = f"filename,onset,offset,label\n{rows}"
    clips = imported(tmp_path, labels, None).workspace.clips
    assert clips["clip_id"].to_list() == ["x.wav@0-10", "x.wav@0-5", "x.wav@9", "y.wav@0"]
    assert clips["source"].to_list() == ["x.wav", "x.wav", "x.wav", "y.wav"]
    one_each = imported(tmp_path, "filename,start,label\nx.wav,0,dog\ny.wav,3,cat\n", None)
    assert one_each.workspace.clips["clip_id"].to_list() == ["x.wav", "y.wav"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"class_id": "brid"}, r"no column 'brid'; did you mean 'bird'\?"),
        ({"clas_id": "bird"}, r"no column is known as 'clas_id'; did you mean 'class_id'\?"),
    ],
)
def test_misspelt_columns_are_named(tmp_path: Path, columns: dict[str, str], message: str) -> None:
    with pytest.raises(EarmarkError, match=message):
        imported(tmp_path, "clip_id,bird\na,x\n", None, columns=columns)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("a.wav,dog\nb.wav,cat\n", r"line 1: the header seems to be missing: 'a.wav'"),
        ("a,dog\nb,cat\n", r"no column names the clips .* is the header line missing"),
        ("clip_id,clip_id\na,b\n", r"line 1: two columns are called 'clip_id'"),
        ("clip_id,colour\na,red\n", r"no column of classes .* among clip_id, colour"),
        ('clip_id,label\na,"dog\nb,cat\n', r"line 2: wrong quoting"),
        ("clip_id,label\na,dog\n,cat\n", r"line 3: clip_id is empty"),
        ("clip_id,label\na,dog\nq,cat\n", r"line 3: clip 'q' is not in the list of clips"),
        (LONG + "a,dog,0\n", r"line 6: contradicts line 2 \(clip 'a', class 'dog'\)"),
        (LONG + "a,owl,0.7\n", r"line 6: present must say whether .* got '0.7'"),
        ("clip_id,cat,dog\na,1,0\nb,0,1\nc,0.7,1\n", r"line 4: cat must say .* got '0.7'"),
    ],
)
def test_damaged_labels_are_refused_with_their_line(
    tmp_path: Path, labels: str | bytes, message: str
) -> None:
    with pytest.raises(EarmarkError, match=message):
        imported(tmp_path, labels)


@pytest.mark.parametrize(
    ("clips", "message"),
    [
        (CLIPS.replace("tune", "dev"), r"line 3: split must be one of train, tune, eval .*'dev'"),
        (CLIPS.replace("tune", ""), r"line 3: split must be .* got 'nothing'"),
        (CLIPS + "a,d.wav,train,four\n", r"line 5: clip 'a' is listed before, in line 2"),
        (
            "clip_id,start\na,0\nb,soon\nc,1\n",
            r"line 3: start_seconds must be a number, got 'soon'",
        ),
    ],
)
def test_damaged_clips_are_refused_with_their_line(
    tmp_path: Path, clips: str, message: str
) -> None:
    with pytest.raises(EarmarkError, match=message):
        imported(tmp_path, LONG, clips)


def test_where_no_sound_file_is_found_it_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    labels = "filename,label\na.wav,dog\nb.wav,cat\n"
    with pytest.raises(
        EarmarkError, match=r"not one of 2 sound files.*looked for .*a\.wav.*--audio"
    ):
        imported(tmp_path, labels, None, require_sound=True)
    (tmp_path / "sounds").mkdir()
    with pytest.raises(EarmarkError, match=r"anywhere in .*sounds.*--column audio=-"):
        imported(tmp_path, labels, None, require_sound=True, audio=tmp_path / "sounds")
    assert not (tmp_path / "w").exists()
    without = imported(tmp_path, labels, None, require_sound=True, columns={"audio": "-"})
    assert without.n_missing == 2
    (tmp_path / "b.wav").write_bytes(b"")
    assert imported(tmp_path, labels, None, require_sound=True).n_found == 1


def test_recordings_without_a_row_are_counted_and_an_empty_label_takes_them_in(
    tmp_path: Path,
) -> None:
    sounds = tmp_path / "my sounds"
    for name in ("a.wav", "b.wav", "deep/c.flac", "d.wav", "e.wav", "notes.txt"):
        write(sounds, name, "sound")
    labels = "filename,label\na.wav,dog\n"
    told = [text for text in imported(tmp_path, labels, None, audio=sounds).notes if "more" in text]
    assert told == [
        f"4 more recordings in {sounds} are left out, for they have no row in labels.csv: "
        "'b.wav', 'd.wav', 'e.wav' and 1 more. To have them searched too, give each a row with an "
        "empty label there"
    ]
    labels += "b.wav,\nc.flac,\nd,\ne.wav,\n"
    summary = imported(tmp_path, labels, None, audio=sounds)
    assert not [text for text in summary.notes if "more" in text]
    assert (summary.n_listed, summary.n_found) == (5, 5)
