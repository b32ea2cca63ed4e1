from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.audio import write_store
from earmark.datasets import (
    Workspace,
    find_stale,
    parts_changed,
    refuse_stale,
    stale_of,
    warn_stale,
    write_dataset,
    write_stamp,
)
from earmark.errors import EarmarkError, EarmarkWarning
from earmark.labels import LabelSet, Ontology
from earmark.storage import read_json, seal, seal_path, write_json
from scenes import band_workspace

CLASSES = ("low", "middle", "high")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path / "w")


def changed(workspace: Workspace, what: str) -> Workspace:
    """Change one part of a dataset on disk, as an import would."""
    clips, labels, ontology = workspace.clips, workspace.labels, workspace.ontology
    if what == "clips":
        clips = clips.with_columns(audio=pl.lit("moved.wav"))
    if what == "splits":
        clips = clips.with_columns(split=pl.lit("train"))
    if what == "labels":
        rows = labels.rows()
        labels = LabelSet.from_rows(rows.head(len(rows) - 1), labels.clip_ids, CLASSES, "fewer")
    if what == "classes":
        ontology = Ontology((*CLASSES, "new"))
        labels = LabelSet.from_rows(labels.rows(), labels.clip_ids, ontology.class_ids, "more")
    if what == "class names":
        ontology = replace(ontology, names={CLASSES[0]: "Renamed"})
    write_dataset(workspace.root, clips, ontology, labels, workspace.truth, replace=True)
    return Workspace(workspace.root)


@pytest.mark.parametrize("what", ["clips", "splits", "labels", "class names"])
def test_what_changed_is_named(workspace: Workspace, what: str) -> None:
    file = workspace.root / "made.json"
    write_stamp(workspace, file)
    assert parts_changed(workspace, file) == ()
    assert parts_changed(changed(workspace, what), file) == (what,)


def test_labels_of_other_classes_are_not_named_twice(workspace: Workspace) -> None:
    file = workspace.root / "made.json"
    write_stamp(workspace, file)
    workspace.truth_path.unlink()
    now = changed(Workspace(workspace.root), "classes")
    assert parts_changed(now, file) == ("classes",)


def test_frames_count_where_they_were_used(workspace: Workspace) -> None:
    with_frames, without = workspace.root / "with.json", workspace.root / "without.json"
    write_stamp(workspace, with_frames, of_frames=workspace.frames_folder)
    write_stamp(workspace, without)
    meta = read_json(seal_path(workspace.frames_folder))
    seal(workspace.frames_folder, {**meta, "digest": "another"})
    assert parts_changed(workspace, with_frames) == ("frames",)
    assert parts_changed(workspace, without) == ()


def test_a_stamp_that_is_none_is_told_with_its_file(workspace: Workspace) -> None:
    file = seal_path(workspace.flags_folder)
    write_json(file, {"dataset": True})
    with pytest.raises(EarmarkError, match=r"meta\.json: 'dataset' in it is no stamp"):
        find_stale(workspace)


def test_something_without_a_stamp_is_not_doubted(workspace: Workspace) -> None:
    seal(workspace.flags_folder, {"digest": "one"})
    assert stale_of(workspace, workspace.flags_path, seal_path(workspace.flags_folder), "x") is None
    refuse_stale(None)
    warn_stale(None, "nothing")


def test_stale_things_are_refused_or_said_with_the_command_that_renews_them(
    workspace: Workspace,
) -> None:
    file = workspace.root / "made.json"
    write_stamp(workspace, file)
    stale = stale_of(changed(workspace, "splits"), file, file, "score")
    with pytest.raises(EarmarkError, match=r"whose splits changed since; run `earmark score .*w`"):
        refuse_stale(stale)
    refuse_stale(stale, ("clips", "classes"))
    with pytest.warns(EarmarkWarning, match=r"splits changed since; so what; `earmark score"):
        warn_stale(stale, "so what")


def test_all_that_is_stale_is_listed_in_the_order_of_renewal(workspace: Workspace) -> None:
    for folder in ("scores/teacher", "scores/teacher-held-out", "flags", "sweep"):
        seal(workspace.root / folder, {"digest": "one"})
        write_stamp(workspace, seal_path(workspace.root / folder))
    write_stamp(workspace, workspace.queue_seal_path)
    assert find_stale(workspace) == []
    verbs = [one.command.split()[1] for one in find_stale(changed(workspace, "splits"))]
    assert verbs == ["score", "flag", "review", "sweep"]


def test_a_stamp_names_the_frames_that_it_was_made_of(workspace: Workspace) -> None:
    heard = write_store(
        workspace.embeddings_folder,
        ((clip_id, np.zeros((1, 2), np.float32)) for clip_id in workspace.clips["clip_id"]),
    ).folder
    file = workspace.root / "made.json"
    write_stamp(workspace, file, of_frames=heard)
    assert read_json(file)["frames_folder"] == "embeddings"
    meta = read_json(seal_path(workspace.frames_folder))
    seal(workspace.frames_folder, {**meta, "digest": "other log-mel frames"})
    assert parts_changed(workspace, file) == ()
    meta = read_json(seal_path(heard))
    seal(heard, {**meta, "digest": "another network"})
    assert parts_changed(workspace, file) == ("frames",)
    seal_path(heard).unlink()
    assert parts_changed(workspace, file) == ("frames",), "gone is changed, too"


def test_names_of_classes_count_where_they_are_shown_and_imply_labels(workspace: Workspace) -> None:
    places = {"score": seal_path(workspace.scores_folder("teacher")),
              "flag": seal_path(workspace.flags_folder)}  # fmt: skip
    for file in places.values():
        write_stamp(workspace, file)
    renamed = changed(workspace, "class names")
    found = {verb: stale_of(renamed, file, file, verb) for verb, file in places.items()}
    assert found["score"] is None
    assert found["flag"] is not None
    assert "class names changed since" in str(found["flag"])
