"""A workspace's class map is made by name, kept, and left alone once somebody edited it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.datasets import CLIP_SCHEMA, Workspace, write_dataset
from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology
from earmark.models.pretrained import NetworkFacts, map_classes


def facts(*names: str, name: str = "net") -> NetworkFacts:
    return NetworkFacts(
        name=name,
        digest=name,
        sample_rate_hz=16_000,
        frame_seconds=1.0,
        hop_seconds=1.0,
        n_features=2,
        output_names=names,
        n_outputs=len(names),
    )


def workspace_of(root: Path, *names: str) -> Workspace:
    row = {"clip_id": "a", "audio": "a.wav", "split": "train", "source": "a"}
    clips = pl.DataFrame([row]).with_columns(start_seconds=None, end_seconds=None)
    labels = LabelSet.from_dense(np.ones((1, len(names)), np.int8), ["a"], names)
    clips = clips.select(list(CLIP_SCHEMA))
    return write_dataset(root, clips, Ontology(names), labels, replace=True)


def test_names_are_matched_and_written_to_be_edited(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "Dog", "Qqx")
    mapped = map_classes(workspace, facts("Cat", "Dog"))
    assert mapped.class_map is not None
    assert (mapped.class_map.outputs, mapped.class_map.columns) == ((1,), (0,))
    assert mapped.path == workspace.class_map_path
    assert "1 of 2 classes is one that net knows" in mapped.told
    lines = workspace.class_map_path.read_text().splitlines()
    assert lines[0].startswith("output,class_id")
    assert lines[1].startswith("Dog,Dog")
    assert lines[2].startswith(",Qqx")


def test_what_nobody_edited_is_made_anew_for_other_classes_and_networks(tmp_path: Path) -> None:
    map_classes(workspace_of(tmp_path, "Dog", "Qqx"), facts("Cat", "Dog"))
    workspace = workspace_of(tmp_path, "Cat", "Bird")
    mapped = map_classes(workspace, facts("Cat", "Dog"))
    assert mapped.class_map is not None
    assert (mapped.class_map.outputs, mapped.class_map.columns) == ((0,), (0,))
    mapped = map_classes(workspace, facts("Bird", "Horse", "Cow", name="other"))
    assert mapped.class_map is not None
    assert (mapped.class_map.outputs, mapped.class_map.columns) == ((0,), (1,))


def test_no_class_in_common_is_no_map_however_often_it_is_asked(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "Qqx", "Qqy")
    for _ in range(2):
        mapped = map_classes(workspace, facts("Cat", "Dog"))
        assert mapped.class_map is None
        assert mapped.told == "not one of 2 classes is surely one that net knows"


def test_a_network_without_classes_needs_no_map(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "Dog")
    mapped = map_classes(workspace, facts())
    assert (mapped.class_map, mapped.told) == (None, "net has no classes of its own")
    assert not workspace.class_map_path.exists()


def test_a_file_that_is_given_goes_before_all_and_is_checked(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", "Dog", "Qqx")
    given = tmp_path / "map.csv"
    given.write_text("output,class_id\nCat,Qqx\nDog,Moo\n")
    with pytest.raises(EarmarkError, match=r"map\.csv, line 3: .* 'Moo'.*--skip-unknown"):
        map_classes(workspace, facts("Cat", "Dog"), given)
    mapped = map_classes(workspace, facts("Cat", "Dog"), given, skip_unknown=True)
    assert mapped.class_map is not None
    assert (mapped.class_map.outputs, mapped.class_map.columns) == ((0,), (1,))
    assert not workspace.class_map_path.exists(), "what was given is not copied"


def test_what_was_edited_for_another_network_says_how_to_begin_anew(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "Dog", "Qqx")
    map_classes(workspace, facts("Cat", "Dog"))
    text = workspace.class_map_path.read_text()
    workspace.class_map_path.write_text(text.replace(",Qqx,", "Cat,Qqx,", 1))
    told = rf"no output 'Dog'.*edited for another network.* delete it: {workspace.class_map_path}"
    with pytest.raises(EarmarkError, match=told):
        map_classes(workspace, facts("Horse", "Cow", name="other"))
    workspace.class_map_path.unlink()
    assert map_classes(workspace, facts("Horse", "Cow", name="other")).class_map is None
