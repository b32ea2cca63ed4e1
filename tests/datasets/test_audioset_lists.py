from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from audioset_files import BALANCED, SPEECH, write_official
from earmark.datasets import find_official, read_listing
from earmark.errors import EarmarkError
from earmark.labels import read_classes, read_ontology


def test_an_empty_list_of_classes_is_a_clip_without_positives(tmp_path: Path) -> None:
    files = find_official(write_official(tmp_path, BALANCED + 'abcdefghijk, 0.000, 10.000, ""\n'))
    listing = read_listing(files, read_ontology(read_classes(files.classes), files.ontology))
    assert "abcdefghijk_0" in listing.clips["clip_id"].to_list()
    assert "abcdefghijk_0" not in listing.positives["clip_id"].to_list()
    assert listing.notes == ()


def test_unknown_classes_and_repeated_segments_are_counted(tmp_path: Path) -> None:
    lines = (
        'abcdefghijk, 0.000, 10.000, "/m/09x0r,/m/none,/m/09x0r"\n'
        'abcdefghijk, 0.000, 10.000, "/m/04rlf"\n'
        'abcdefghijk, 20.000, 30.000, "/m/none,/m/nought"\n'
    )
    files = find_official(write_official(tmp_path, lines, evaluation=None))
    listing = read_listing(files, read_ontology(read_classes(files.classes), files.ontology))
    assert listing.clips["clip_id"].to_list() == ["abcdefghijk_0", "abcdefghijk_20000"]
    assert listing.positives.rows() == [("abcdefghijk_0", SPEECH)]
    twice, unknown = listing.notes
    assert twice.startswith("1 segments are listed twice")
    assert unknown.startswith("3 labels of the segments left out: 2 classes")
    assert "(/m/none, /m/nought)" in unknown


def test_a_clip_in_both_lists_stays_in_eval(tmp_path: Path) -> None:
    line = 'abcdefghijk, 0.000, 10.000, "/m/09x0r"\n'
    files = find_official(write_official(tmp_path, BALANCED + line, line))
    listing = read_listing(files, read_ontology(read_classes(files.classes), files.ontology))
    split = listing.clips.filter(pl.col("source") == "abcdefghijk")["split"]
    assert split.to_list() == ["eval"]


def test_no_known_class_at_all_is_an_error(tmp_path: Path) -> None:
    files = find_official(write_official(tmp_path, BALANCED.replace("/m/", "/x/"), None))
    ontology = read_ontology(read_classes(files.classes), files.ontology)
    with pytest.raises(EarmarkError, match="not one label"):
        read_listing(files, ontology)


def test_files_are_found_in_nested_folders(tmp_path: Path) -> None:
    write_official(tmp_path / "a" / "csv")
    (tmp_path / "a" / "csv" / "ontology.json").rename(tmp_path / "ontology.json")
    files = find_official(tmp_path)
    assert list(files.segments) == ["eval_segments.csv", "balanced_train_segments.csv"]
    assert files.ontology == (tmp_path / "ontology.json").resolve()


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="no such folder"):
        find_official(tmp_path / "nowhere")
    with pytest.raises(EarmarkError, match="class_labels_indices"):
        find_official(tmp_path)
