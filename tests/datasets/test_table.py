from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from earmark.audio.frame_store import FrameStore
from earmark.datasets.importer import ImportSummary
from earmark.datasets.quarantine import read_quarantine
from earmark.datasets.table import import_table
from earmark.errors import EarmarkError
from earmark.runs.delimited import read_source

CLIPS = "clip_id,audio,split,source\na,a.wav,train,one\nb,b.wav,tune,two\nc,c.wav,eval,three\n"
LONG = "clip_id,class_id,present\na,dog,1\na,cat,0\nb,cat,true\nc,dog,not_present\n"
STATES = [[-1, 1], [1, 0], [0, -1]]  # cat, dog


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def imported(
    folder: Path, labels: str | bytes, clips: str | bytes | None = CLIPS, **options: Any
) -> ImportSummary:
    clips_path = None if clips is None else write(folder, "clips.csv", clips)
    return import_table(clips_path, write(folder, "labels.csv", labels), folder / "w", **options)


def states(summary: ImportSummary) -> list[list[int]]:
    return summary.workspace.labels.states().tolist()  # type: ignore[no-any-return]


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


@pytest.mark.parametrize(
    "labels",
    [
        LONG.encode("utf-8-sig"),
        LONG.replace("\n", "\r\n").encode(),
        LONG.replace(",", ";").encode(),
        LONG.replace(",", "\t").encode(),
        LONG.replace("\n", "\n\n").encode(),
        LONG.replace("dog", '"dog"').replace(",", ", ").encode(),
        LONG.rstrip().encode(),
        LONG.replace("b,cat,true", "b,cat,true\nb,cat,yes\nb,dog,unsure").encode(),
    ],
    ids=["bom", "crlf", "semicolons", "tabs", "blank", "quoted", "no-end", "repeated-and-unsure"],
)
def test_other_programs_csv_is_read_alike(tmp_path: Path, labels: bytes) -> None:
    assert states(imported(tmp_path, labels)) == STATES


def test_parquet_is_read_alike(tmp_path: Path) -> None:
    clips, labels = tmp_path / "clips.parquet", tmp_path / "labels.parquet"
    read_source(write(tmp_path, "clips.csv", CLIPS)).rows.drop("__line__").write_parquet(clips)
    rows = {"clip": ["a", "b", "c", "a"], "present": [True, True, False, False]}
    table = pl.DataFrame({**rows, "label": ["dog", "cat", "dog", "cat"]})
    table.with_columns(pl.col("label").cast(pl.Categorical)).write_parquet(labels)
    assert states(import_table(clips, labels, tmp_path / "w")) == STATES


@pytest.mark.parametrize(
    "labels",
    [
        "fname,labels\na,dog;cat\nb,cat\nc,\n",
        "fname,labels\na,dog | cat\nb,cat\nc,\n",
        'fname,labels\na,"dog,cat"\nb,cat\nc,\n',
        "fname,label\na,dog;cat\nb,cat\nc,\n",
    ],
)
def test_lists_in_one_cell(tmp_path: Path, labels: str) -> None:
    assert states(imported(tmp_path, labels)) == [[1, 1], [1, 0], [0, 0]]


def test_lists_of_parquet(tmp_path: Path) -> None:
    clips = write(tmp_path, "clips.csv", CLIPS)
    table = pl.DataFrame({"clip_id": ["a", "b", "c"], "tags": [["dog", "cat"], ["cat"], []]})
    table.write_parquet(tmp_path / "labels.parquet")
    summary = import_table(clips, tmp_path / "labels.parquet", tmp_path / "w")
    assert states(summary) == [[1, 1], [1, 0], [0, 0]]


def test_commas_in_the_name_of_a_class_stay(tmp_path: Path) -> None:
    labels = 'clip_id,label\na,"Male speech, man speaking"\nb,Dog\nc,Dog\n'
    classes = imported(tmp_path, labels).workspace.labels.class_ids
    assert classes == ("Dog", "Male speech, man speaking")
    split = imported(tmp_path, labels, separator=", ").workspace.labels.class_ids
    assert split == ("Dog", "Male speech", "man speaking")


def test_multi_hot_zeros_are_implicit_unless_said_otherwise(tmp_path: Path) -> None:
    labels = "clip_id,cat,dog,comment\na,-1,1,loud\nb,1.0,0,\nc,,-1,x\n"
    summary = imported(tmp_path, labels)
    assert states(summary) == STATES
    assert any("0 is taken as implicit" in note for note in summary.notes)
    assert "columns passed over: comment" in summary.notes
    assert states(imported(tmp_path, labels, zeros="absent")) == [[-1, 1], [1, -1], [0, -1]]


def test_a_class_without_positives_stays_a_class(tmp_path: Path) -> None:
    labels = "clip_id,cat,dog\na,0,1\nb,0,1\nc,0,1\n"
    assert imported(tmp_path, labels).workspace.labels.class_ids == ("cat", "dog")


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


