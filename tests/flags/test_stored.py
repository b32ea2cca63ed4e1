from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.flags import (
    BY_PER_CENT,
    Thresholds,
    flag,
    made_from,
    stored_flags,
    stored_thresholds,
    survey,
    thresholds,
    write_flag_folder,
)
from earmark.labels import LabelSet
from earmark.scores import ScoreFolder, ScoreMatrix, write_score_folder


@pytest.fixture
def labels() -> LabelSet:
    generator = np.random.default_rng(3)
    return LabelSet.from_dense(generator.choice([1, -1, 0], (400, 3), p=[0.1, 0.05, 0.85]))


@pytest.fixture
def scores(tmp_path: Path, labels: LabelSet) -> ScoreFolder:
    logits = np.random.default_rng(4).normal(size=(400, 3)).astype(np.float32)
    logits[:, 1] = np.nan
    best = np.zeros(logits.shape, np.uint16)
    folder = tmp_path / "scores"
    return write_score_folder(
        folder, labels.clip_ids, labels.class_ids, logits, best, out_of_fold=True, digest="one"
    )


@pytest.fixture
def folder(tmp_path: Path, labels: LabelSet, scores: ScoreFolder) -> Path:
    found = survey(labels, scores.logits, discard_percent=2)
    chosen = {"discard_percent": 2, **BY_PER_CENT}
    place = tmp_path / "flags"
    write(place, labels, scores, found.thresholds, found.flags, chosen)
    return place


def write(
    folder: Path,
    labels: LabelSet,
    scores: ScoreFolder,
    points: Thresholds,
    flags: pl.DataFrame,
    chosen: dict[str, object],
) -> None:
    origin = made_from(labels, scores.digest)
    write_flag_folder(folder, labels, scores.digest, points, flags, origin, chosen)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every pass over scores adds a 1."""
    taken, scores_map = [], ScoreMatrix.map
    monkeypatch.setattr(ScoreMatrix, "map", lambda self, f: taken.append(1) or scores_map(self, f))
    return taken


def test_what_is_stored_is_not_computed_again(
    folder: Path, labels: LabelSet, scores: ScoreFolder, passes: list[int]
) -> None:
    found = stored_thresholds(folder, labels, scores.logits, scores.digest)
    some = stored_thresholds(folder, labels, scores.logits, scores.digest, [5, 0.1])
    flags = stored_flags(folder, labels, scores.logits, scores.digest, 2.0)
    assert passes == []
    new = thresholds(labels, scores.logits)
    assert found.discard_percents == new.discard_percents
    assert found.values.dtype == np.float32
    for name in ("values", "n_implicit", "n_ignored"):
        np.testing.assert_array_equal(getattr(found, name), getattr(new, name))
    np.testing.assert_array_equal(some.values, thresholds(labels, scores.logits, [5, 0.1]).values)
    assert flags.equals(flag(labels, scores.logits, discard_percent=2))


def test_points_that_are_not_stored_are_found(
    folder: Path, labels: LabelSet, scores: ScoreFolder
) -> None:
    found = stored_thresholds(folder, labels, scores.logits, scores.digest, [33, 5])
    new = thresholds(labels, scores.logits, [33, 5])
    np.testing.assert_array_equal(found.values, new.values)
    np.testing.assert_array_equal(found.n_ignored, new.n_ignored)
    flags = stored_flags(folder, labels, scores.logits, scores.digest, 3)
    assert flags.equals(flag(labels, scores.logits, discard_percent=3))


def test_other_labels_or_scores_are_computed(
    folder: Path, labels: LabelSet, scores: ScoreFolder
) -> None:
    some = labels.select(np.arange(200))
    found = stored_thresholds(folder, some, scores.logits[:200], scores.digest)
    np.testing.assert_array_equal(found.values, thresholds(some, scores.logits[:200]).values)
    others = -scores.logits
    found = stored_thresholds(folder, labels, others, "another digest")
    np.testing.assert_array_equal(found.values, thresholds(labels, others).values)
    nothing = stored_thresholds(folder / "none", labels, others, scores.digest)
    np.testing.assert_array_equal(nothing.values, found.values)


def test_flags_that_more_than_a_per_cent_chose_are_not_taken_for_it(
    folder: Path, labels: LabelSet, scores: ScoreFolder
) -> None:
    found = survey(labels, scores.logits, discard_percent=2)
    chosen = {"discard_percent": 2, **BY_PER_CENT, "policy": "precision"}
    write(folder, labels, scores, found.thresholds, found.flags.head(1), chosen)
    assert stored_flags(folder, labels, scores.logits, scores.digest, 2).equals(found.flags)
