"""A dataset under version control: held to limits, compared with another, and described."""

from __future__ import annotations

import json
import re
import shutil
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from markdown_it import MarkdownIt

from checked import CLASS_IDS, NAMES, checkable_workspace, hear_all
from earmark import pipeline
from earmark.datasets import Workspace, read_relabelled
from earmark.errors import EarmarkError
from earmark.report import Description, Limits


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, np.ndarray]:
    """A workspace with flags that were heard and a corrected label set; and the missing labels."""
    workspace, missing = checkable_workspace(tmp_path_factory.mktemp("checks") / "w")
    pipeline.write_flags(workspace)
    hear_all(workspace, missing, ("ann", "bob"))
    pipeline.correct_labels(workspace)
    return workspace, missing


@pytest.fixture(scope="module")
def checked(made: tuple[Workspace, np.ndarray]) -> pipeline.CheckedWorkspace:
    limits = Limits(most_missing_low=0.9, least_precision=0.99, least_precision_low=0.01)
    return pipeline.check_workspace(made[0], limits=limits)


def test_a_workspace_is_held_to_limits(
    made: tuple[Workspace, np.ndarray], checked: pipeline.CheckedWorkspace
) -> None:
    workspace, missing = made
    passed = {one.name: one.is_passed for one in checked.limits}
    assert passed == {
        "most_missing_low": True, "least_precision": False, "least_precision_low": True
    }  # fmt: skip
    assert not checked.is_passed
    evidence = checked.evidence
    n_missing, n_positives = int(missing.sum()), int(workspace.labels.n_positives.sum())
    known = evidence.estimates
    assert known.share is not None
    assert known.share.low <= n_missing / (n_missing + n_positives) <= known.share.high
    assert (evidence.n_raters, known.n_classes) == (2, 5)
    assert known.total.low <= n_missing <= known.total.high


def test_what_was_found_goes_into_json(checked: pipeline.CheckedWorkspace) -> None:
    facts = json.loads(json.dumps(checked.facts(by_class=True), allow_nan=False))
    assert facts["verdict"] == "failed"
    assert facts["dataset"]["n_clips"] == 800
    assert facts["limits"][0]["name"] == "most_missing_low"
    assert {one["class_id"] for one in facts["classes"]} == set(CLASS_IDS)
    assert facts["missing"] == json.loads(json.dumps(checked.evidence.estimates.facts()))
    assert facts["n_raters"] == 2
    assert "classes" not in checked.facts()


def test_corrected_labels_are_checked_by_their_name(made: tuple[Workspace, np.ndarray]) -> None:
    corrected = pipeline.check_workspace(made[0], labels="corrected").evidence
    given = pipeline.check_workspace(made[0], labels="given").evidence
    assert corrected.labels == "corrected"
    n_given, n_corrected = (one.findings.classes["n_positives"].sum() for one in (given, corrected))
    assert n_corrected > n_given
    assert corrected.estimates == given.estimates, "both are about the labels as given"


def test_without_limits_it_passes_and_without_answers_it_says_so(tmp_path: Path) -> None:
    workspace, _ = checkable_workspace(tmp_path / "w")
    found = pipeline.check_workspace(workspace)
    assert found.is_passed
    assert found.evidence.n_raters == 0
    assert found.evidence.estimates.total is None


def test_corrections_are_compared_with_who_made_them(
    made: tuple[Workspace, np.ndarray], tmp_path: Path
) -> None:
    workspace = made[0]
    out = tmp_path / "changes.parquet"
    found = pipeline.compare_labels("given", "corrected", work=workspace, out=out)
    told = read_relabelled(workspace, "corrected").changes
    table = pl.read_parquet(out)
    assert len(table) == len(told)
    keyed = table.join(told, on=["clip_id", "class_id"], suffix="_told")
    assert (keyed["after"] == keyed["after_told"]).all()
    assert (keyed["rater"] == keyed["rater_told"]).all()
    assert set(table["rater"]) == {"ann", "bob"}
    assert set(table["before"]) == {"implicit"}
    assert set(table["name"]) <= set(NAMES)
    flags = pl.read_parquet(workspace.flags_path).select("clip_id", "class_id", "chance")
    chances = table.join(flags, on=["clip_id", "class_id"], suffix="_flag")
    assert len(chances) == table["chance"].count() > 0
    assert (chances["chance"] == chances["chance_flag"]).all()
    assert found.changes.n_of("removed") == 0


