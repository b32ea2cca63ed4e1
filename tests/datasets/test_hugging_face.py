from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from called_verbs import earmark, refusal
from documents import ROOT
from earmark.datasets import ImportSummary, RowFile, import_hugging_face
from earmark.datasets.importers import hugging_face
from earmark.errors import EarmarkError
from own_tables import states
from sound_folders import clip_ids, note, present_in, sounds_in, wav

SOUND = pl.Struct({"bytes": pl.Binary, "path": pl.String})
CLASSES = ["dog", "cat", "rain"]


def embedded(sounds: list[bytes | None], names: list[str | None] | None = None) -> pl.Series:
    names = names or [None] * len(sounds)
    rows = [b and {"bytes": b, "path": name} for b, name in zip(sounds, names, strict=True)]
    return pl.Series(rows, dtype=SOUND)


def features(**columns: Any) -> dict[str, str]:
    """Return the metadata of a Parquet file as the library writes them."""
    return {"huggingface": json.dumps({"info": {"features": columns}})}


def class_labels(names: list[str], kind: str = "List") -> dict[str, Any]:
    return {"feature": {"names": names, "_type": "ClassLabel"}, "_type": kind}


def write(path: Path, columns: dict[str, Any], metadata: dict[str, str] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(path, metadata=metadata, row_group_size=2)
    return path


def imported(path: Path, **options: Any) -> ImportSummary:
    return import_hugging_face(path, path.with_suffix(".work"), **{"replace": True, **options})


def two_clips(**columns: Any) -> dict[str, Any]:
    return {"clip_id": ["007", "008"], "audio": embedded([wav(0.1), wav(0.2)]), **columns}


def test_parquet_of_the_hub(tmp_path: Path) -> None:
    data = tmp_path / "hub" / "data"
    meta = features(audio={"_type": "Audio"}, labels=class_labels(CLASSES, "Sequence"))
    for number, split in enumerate(("train", "validation", "test")):
        sound = embedded([wav(0.1), b"other"], [f"{number}-a.wav", f"{number}-b.flac"])
        columns = {"audio": sound, "labels": [[0, 2], [number]]}
        write(data / f"{split}-00000-of-00001.parquet", columns, meta)
    summary = imported(tmp_path / "hub")
    assert summary.split_counts == {"train": 2, "tune": 2, "eval": 2}
    assert sorted(clip_ids(summary)) == ["0-a", "0-b", "1-a", "1-b", "2-a", "2-b"]
    assert present_in(summary)["1-a"] == {"dog", "rain"}
    assert summary.workspace.ontology.class_ids == tuple(CLASSES)  # in the order of the numbers
    clips = summary.workspace.clips
    first = clips.row(by_predicate=pl.col("clip_id") == "0-a", named=True)
    assert summary.workspace.audio_path(first["audio"]).read_bytes() == wav(0.1)
    assert first["audio"].startswith("audio/data/train-00000-of-00001.parquet/")


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({"labels": [["cat"], ["cat", "dog"]]}, {}, [[1, 0], [1, 1]]),
        ({"label": ["cat", "dog"]}, {}, [[1, 0], [0, 1]]),
        ({"labels": [[0], [0, 1]]}, {}, [[1, 0], [1, 1]]),
        ({"cat": [1, 1], "dog": [0, 1]}, {}, [[1, 0], [1, 1]]),
        ({"cat": [True, True], "dog": [False, True]}, {"zeros": "absent"}, [[1, -1], [1, 1]]),
        ({"positives": [["cat"], []], "negatives": [["dog"], ["cat"]]}, {}, [[1, -1], [-1, 0]]),
        ({"heard": [["cat"], ["dog"]]}, {"columns": {"labels": "heard"}}, [[1, 0], [0, 1]]),
    ],
)
def test_labels_of_every_form(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], expected: list[list[int]]
) -> None:
    summary = imported(write(tmp_path / "d.parquet", two_clips(**columns)), **options)
    assert clip_ids(summary) == ["007", "008"]
    assert states(summary) == expected


