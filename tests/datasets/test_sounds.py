from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from earmark.datasets import import_sounds
from earmark.errors import EarmarkError
from own_tables import states, write
from sound_folders import clip_ids, files_of, heard, note, present_in, sounds_in, wav, write_tar


@pytest.mark.parametrize(
    "labels",
    [
        "filename,label\na.wav,dog\na.wav,cat\nb.wav,cat\n",
        "filename,labels\na.wav,dog;cat\nb.wav,cat\n",
        "fname\tdog\tcat\na\t1\t1\nb\t0\t1\n",
        "id,class\na,dog\na,cat\nb,cat\n",
        "path,tag\n/home/ann/set/deep/a.wav,dog\n/home/ann/set/deep/a.wav,cat\ndeep/b.wav,cat\n",
        "path,tag\nC:\\set\\a.flac,dog\nC:\\set\\a.flac,cat\nb.mp3,cat\n",
    ],
    ids=["long", "lists", "multi-hot", "without-endings", "paths-from-elsewhere", "windows"],
)
def test_labels_of_any_form_find_their_sounds(tmp_path: Path, labels: str) -> None:
    sounds_in(tmp_path / "sounds", "deep/a.wav", "deep/b.wav")
    summary = heard(tmp_path, labels)
    assert states(summary) == [[1, 1], [1, 0]]
    assert files_of(summary) == ["a.wav", "b.wav"]
    assert (summary.n_found, summary.n_missing) == (2, 0)


def test_sounds_in_archives_are_found(tmp_path: Path) -> None:
    members = {"in/a.wav": wav(0.5), "in/b.wav": wav(0.5)}
    write_tar(tmp_path / "sounds" / "some.tar", members)
    summary = heard(tmp_path, "filename,label\na.wav,dog\n")
    assert clip_ids(summary) == ["a.wav", "b.wav"]
    places = summary.workspace.clips["audio"].to_list()
    assert all(summary.workspace.audio_path(place).is_file() for place in places)


def test_recordings_without_a_row_are_clips_of_which_nothing_is_known(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "a.wav", "b.wav", "deep/c.wav")
    summary = heard(tmp_path, "filename,label\na.wav,dog\n")
    assert clip_ids(summary) == ["a.wav", "b.wav", "c.wav"]  # named as the owner names others
    assert states(summary) == [[1], [0], [0]]
    told = "2 recordings have no row in labels.csv: all their labels count as unknown"
    assert told in summary.notes
    assert summary.split_counts == {"train": 3, "tune": 0, "eval": 0}
    assert clip_ids(heard(tmp_path, "id,label\na,dog\n")) == ["a", "b", "c"]
    assert clip_ids(heard(tmp_path, "id,label\nx/a,dog\n")) == ["x/a", "b", "deep/c"]
    with_splits = heard(tmp_path, "filename,label,split\na.wav,dog,test\n")
    assert with_splits.workspace.clips["split"].to_list()[0] == "eval"


def test_rows_whose_sound_is_missing_are_kept_and_counted(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "a.wav")
    summary = heard(tmp_path, "filename,label\na.wav,dog\ngone.wav,cat\n")
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (2, 1, 1)
    assert summary.workspace.clips["audio"].to_list()[1] is None
    assert note(summary, "1 clip without sound").endswith("'gone.wav'")


def test_the_table_of_esc50(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "1-100032-A-0.wav", "1-100038-A-14.wav")
    labels = (
        "filename,fold,target,category,esc10,src_file,take\n"
        "1-100032-A-0.wav,1,0,dog,True,100032,A\n"
        "1-100038-A-14.wav,1,14,chirping_birds,False,100038,A\n"
    )
    summary = heard(tmp_path, labels)
    assert summary.workspace.labels.class_ids == ("chirping_birds", "dog")
    assert states(summary) == [[0, 1], [1, 0]]
    assert summary.workspace.clips["source"].to_list() == ["100032", "100038"]
    told = note(summary, "columns passed over: fold, target, esc10, take")
    assert "--column class_id=NAME" in told
    assert note(summary, "class_id from 'category'")
    by_number = heard(tmp_path, labels, columns={"class_id": "target"})
    assert by_number.workspace.labels.class_ids == ("0", "14")


def test_the_column_of_the_files_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "7-1-0.wav", "7-3-0.wav")
    labels = "slice_file_name,id,class\n7-1-0.wav,1,dog\n7-3-0.wav,2,cat\n"
    summary = heard(tmp_path, labels)
    assert summary.n_found == 2
    assert note(summary, "audio from 'slice_file_name'")
    summary = heard(tmp_path, labels.replace(",id,", ",what,"))
    assert clip_ids(summary) == ["7-1-0.wav", "7-3-0.wav"]