def test_a_table_of_labels_differs_only_in_what_it_says(
    made: tuple[Workspace, np.ndarray], tmp_path: Path
) -> None:
    """Clips without a label cannot be in such a table, and are no difference."""
    rows = made[0].labels.rows()
    rows.write_csv(tmp_path / "same.csv")
    assert pipeline.compare_labels(made[0].root, tmp_path / "same.csv").changes.is_none
    with_endings = rows.with_columns(pl.col("clip_id") + ".wav")
    with_endings.write_csv(tmp_path / "wav.csv")
    found = pipeline.compare_labels(tmp_path / "same.csv", tmp_path / "wav.csv")
    assert found.changes.is_none
    assert any("without their endings" in note for note in found.notes)
    rows.with_columns(pl.col("clip_id") + "x").write_csv(tmp_path / "others.csv")
    found = pipeline.compare_labels(tmp_path / "same.csv", tmp_path / "others.csv")
    assert any("not one clip is on both sides" in note for note in found.notes)


def test_labels_that_cannot_be_compared_are_refused(
    made: tuple[Workspace, np.ndarray], tmp_path: Path
) -> None:
    np.save(tmp_path / "states.npy", made[0].labels.states())
    with pytest.raises(EarmarkError, match=r"states\.npy: its clips have no names"):
        pipeline.compare_labels(made[0].root, tmp_path / "states.npy")
    with pytest.raises(EarmarkError, match="did you mean 'corrected'"):
        pipeline.compare_labels("given", "korrected", work=made[0])
    with pytest.raises(EarmarkError, match="--work FOLDER takes names"):
        pipeline.compare_labels("given", "corrected")


def test_checking_and_describing_write_nothing_into_a_workspace(
    made: tuple[Workspace, np.ndarray], tmp_path: Path
) -> None:
    root = made[0].root
    shutil.copytree(root, tmp_path / "w")
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "w").rglob("*")}
    checked = pipeline.check_workspace(tmp_path / "w")
    assert checked.evidence.n_raters == 2
    pipeline.write_card(tmp_path / "w", tmp_path / "CARD.md")
    files = {path for path in (tmp_path / "w").rglob("*") if path.is_file()}
    assert files == {path for path in there if path.is_file()}
    assert all(path.stat().st_mtime_ns == there[path] for path in files)


def test_a_card_tells_what_is_missing(made: tuple[Workspace, np.ndarray], tmp_path: Path) -> None:
    described = Description(name="Sounds of a street", licence="CC0-1.0")
    written = pipeline.write_card(
        made[0], tmp_path / "CARD.md", description=described, day=date(2026, 3, 1)
    )
    text = written.path.read_text()
    assert text.startswith("# Sounds of a street\n")
    for line in (
        "| licence | CC0-1.0 |",
        "| clips | 800 (train 800), 0 with sound |",
        "| date | 2026-03-01 |",
        "- corrected: by 2 raters, until ",
        "- Answers by 2 raters, the last on ",
        "| Odd \\| name |",
    ):
        assert line in text, line
    assert written.contents.evidence.estimates.describe() in text
    assert "ann" not in text.split()  # raters are counted, not named
    again = pipeline.write_card(
        made[0], tmp_path / "again.md", description=described, day=date(2026, 3, 1)
    )
    assert again.path.read_text() == text


def test_a_card_holds_what_others_wrote_as_text(
    made: tuple[Workspace, np.ndarray], tmp_path: Path
) -> None:
    shutil.copytree(made[0].root, tmp_path / "w")
    hostile = "<script>alert(1)</script> ![x](http://a.example/x.png) [x](javascript:alert(1))"
    classes = pl.read_parquet(tmp_path / "w" / "classes.parquet")
    classes.with_columns(name=pl.lit(hostile) + pl.col("class_id")).write_parquet(
        tmp_path / "w" / "classes.parquet"
    )
    described = Description(*[hostile] * 5)
    written = pipeline.write_card(tmp_path / "w", tmp_path / "CARD.md", description=described)
    text = written.path.read_text()
    assert text.count("javascript") > 5
    page = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(text)
    assert not re.search(r"<(?:script|img)|href=.javascript", page)