def test_a_class_that_nobody_knows_is_no_label(tmp_path: Path) -> None:
    meta = features(label={"names": ["dog", "cat"], "_type": "ClassLabel"})
    summary = imported(write(tmp_path / "d.parquet", two_clips(label=[-1, 1]), meta))
    assert states(summary) == [[0, 0], [0, 1]]


def test_numbers_are_places_in_a_list_of_classes(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", two_clips(labels=[[0], [2, 0]]))
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    summary = imported(path, classes=tmp_path / "classes.txt")
    assert present_in(summary) == {"007": {"dog"}, "008": {"dog", "rain"}}
    assert note(summary, "places in classes.txt")
    (tmp_path / "short.txt").write_text("dog\ncat")
    with pytest.raises(EarmarkError, match=r"lists 2 classes, 0 to 1, but .* class '2'"):
        imported(path, classes=tmp_path / "short.txt")


def test_paths_are_followed_and_missing_ones_counted(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "a.wav")
    columns = {
        "audio": pl.Series(
            [{"bytes": None, "path": "sounds/a.wav"}, {"bytes": None, "path": "/gone/b.wav"}],
            dtype=SOUND,
        ),
        "label": ["dog", "cat"],
    }
    summary = imported(write(tmp_path / "d.parquet", columns))
    assert (summary.n_found, summary.n_missing) == (1, 1)
    assert summary.workspace.clips["audio"][0] == str(tmp_path / "sounds" / "a.wav")
    assert clip_ids(summary) == ["a", "b"]
    assert "/gone/b.wav" in note(summary, "1 clip whose sound file is not there")


def test_clips_that_nothing_names_are_numbered(tmp_path: Path) -> None:
    for split in ("train", "test"):
        columns = {
            "id": [1, 2],
            "audio": embedded([b"x", b"y"], ["s.wav"] * 2),
            "label": ["a", "b"],
        }
        write(tmp_path / "hub" / f"{split}.parquet", columns)
    summary = imported(tmp_path / "hub")
    assert sorted(clip_ids(summary)) == ["test/0", "test/1", "train/0", "train/1"]
    files = summary.workspace.clips["audio"].to_list()
    assert len({summary.workspace.audio_path(file).read_bytes() for file in files}) == 2
    assert len(set(files)) == 4  # rows of one name do not overwrite one another


@pytest.mark.parametrize("name", ["../../evil.wav", "/etc/evil.wav", "..\\..\\evil.wav", ".."])
def test_embedded_sound_stays_inside(tmp_path: Path, name: str) -> None:
    columns = {"audio": embedded([b"x"], [name]), "label": ["dog"]}
    summary = imported(write(tmp_path / "d.parquet", columns))
    place = summary.workspace.audio_path(summary.workspace.clips["audio"][0]).resolve()
    assert place.is_relative_to((summary.workspace.root / "audio").resolve())
    assert place.read_bytes() == b"x"


def test_a_few_rows_of_sound_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sounds = [bytes([i]) * 1000 for i in range(60)]
    columns = {"audio": embedded(list(sounds)), "label": ["dog"] * 60}
    path = write(tmp_path / "d.parquet", columns)
    monkeypatch.setattr(hugging_face, "_BYTES_AT_ONCE", 5_000)
    taken: list[int] = []
    read = pl.LazyFrame.slice

    def noted(frame: pl.LazyFrame, first: int, n_rows: int) -> pl.LazyFrame:
        taken.append(n_rows)
        return read(frame, first, n_rows)

    monkeypatch.setattr(pl.LazyFrame, "slice", noted)
    summary = imported(path)
    assert taken[0] == 8
    assert set(taken[1:]) == {5}
    files = summary.workspace.clips["audio"].to_list()
    assert [summary.workspace.audio_path(file).read_bytes() for file in files] == sounds


@pytest.mark.parametrize(
    ("columns", "meta", "message"),
    [
        (
            {"labels": [[0], [7]]},
            {"labels": class_labels(CLASSES)},
            r"row 2, column 'labels': cl",
        ),
        ({"labels": [[1.0, 0.0], [0.0, 1.0]]}, {}, r"column 'labels' holds vectors"),
        ({"labels": [[True, False], [True, True]]}, {}, r"column 'labels' holds vectors"),
        ({"positives": [[], ["a"]], "negatives": [[], ["a"]]}, {}, r"row 2: class 'a' is in 'posi"),
        ({"text": ["a dog barks", "it rains"]}, {}, "no column of classes"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, columns: dict[str, Any], meta: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "d.parquet", two_clips(**columns), features(**meta))
    with pytest.raises(EarmarkError, match=message) as refused:
        imported(path)
    assert str(path) in str(refused.value)
    assert not path.with_suffix(".work").exists()  # nothing was unpacked


def test_the_row_is_that_of_its_own_file(tmp_path: Path) -> None:
    meta = features(label={"names": ["dog"], "_type": "ClassLabel"})
    for number, label in enumerate((0, 3)):
        write(tmp_path / "hub" / f"{number}.parquet", two_clips(label=[0, label]), meta)
    with pytest.raises(EarmarkError, match=r"1\.parquet, row 2, column 'label'"):
        imported(tmp_path / "hub")


def test_files_of_two_kinds_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "hub" / "a" / "train.parquet", {"label": ["dog"]})
    write(tmp_path / "hub" / "b" / "train.parquet", {"label": ["dog"], "fold": [1]})
    with pytest.raises(EarmarkError, match=r"b/train.parquet: its columns are .*'fold'"):
        imported(tmp_path / "hub")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "d.parquet").write_bytes(b"no such thing")
    with pytest.raises(EarmarkError, match=r"d.parquet: cannot be read as Parquet"):
        imported(tmp_path / "d.parquet")


def test_arrow_that_would_end_the_process_is_named() -> None:
    """Its offsets lead out of the file, where Arrow reads whatever is in memory, or nothing."""
    rows = RowFile(ROOT / "tests" / "damaged" / "offsets-beyond.arrow", "")
    with pytest.raises(EarmarkError, match=r"offsets-beyond\.arrow: cannot be read as Arrow"):
        rows.rows(list(rows.schema()))
    list(rows.sounds("audio"))  # this column is sound


def test_arrow_that_would_fill_the_memory_is_named(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"label": ["dog"], "audio": [bytes(600_000_000)]})
    options = arrow.ipc.IpcWriteOptions(compression="zstd")
    with arrow.ipc.new_stream(tmp_path / "d.arrow", table.schema, options=options) as stream:
        stream.write_table(table)
    with pytest.raises(EarmarkError, match=r"d\.arrow: .*(unpack to more|read as Arrow with)"):
        imported(tmp_path / "d.arrow")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: (root / "notes.txt").write_text("x"), "expected what save_to_disk wrote"),
        (lambda root: sounds_in(root, "a.wav"), "earmark import sounds"),
        (lambda root: (root / "cache-1.arrow").write_text("x"), "expected what save_to_disk wrote"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, make: Any, message: str) -> None:
    (tmp_path / "root").mkdir()
    make(tmp_path / "root")
    with pytest.raises(EarmarkError, match=message):
        imported(tmp_path / "root")


def test_the_verb_says_what_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    meta = features(labels=class_labels(CLASSES))
    write(tmp_path / "data" / "train.parquet", two_clips(labels=[[0], [1]]), meta)
    told = earmark("import", "hf", "data", "--work", "W").stdout.splitlines()
    assert told[0].startswith("2 clips listed = 2 found + 0 missing")
    assert told[-1] == "next: earmark features W"
    assert len(told) <= 15
    assert max(map(len, told)) <= 80
    assert "no such column" not in refusal("import", "hf", "gone", "--work", "W")
    assert "there is no column 'x'" in refusal(
        "import", "hf", "data", "--work", "W", "--column", "labels=x"
    )


def test_texts_that_are_no_names_are_refused(tmp_path: Path) -> None:
    """A few kilobytes of Parquet hold a cell of any length, which would be copied many times."""
    for labels in (["dog", "x" * 1_000_001], [["dog"], ["cat", "x" * 1_000_001]]):
        path = write(tmp_path / "train.parquet", two_clips(labels=labels))
        with pytest.raises(EarmarkError, match=r"'labels' has 1,000,001 bytes; a cell may have"):
            imported(path)