def test_clips_of_one_file_share_their_source(tmp_path: Path) -> None:
    labels = "audio,start,end,label\nx.wav,0,10,dog\nx.wav,10,20,cat\ny.wav,0,5.5,cat\n"
    clips = imported(tmp_path, labels, None).workspace.clips
    assert clips["clip_id"].to_list() == ["x.wav@0", "x.wav@10", "y.wav@0"]
    assert clips["source"].to_list() == ["x.wav", "x.wav", "y.wav"]
    assert clips["end_seconds"].to_list() == [10, 20, 5.5]


def test_without_splits_recordings_are_dealt_out(tmp_path: Path) -> None:
    rows = "".join(f"clip{i},{'dog' if i % 3 else 'cat'},take{i // 2}\n" for i in range(200))
    clips = imported(tmp_path, "clip_id,label,recording\n" + rows, None).workspace.clips
    assert clips["split"][::2].to_list() == clips["split"][1::2].to_list()
    counts = dict(clips["split"].value_counts().iter_rows())
    assert counts["train"] == pytest.approx(160, abs=10)
    assert counts["tune"] == pytest.approx(20, abs=8)


def test_columns_can_be_named(tmp_path: Path) -> None:
    labels = "what,label,bird\na,x,dog\nb,x,cat\nc,y,cat\n"
    summary = imported(
        tmp_path, labels, columns={"clip_id": "what", "class_id": "bird"}, clips=None
    )
    assert summary.workspace.labels.class_ids == ("cat", "dog")


def test_a_column_that_only_sounds_like_ours_can_be_left_out(tmp_path: Path) -> None:
    labels = "clip_id,label,rating\na,dog,4\nb,cat,5\nc,cat,3\n"
    with pytest.raises(EarmarkError, match=r"line 2: rating must say whether"):
        imported(tmp_path, labels)
    assert states(imported(tmp_path, labels, columns={"present": "-"})) == [[0, 1], [1, 0], [1, 0]]


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
        ("", "the file is empty"),
        ("clip_id,label\n", "there is not one label in it"),
        ("clip_id,colour\na,red\n", r"no column of classes .* among clip_id, colour"),
        ('clip_id,label\na,"dog\nb,cat\n', r"line 2: wrong quoting"),
        ('clip_id,label\na,"dog"s\n', r"line 2: wrong quoting"),
        ("clip_id,label\na,dog\nb,cat,loud\n", r"line 3: 3 fields where the header has 2"),
        ("clip_id,label\na,dog\n\nb\n", r"line 4: 1 fields where the header has 2"),
        ("clip_id,label\na,dog\n,cat\n", r"line 3: clip_id is empty"),
        ("clip_id,label\na,dog\nq,cat\n", r"line 3: clip 'q' is not in the table of clips"),
        (LONG + "a,dog,0\n", r"line 6: contradicts line 2 \(clip 'a', class 'dog'\)"),
        (LONG + "a,owl,0.7\n", r"line 6: present must say whether .* got '0.7'"),
        ("clip_id,cat,dog\na,1,0\nb,0,1\nc,0.7,1\n", r"line 4: cat must say .* got '0.7'"),
        (b"clip_id,label\na,\xff\xfe\n", "not text in UTF-8"),
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


def test_rows_of_one_table_must_agree_about_their_clip(tmp_path: Path) -> None:
    labels = "clip_id,split,label\na,train,dog\na,eval,cat\n"
    with pytest.raises(EarmarkError, match=r"line 3: clip 'a' is listed before, in line 2"):
        imported(tmp_path, labels, None)


def test_missing_tables_are_named(tmp_path: Path) -> None:
    for name in ("no.csv", "no.parquet", "no.json"):
        with pytest.raises(EarmarkError, match=rf"{name}: no such file"):
            import_table(None, tmp_path / name, tmp_path / "w")


def test_rows_beyond_one_chunk_keep_their_lines(tmp_path: Path) -> None:
    rows = "".join(f"clip{i},dog\n" for i in range(120_000))
    table = read_source(write(tmp_path, "t.csv", "clip_id,label\n" + rows))
    assert len(table.rows) == 120_000
    assert table.rows["__line__"][[0, 60_000, 119_999]].to_list() == [2, 60_002, 120_001]
    assert table.rows["clip_id"][119_999] == "clip119999"


def annotation(*results: dict[str, Any], cancelled: bool = False) -> dict[str, Any]:
    return {"was_cancelled": cancelled, "result": list(results)}


def choices(*names: str, question: str = "sounds") -> dict[str, Any]:
    return {"from_name": question, "type": "choices", "value": {"choices": list(names)}}


