from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from earmark.datasets import Workspace, corrected_names, label_names, read_labels, read_relabelled
from earmark.errors import EarmarkError
from earmark.review import JUDGEMENT_SCHEMA, relabel, write_relabelled
from reviews import judgement, table
from scenes import CLASS_IDS, band_workspace


def judged(workspace: Workspace, name: str = "corrected") -> dict[str, str]:
    """Judge one implicit label of each class: present, cleared, unsure; return the clips."""
    states = workspace.labels.states()
    answers = ("present", "not_present", "unsure")
    clips, told = {}, []
    for column, (class_id, answer) in enumerate(zip(CLASS_IDS, answers, strict=True)):
        row = next(row for row in workspace.rows("train") if states[row, column] == 0)
        clips[class_id] = workspace.labels.clip_ids[int(row)]
        told.append(judgement(column, answer, clip_id=clips[class_id], class_id=class_id))
    judgements = table(*told)
    write_relabelled(workspace, name, relabel(workspace.labels, judgements), judgements)
    return clips


def test_corrected_labels_come_with_the_raters_rulings(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    assert corrected_names(workspace) == []
    clips = judged(workspace)
    assert corrected_names(workspace) == ["corrected"]
    named = read_labels(workspace, "corrected")
    assert named.labels.n_positives.sum() == workspace.labels.n_positives.sum() + 1
    assert named.rulings is not None
    rulings = {row[:2]: row[2] for row in named.rulings.rows().iter_rows()}
    assert rulings == {(clips["middle"], "middle"): False, (clips["high"], "high"): True}


def test_labels_that_are_not_there_are_explained(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    assert read_labels(workspace, "given").labels is workspace.labels
    assert read_labels(workspace, "truth").rulings is None
    with pytest.raises(EarmarkError, match="no labels 'mine'; the choices are given, truth"):
        read_labels(workspace, "mine")
    with pytest.raises(EarmarkError, match="earmark relabel"):
        read_labels(workspace, "corrected")
    workspace.truth_path.unlink()
    with pytest.raises(EarmarkError, match="only a simulated dataset"):
        read_labels(Workspace.open(tmp_path), "truth")


def test_a_corrected_set_is_read_by_whatever_name_it_was_given(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    judged(workspace, "mine")
    assert label_names(workspace) == ["given", "mine", "truth"]
    named = read_labels(workspace, "mine")
    assert named.labels.digest == read_relabelled(workspace, "mine").labels.digest
    assert named.rulings is not None
    with pytest.raises(EarmarkError, match="the choices are given, mine, truth"):
        read_labels(workspace, "yours")


def test_corrections_of_other_labels_are_refused(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    nothing = pl.DataFrame(schema=JUDGEMENT_SCHEMA)
    write_relabelled(workspace, "old", relabel(workspace.labels, nothing), nothing)
    changed = band_workspace(tmp_path, seed=1)
    with pytest.raises(EarmarkError, match="corrects other labels"):
        read_relabelled(changed, "old")