def test_names_of_files_in_several_folders(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "one/1.wav", "two/1.wav", "two/2.wav")
    labels = "filename,label\none/1.wav,dog\ntwo/1.wav,cat\nsome/2.wav,owl\nother/2.wav,owl\n"
    summary = heard(tmp_path, labels)
    places = [path and os.path.relpath(path, tmp_path) for path in summary.workspace.clips["audio"]]
    assert places == ["sounds/one/1.wav", "sounds/two/1.wav", None, None, "sounds/two/2.wav"]
    assert "name them with their folders" in note(summary, "2 clips without sound")
    summary = heard(tmp_path, "filename,label\n1.wav,dog\n2.wav,cat\n")
    assert files_of(summary) == [None, "2.wav", "1.wav", "1.wav"]
    assert clip_ids(summary) == ["1.wav", "2.wav", "one/1.wav", "two/1.wav"]


def test_the_whole_path_wins_over_the_same_name_elsewhere(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "1.wav", "deep/1.wav", "2.wav", "2.mp3")
    summary = heard(tmp_path, "filename,label\n1.wav,dog\n2.mp3,cat\n")
    assert Path(summary.workspace.clips["audio"][0]).parent.name == "sounds"
    assert files_of(summary)[:2] == ["1.wav", "2.mp3"]
    assert clip_ids(summary)[2:] == ["2.wav", "deep/1.wav"]


def test_without_a_file_folders_are_labels(tmp_path: Path) -> None:
    sounds = sounds_in(
        tmp_path / "sounds", "train/dog/1.wav", "train/cat/1.wav", "cat/2.wav", "x.wav"
    )
    summary = import_sounds(sounds, None, tmp_path / "w")
    present = {"train/dog/1.wav": {"dog"}, "train/cat/1.wav": {"cat"}, "cat/2.wav": {"cat"}}
    assert present_in(summary) == {**present, "x.wav": set()}
    assert note(summary, "the innermost one of each recording: 'cat', 'dog'")
    assert note(summary, "1 recording in no folder")


@pytest.mark.parametrize(
    ("names", "where"),
    [(("dog/1.wav", "dog/2.wav", "3.wav"), r"in one folder only \('dog'\)"), (("1.wav",), "in no")],
)
def test_folders_that_are_no_labels_are_refused(
    tmp_path: Path, names: tuple[str, ...], where: str
) -> None:
    sounds_in(tmp_path / "sounds", *names)
    with pytest.raises(EarmarkError, match=rf"{where}.*Give a file of labels"):
        heard(tmp_path, None)
    assert not (tmp_path / "w").exists()


def test_a_list_of_classes_gives_names_order_and_more_classes(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "a.wav", "b.wav")
    rows = ["/m/owl,Owl,/m/animal", "/m/dog,Dog bark,/m/animal", "/m/animal,Animal,"]
    classes = write(tmp_path, "classes.csv", "\n".join(["class_id,name,parents", *rows]))
    labels = "filename,label\na.wav,dog_bark\na.wav,/m/animal\nb.wav,Zebra\n"
    summary = heard(tmp_path, labels, classes=classes)
    ontology = summary.workspace.ontology
    assert ontology.class_ids == ("/m/owl", "/m/dog", "/m/animal", "Zebra")
    assert ontology.name("/m/dog") == "Dog bark"
    assert ontology.parents["/m/owl"] == ("/m/animal",)
    assert states(summary) == [[0, 1, 1, 0], [0, 0, 0, 1]]
    assert note(summary, "1 class of the labels is not in classes.csv: 'Zebra'")
    assert note(summary, "1 class of classes.csv without a label")
    lines = write(tmp_path, "classes.txt", "Zebra\n/m/animal\ndog_bark\n")
    assert heard(tmp_path, labels, classes=lines).workspace.ontology.class_ids[0] == "Zebra"
    with pytest.raises(EarmarkError, match=r"use none of its classes; it lists '/m/owl'.*'cat'"):
        heard(tmp_path, "filename,label\na.wav,cat\n", classes=classes)