TASKS = [
    {
        "data": {"audio": "/data/upload/3/1a2b3c4d-a.wav"},
        "annotations": [
            annotation(choices("dog", "cat")),
            annotation(choices("dog")),
            annotation(choices("owl"), cancelled=True),
        ],
    },
    {
        "data": {"audio": "/data/local-files/?d=deep/b%20b.wav"},
        "annotations": [
            annotation(
                choices("not present", question="dog"),
                choices("yes", question="cat"),
                choices("unsure", question="owl"),
                {"type": "labels", "value": {"start": 0, "end": 1, "labels": ["rain"]}},
            )
        ],
        "predictions": [{"result": [choices("owl")]}],
    },
    {
        "data": {"url": "https://host/x/c.flac?token=1"},
        "completions": [
            annotation({"type": "taxonomy", "value": {"taxonomy": [["animal", "owl"], ["rain"]]}})
        ],
    },
    {"data": {"audio": "d.wav"}, "annotations": []},
]


def test_label_studio(tmp_path: Path) -> None:
    write(tmp_path, "sounds/deep/b b.wav", "sound")
    write(tmp_path, "sounds/a.wav", "sound")
    labels = write(tmp_path, "export.json", json.dumps(TASKS))
    summary = import_table(None, labels, tmp_path / "w", audio=tmp_path / "sounds")
    workspace = summary.workspace
    assert workspace.clips["clip_id"].to_list() == ["a", "b b", "c", "d"]
    assert workspace.labels.class_ids == ("animal", "cat", "dog", "owl", "rain")
    assert states(summary) == [
        [0, 0, 1, 0, 0],  # one of two ticked cat: no majority
        [0, 1, -1, 0, 1],
        [1, 0, 0, 1, 1],
        [0, 0, 0, 0, 0],
    ]
    assert workspace.ontology.ancestors("owl") == {"animal"}
    assert (summary.n_found, summary.n_missing) == (2, 2)
    assert any("1 answers without a majority" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"audio": "a.wav", "choice": "dog"}], r"task 1: .* export as JSON"),
        ([{"data": {"image": "a.png"}, "annotations": []}], r"task 1: .*no sound file"),
        ({"a": 1}, "expected a list of Label Studio's tasks, got a dict"),
        ([], "got an empty list"),
        (
            [{"data": {"audio": f"{name}/a.wav"}, "annotations": []} for name in "xy"],
            r"task 2: clip 'a' is listed before, in task 1",
        ),
    ],
)
def test_other_json_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    labels = write(tmp_path, "export.json", json.dumps(content))
    with pytest.raises(EarmarkError, match=message):
        import_table(None, labels, tmp_path / "w")


@pytest.mark.parametrize("shape", [(3, 8), (3, 5, 8)])
def test_one_array_of_embeddings(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).random(shape)
    np.save(tmp_path / "e.npy", array)
    summary = imported(tmp_path, LONG, embeddings=tmp_path / "e.npy")
    store = FrameStore.open(summary.workspace.frames_folder)
    assert store.clip_ids.to_list() == ["a", "b", "c"]
    assert store.meta.dtype == "float32"
    assert store.frames(1) == pytest.approx(array[1].reshape(-1, 8), rel=1e-6)
    assert (summary.n_found, summary.n_missing) == (3, 0)


def test_a_folder_of_embeddings_quarantines_what_cannot_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    folder.mkdir()
    good = np.arange(12, dtype=np.uint8).reshape(3, 4)
    faulty = {"b": good[:, :2], "d": np.array([{}], dtype=object), "e": good[:0]}
    for name, array in {"a": good, "f": good[0], **faulty}.items():
        np.save(folder / f"{name}.npy", array)
    labels = "clip_id,label\n" + "".join(f"{name},dog\n" for name in "abcdef")
    summary = imported(tmp_path, labels, None, embeddings=folder)
    store = FrameStore.open(summary.workspace.frames_folder)
    assert store.clip_ids.to_list() == ["a", "f"]
    assert store.n_frames.tolist() == [3, 1]
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (6, 2, 4)
    reasons = dict(read_quarantine(summary.workspace).select("clip_id", "reason").iter_rows())
    assert "[frame, 2] where the first clip has" in reasons["b"]
    assert reasons["c"] == "no embedding file c.npy"
    assert "not an .npy file of numbers" in reasons["d"]
    assert reasons["e"] == "expected an array [frame, dim], got [0, 4]"


def test_embeddings_with_nan_are_quarantined(tmp_path: Path) -> None:
    array = np.ones((3, 4), np.float32)
    array[1, 2] = np.nan
    np.save(tmp_path / "e.npy", array)
    summary = imported(tmp_path, LONG, embeddings=tmp_path / "e.npy")
    assert FrameStore.open(summary.workspace.frames_folder).clip_ids.to_list() == ["a", "c"]


def test_embeddings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", np.ones((2, 4)))
    with pytest.raises(EarmarkError, match="embeddings of 2 clips, the dataset 3"):
        imported(tmp_path, LONG, embeddings=tmp_path / "e.npy")
    (tmp_path / "none").mkdir()
    with pytest.raises(EarmarkError, match="not one of the 3 clips has a usable embedding"):
        imported(tmp_path, LONG, embeddings=tmp_path / "none")
    with pytest.raises(EarmarkError, match="no such file or folder"):
        imported(tmp_path, LONG, embeddings=tmp_path / "nowhere")
