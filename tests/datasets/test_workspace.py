from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from documents import ROOT
from earmark.datasets import Workspace, write_dataset
from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology
from earmark.storage import seal


def small_dataset(root: Path, splits: tuple[str, ...] = ("train", "tune", "eval")) -> Workspace:
    clip_ids = [f"clip{i}" for i in range(len(splits))]
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": [f"audio/{clip_id}.wav" for clip_id in clip_ids],
            "start_seconds": [None] * len(splits),
            "end_seconds": [None] * len(splits),
            "split": list(splits),
            "source": clip_ids,
        }
    )
    states = np.zeros((len(splits), 2), np.int8)
    states[0] = [1, -1]
    labels = LabelSet.from_dense(states, clip_ids, ["speech", "siren"])
    return write_dataset(root, clips, Ontology(("speech", "siren")), labels)


def test_a_dataset_comes_back_as_written(tmp_path: Path) -> None:
    small_dataset(tmp_path)
    workspace = Workspace.open(tmp_path)
    assert workspace.labels.states().tolist() == [[1, -1], [0, 0], [0, 0]]
    assert workspace.rows("tune").tolist() == [1]
    assert workspace.ontology.class_ids == ("speech", "siren")
    assert workspace.truth is None


def test_a_folder_that_is_no_workspace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="not a workspace"):
        Workspace.open(tmp_path)


def test_an_unknown_split_names_the_clip(tmp_path: Path) -> None:
    workspace = small_dataset(tmp_path, ("train", "validation"))
    with pytest.raises(EarmarkError, match=r"'clip1' has split 'validation'.*train, tune, eval"):
        _ = workspace.clips


def test_paths_are_named_in_the_workspace_alone() -> None:
    """What is inside the folder of another's artefact is named where that is written."""
    named_elsewhere = re.compile(r"workspace\.(?:root|\w+_folder(?:\([^)]*\))?) / ")
    for path in sorted((ROOT / "src" / "earmark").glob("**/*.py")):
        assert not named_elsewhere.search(path.read_text()), path


def test_the_docs_name_every_path() -> None:
    told = (ROOT / "docs" / "file-formats.md").read_text()
    workspace = Workspace(Path("W"))
    named = [name for name in vars(Workspace) if name.endswith(("_path", "_folder", "_page"))]
    paths = [path for name in named if isinstance(path := getattr(workspace, name), Path)]
    assert len(paths) > 15
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert re.search(rf"`(\w+/)?{re.escape(path.name)}[/`]", told), path


def test_the_very_dataset_that_is_there_is_left_alone(tmp_path: Path) -> None:
    small_dataset(tmp_path)
    paths = sorted(tmp_path.iterdir())
    times = [path.stat().st_mtime_ns for path in paths]
    small_dataset(tmp_path)
    assert [path.stat().st_mtime_ns for path in paths] == times


def test_another_dataset_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    before = small_dataset(tmp_path)
    with pytest.raises(EarmarkError, match=r"already, with other splits; nothing was changed"):
        small_dataset(tmp_path, ("train", "train", "train"))
    with pytest.raises(EarmarkError, match=r"already, with other clips; nothing was changed"):
        small_dataset(tmp_path, ("train", "tune"))
    now = Workspace(tmp_path)
    assert now.clips.equals(before.clips)
    assert now.labels.digest == before.labels.digest


@pytest.mark.parametrize("name", ["clips", "classes", "labels", "truth"])
def test_a_table_that_no_import_wrote_is_not_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.parquet"
    path.write_text("mine")
    with pytest.raises(EarmarkError, match=rf"no import wrote '{name}\.parquet', .*nothing was"):
        small_dataset(tmp_path)
    assert path.read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_an_import_that_was_killed_before_its_end_goes_on(tmp_path: Path) -> None:
    workspace = small_dataset(tmp_path)
    workspace.labels_path.unlink()  # which is written last
    assert small_dataset(tmp_path).labels.n_positives.sum() == 1


def test_other_clips_take_the_seals_of_all_frames_away(tmp_path: Path) -> None:
    workspace = small_dataset(tmp_path)
    folders = (workspace.frames_folder, workspace.embeddings_folder, workspace.outputs_folder)
    clips, ontology, labels = workspace.clips, workspace.ontology, workspace.labels
    for changed, is_kept in ((clips.with_columns(split=pl.lit("train")), True),
                             (clips.with_columns(audio=pl.lit("other.wav")), False)):  # fmt: skip
        for folder in folders:
            seal(folder, {"digest": "one"})
        write_dataset(tmp_path, changed, ontology, labels, replace=True)
        assert [(folder / "meta.json").exists() for folder in folders] == [is_kept] * 3


def test_a_clip_that_is_listed_twice_is_told_with_its_file(tmp_path):
    workspace = small_dataset(tmp_path)
    clips = pl.read_parquet(workspace.clips_path)
    pl.concat([clips, clips]).write_parquet(workspace.clips_path)
    with pytest.raises(EarmarkError, match=r"clips\.parquet: a clip is listed twice"):
        _ = Workspace.open(workspace.root).labels


@pytest.mark.parametrize(
    ("file", "column"),
    [
        ("clips", {"end_seconds": [1.0]}),
        ("clips", {"start_seconds": {"a": 1.0}}),
        ("classes", {"name": b"\xff"}),
    ],
)
def test_columns_of_other_types_are_told_with_their_file(tmp_path, file, column):
    small_dataset(tmp_path)
    path = tmp_path / f"{file}.parquet"
    odd = {name: pl.lit(pl.Series([value])).first() for name, value in column.items()}
    pl.read_parquet(path).with_columns(**odd).write_parquet(path)
    workspace = Workspace.open(tmp_path)
    with pytest.raises(EarmarkError, match=rf"{file}\.parquet: cannot be read as"):
        _ = workspace.audio_digest, workspace.ontology.to_table()


@pytest.mark.parametrize("name", ["../outside", "", ".", 1.5, "a" * 256])
def test_names_stay_in_the_workspace(tmp_path, name):
    for place in (Workspace(tmp_path).scores_folder, Workspace(tmp_path).relabelled_folder):
        with pytest.raises(EarmarkError, match="it leads elsewhere"):
            place(name)