def test_the_ontology_of_audioset_is_a_list_of_classes(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "Bark/1.wav", "meow/1.wav")
    nodes = [
        {
            "id": "/m/animal",
            "name": "Animal",
            "child_ids": ["/m/pets", "/m/cow"],
            "restrictions": [],
        },
        {"id": "/m/pets", "name": "Pets", "child_ids": ["/m/bark"], "restrictions": ["abstract"]},
        {"id": "/m/bark", "name": "Bark", "child_ids": [], "description": "Woof."},
        {"id": "/m/cow", "name": "Cow", "child_ids": []},
    ]
    classes = write(tmp_path, "ontology.json", json.dumps(nodes))
    ontology = heard(tmp_path, None, classes=classes).workspace.ontology
    assert ontology.class_ids == ("/m/animal", "/m/bark", "/m/cow", "meow")
    assert "/m/animal" in ontology.parents["/m/bark"]
    assert ontology.definitions["/m/bark"] == "Woof."
    names = write(tmp_path, "names.json", json.dumps(["meow", "Bark"]))
    assert heard(tmp_path, None, classes=names).workspace.ontology.class_ids == ("meow", "Bark")
    with pytest.raises(EarmarkError, match="expected a list of names"):
        heard(tmp_path, None, classes=write(tmp_path, "odd.json", '{"meow": 1}'))


def test_places_that_cannot_be_right_are_named(tmp_path: Path) -> None:
    sounds = sounds_in(tmp_path / "sounds", "a.wav")
    labels = write(tmp_path, "labels.csv", "filename,label\na.wav,dog\n")
    work = tmp_path / "w"
    empty = tmp_path / "empty"
    write(empty, "notes.txt", "nothing")
    cases: list[tuple[Path, Path | None, Path, str]] = [
        (labels, sounds, work, "the other way round"),
        (labels, sounds / "a.wav", work, "the other way round"),
        (tmp_path / "no", labels, work, "no: no such folder of sound"),
        (sounds, tmp_path / "no.csv", work, "no.csv: no such file"),
        (sounds, sounds, work, "a folder, not a file"),
        (sounds, sounds / "a.wav", work, "a sound file, where the file of labels"),
        (labels, labels, work, "expected a folder of sound"),
        (empty, labels, work, r"not one sound file in it, but 1 other file: 'notes.txt'"),
        (sounds, labels, sounds, "cannot be the folder of sound itself"),
    ]
    for given_sounds, given_labels, given_work, message in cases:
        with pytest.raises(EarmarkError, match=message):
            import_sounds(given_sounds, given_labels, given_work)
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(EarmarkError, match=r"clips are cut 0.5 s long or longer"):
            import_sounds(sounds, labels, work, clip_seconds=seconds)
    assert not work.exists()


def test_labels_and_workspace_may_lie_among_the_sounds(tmp_path: Path) -> None:
    sounds = sounds_in(tmp_path / "sounds", "a.wav", "._a.wav", "w/audio/unpacked.wav")
    labels = write(sounds, "labels.csv", "filename,label\na.wav,dog\n")
    summary = import_sounds(sounds, labels, sounds / "w")
    assert clip_ids(summary) == ["a.wav"]
    again = import_sounds(sounds, labels, sounds / "w")
    assert again.workspace.clips.equals(summary.workspace.clips)
    pl.DataFrame({"filename": ["a"], "label": ["dog"]}).write_parquet(sounds / "labels.parquet")
    summary = import_sounds(sounds, sounds / "labels.parquet", sounds / "w2")
    assert clip_ids(summary)[0] == "a"


def test_ways_to_write_a_letter_make_no_difference(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "Vo\u0308gel 鳥.wav")
    summary = heard(tmp_path, "filename,label\nV\u00f6gel 鳥.wav,bird\n")
    assert (summary.n_listed, summary.n_found) == (1, 1)


def test_where_nothing_matches_both_sides_are_named(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "x1.wav", "x2.wav")
    words = r"the rows name 'a.wav', 'b.wav', the recordings are 'x1.wav', 'x2.wav'.*audio=NAME"
    with pytest.raises(EarmarkError, match=words):
        heard(tmp_path, "filename,label\na.wav,dog\nb.wav,cat\n")
    for labels in ("filename,label\n", "filename,label\nx1.wav,\n"):
        with pytest.raises(EarmarkError, match="there is not one label in it"):
            heard(tmp_path, labels)
    assert not (tmp_path / "w").exists()


def test_lists_of_segments_are_sent_to_their_importer(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "a.wav")
    with pytest.raises(EarmarkError, match=r"AudioSet's lists of segments do.*import audioset"):
        heard(tmp_path, '# Segments csv\n# YTID, start\n--PJHxphWEs, 30.0, 40.0, "/m/09x0r"\n')
