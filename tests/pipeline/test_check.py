from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.labels import LabelSet, Reading
from earmark.metrics import evaluate
from earmark.pipeline import check_labels, evaluate_scores
from earmark.scores import write_score_folder

CLIPS = [f"clip{number}" for number in range(40)]
STATES = (np.arange(80).reshape(40, 2) % 3 == 0).astype(np.int8)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    logits = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    best = np.zeros(logits.shape, np.uint16)
    names, digest = pl.Series(CLIPS), "scores"
    folder = tmp_path / "scores"
    write_score_folder(folder, names, ("a", "b"), logits, best, out_of_fold=True, digest=digest)
    return folder


def write_hot(folder: Path, clips: list[str], states: np.ndarray) -> Path:
    table = pl.DataFrame({"file": clips, "a": states[:, 0], "b": states[:, 1]})
    table.write_csv(folder / "labels.csv")
    return folder / "labels.csv"


def test_labels_of_any_form_are_evaluated(tmp_path: Path, scores: Path) -> None:
    rows = np.random.default_rng(1).permutation(40)
    labels = write_hot(tmp_path, [CLIPS[row] for row in rows], STATES[rows])
    found = evaluate_scores(labels, scores)
    known = LabelSet.from_dense(STATES, CLIPS, ("a", "b"))
    expected = evaluate(known, np.load(scores / "logits.npy"), ("a", "b")).overall
    assert found.overall == pytest.approx(expected, nan_ok=True)


def test_labels_of_other_clips_are_not_evaluated_in_silence(tmp_path: Path, scores: Path) -> None:
    some = write_hot(tmp_path, [*CLIPS[:39], "nobody"], STATES)
    with pytest.warns(EarmarkWarning, match=r"1 of 40 clips in labels\.csv have no scores"):
        evaluate_scores(some, scores)
    other = write_hot(tmp_path, [f"{name}.wav" for name in CLIPS], STATES)
    with pytest.raises(EarmarkError, match="no row for any of its clips"):
        evaluate_scores(other, scores)
    (tmp_path / "labels.csv").write_text("clip_id,class_id,present\n")
    with pytest.raises(EarmarkError, match="not one label"):
        evaluate_scores(tmp_path / "labels.csv", scores)


def test_tables_of_any_form_are_checked_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("file;tags\nx;dog|cat\ny;cat\nx;cat\nz;dog|dog\n")
    (tmp_path / "clips.txt").write_text("x\ny\n")
    checked = check_labels(tmp_path / "l.csv", tmp_path / "clips.txt")
    assert [(finding.kind, finding.line) for finding in checked.findings] == [
        ("duplicate row", 4),
        ("unknown clip", 5),
        ("unknown clip", 5),
        ("no explicit negatives", None),
    ]
    assert checked.has_errors
    assert checked.notes[0] == "l.csv: clip_id from 'file', labels from 'tags'"


def test_the_reading_of_a_table_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("what,dog,cat\nx,1,0\ny,0,1\n")
    reading = Reading({"clip_id": "what"}, zeros="absent")
    assert check_labels(tmp_path / "l.csv", reading=reading).findings == ()


@pytest.mark.parametrize("name", ["l.npy", "segments.csv"])
def test_files_that_are_no_tables_are_checked_too(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "l.npy":
        np.save(path, np.array([[1, 0], [-1, 0]], np.int8))
    else:
        path.write_text('0123456789a, 0.0, 10.0, "/m/0dog"\n')
    kinds = {finding.kind for finding in check_labels(path).findings}
    without = {"class without positives"} if name != "segments.csv" else set()
    assert kinds == without | ({"no explicit negatives"} if name != "l.npy" else set())


def test_files_without_one_label_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "l.npy", np.zeros((2, 2), np.int8))
    with pytest.raises(EarmarkError, match="not one explicit label"):
        check_labels(tmp_path / "l.npy")
