"""Which teacher is the best: both numbers worked out by hand and by plain counting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.datasets import Workspace, write_scores
from earmark.scores import ScoreFolder
from earmark.training import (
    EvaluationClips,
    Tried,
    best_way,
    blend,
    choose_evaluation_clips,
    evaluate_way,
)
from scenes import band_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path, n_clips=120)


def scores_of(workspace: Workspace, logits: np.ndarray, name: str = "teacher") -> ScoreFolder:
    clip_ids = workspace.clips["clip_id"]
    logits = logits.astype(np.float32)
    return write_scores(
        workspace, name, clip_ids, logits, None, out_of_fold=True, digest=name, origin=None
    )


def knowing(workspace: Workspace, noise: float) -> np.ndarray:
    truth = workspace.truth
    assert truth is not None
    rng = np.random.default_rng(0)
    return truth.states() + noise * rng.normal(size=(len(workspace.clips), 3))


def test_auc_and_hits_are_counted_plainly(workspace: Workspace) -> None:
    logits = knowing(workspace, 1.0)
    logits[:, 1] = np.nan
    scores = scores_of(workspace, logits)
    evaluation_clips = EvaluationClips(
        workspace.labels.select(workspace.rows("train")), is_tune=False
    )
    found = evaluate_way(workspace, "probe", scores, evaluation_clips)
    given = evaluation_clips.labels.states() > 0
    own = logits[workspace.rows("train")].astype(np.float32)
    aucs = [
        np.mean([(high > low) + (high == low) / 2 for high in own[given[:, c], c]
                 for low in own[~given[:, c], c]])
        for c in (0, 2)
    ]  # fmt: skip
    assert found.auc == pytest.approx(np.median(aucs), abs=1e-6)
    assert (found.way, found.n_classes) == ("probe", 2)
    places = [(-own[i, c], given[i, c]) for i in range(len(own)) for c in (0, 2)]
    n = int(given.sum())
    hits = sum(is_given for _, is_given in sorted(places)[:n])
    assert found.hits == pytest.approx(hits / n)


def test_hits_by_hand() -> None:
    states = np.array([[1, 0], [1, 0], [0, 1]], np.int8)
    perfect = np.array([[3, 0], [2, 0], [0, 1]], np.float32)
    assert blend._hits(states, perfect) == 1
    assert blend._hits(states, -perfect) == 0
    # the first three are 3 (given), 2.5 (not) and 2 (given)
    assert blend._hits(states, np.array([[3, 2.5], [2, 0], [0, 1]], np.float32)) == pytest.approx(
        2 / 3
    )
    # of a class without scores nothing can be found
    unscored = np.array([[3, np.nan], [2, np.nan], [0, np.nan]], np.float32)
    assert blend._hits(states, unscored) == pytest.approx(2 / 3)
    # scores that are all the same find no more than chance has
    assert blend._hits(states, np.zeros((3, 2), np.float32)) == pytest.approx(1 / 2)
    assert np.isnan(blend._hits(np.zeros((3, 2), np.int8), perfect))


def test_of_equals_the_simplest_is_taken_and_what_cannot_be_measured_last() -> None:
    nan = float("nan")
    assert (
        best_way([Tried("zero-shot", 0.9, 0.5, 3), Tried("blend", 0.9, 0.5, 3)]).way == "zero-shot"
    )
    assert best_way([Tried("zero-shot", nan, nan, 3), Tried("probe", nan, 0.1, 3)]).way == "probe"
    assert (
        best_way([Tried("zero-shot", nan, nan, 3), Tried("probe", nan, nan, 3)]).way == "zero-shot"
    )


def test_the_tune_split_is_the_exam_where_it_has_labels_enough(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = scores_of(workspace, knowing(workspace, 1.0))
    tune = workspace.clips.filter(split="tune")["clip_id"].to_list()
    n_positives = int(workspace.labels.select(workspace.rows("tune")).n_positives.sum())
    monkeypatch.setattr(blend, "LEAST_POSITIVES", n_positives)
    evaluation_clips = choose_evaluation_clips(workspace, scores)
    assert evaluation_clips.is_tune
    assert evaluation_clips.labels.clip_ids.to_list() == tune
    assert evaluation_clips.told == f"{len(tune)} clips of the tune split"
    expected = knowing(workspace, 1.0)[workspace.rows("tune")].astype(np.float32)
    np.testing.assert_array_equal(evaluation_clips.logits(workspace, scores), expected)
    monkeypatch.setattr(blend, "LEAST_POSITIVES", n_positives + 1)
    evaluation_clips = choose_evaluation_clips(workspace, scores)
    assert not evaluation_clips.is_tune
    assert evaluation_clips.told == "80 clips that it was not trained on"
    assert evaluation_clips.labels.clip_ids.to_list() == scores.clip_ids.to_list()


def test_many_clips_are_compared_on_some_spread_over_all(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blend, "MOST_CLIPS", 10)
    evaluation_clips = choose_evaluation_clips(
        workspace, scores_of(workspace, knowing(workspace, 1.0))
    )
    train = workspace.clips.filter(split="train")["clip_id"].to_list()
    assert evaluation_clips.labels.clip_ids.to_list() == train[::8]
