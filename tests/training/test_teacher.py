from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from earmark.compute import LocalEngine
from earmark.config import CrossFitParams, ModelParams, NetworkParams, TrainParams
from earmark.datasets import Workspace, readable_clips, whole_scores
from earmark.errors import EarmarkError
from earmark.metrics import lwlrap
from earmark.models import ClipExamples, build_probe, examples_of, load_network, score_clips
from earmark.storage import write_table
from earmark.training import cross_fit, fold_folders, score_held_out, tune_set
from kept_processes import KeptProcesses
from scenes import band_workspace, event_workspace, open_store

TINY = NetworkParams(
    name="teacher",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=24, batch_patches=8, learning_rate=3e-3),
)
SHORT = TINY.model_copy(update={"train": TrainParams(epochs=1, batch_patches=16)})
PROBE = NetworkParams(
    name="teacher",
    model=ModelParams(architecture="mlp_probe", n_hidden=8),
    train=TrainParams(epochs=1, batch_patches=16),
)
TWO_FOLDS = CrossFitParams(n_folds=2)


def test_cross_fitting_scores_every_train_clip_and_is_found_again(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    scores = cross_fit(workspace, TINY, CrossFitParams(n_folds=2), engine=LocalEngine(1))
    train = readable_clips(workspace, open_store(workspace), "train")
    assert scores.clip_ids.to_list() == train.labels.clip_ids.to_list()
    assert scores.out_of_fold
    positive = train.labels.states() > 0
    assert scores.logits[positive].mean() > scores.logits[~positive].mean() + 0.5
    written = (scores.folder / "logits.npy").stat().st_mtime_ns
    again = cross_fit(workspace, TINY, CrossFitParams(n_folds=2), engine=LocalEngine(1))
    assert (again.folder / "logits.npy").stat().st_mtime_ns == written


def test_processes_and_one_process_give_the_same_scores(
    tmp_path: Path, two_processes: KeptProcesses
) -> None:
    scores = [
        cross_fit(band_workspace(tmp_path / name), SHORT, TWO_FOLDS, engine=engine)
        for name, engine in (("here", LocalEngine(1)), ("there", two_processes))
    ]
    assert np.array_equal(scores[0].logits, scores[1].logits)


def test_in_sample_scores_say_so(tmp_path: Path) -> None:
    params = CrossFitParams(in_sample=True)
    assert not cross_fit(band_workspace(tmp_path), PROBE, params, engine=LocalEngine(1)).out_of_fold


def test_the_tune_split_marks_every_student(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    store = open_store(workspace)
    params = ModelParams(architecture="linear_probe")
    validation = tune_set(workspace, store, params)
    assert validation is not None
    network = build_probe(params, store.n_bands, 3, n_students=2)
    with torch.no_grad():
        network.biases[0][1] += torch.tensor([1.0, 0.0, 2.0])
    clips = readable_clips(workspace, store, "tune")
    logits = score_clips(network, ClipExamples(store, clips.store_rows))
    is_positive = clips.labels.states() > 0
    results = validation.evaluate(network)
    for student, own in enumerate(logits.astype(np.float64)):
        outputs = 1 / (1 + np.exp(-own))
        losses = -np.log(np.where(is_positive, outputs, 1 - outputs)).sum(axis=1)
        assert results["loss"][student] == pytest.approx(losses.mean(), rel=1e-5)
        assert results["lwlrap"][student] == pytest.approx(lwlrap(is_positive, own))


def test_without_a_tune_split_there_is_no_exam(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    clips = workspace.clips.with_columns(split=pl.lit("train"))
    write_table(tmp_path / "clips.parquet", clips)
    assert tune_set(Workspace.open(tmp_path), open_store(workspace), ModelParams()) is None


def test_held_out_clips_get_the_mean_of_the_folds_networks(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    scores = cross_fit(workspace, PROBE, TWO_FOLDS, engine=LocalEngine(1))
    found = score_held_out(workspace, scores, TWO_FOLDS, engine=LocalEngine(1))
    store = open_store(workspace)
    tune = readable_clips(workspace, store, "tune")
    by_hand = [
        score_clips(load_network(folder), examples_of(PROBE.model, store, tune.store_rows))[0]
        for folder in fold_folders(workspace, "teacher", TWO_FOLDS)
    ]
    assert found.clip_ids[: len(tune.labels)].equals(tune.labels.clip_ids)
    assert np.allclose(found.logits[: len(tune.labels)], np.mean(by_hand, axis=0), atol=1e-6)
    # In the whole each has the score of one network, as the clips of the train split have.
    whole = whole_scores(workspace, scores)
    assert whole.clip_ids[len(scores.clip_ids) :].equals(found.clip_ids)
    single = whole.logits[len(scores.clip_ids) :][: len(tune.labels)]
    for row, own in enumerate(single):
        assert np.allclose(own, by_hand[row % 2][row], atol=1e-6)
    written = (found.folder / "logits.npy").stat().st_mtime_ns
    again = score_held_out(workspace, scores, TWO_FOLDS, engine=LocalEngine(1))
    assert (again.folder / "logits.npy").stat().st_mtime_ns == written


def test_a_teacher_from_elsewhere_cannot_be_asked_again(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    scores = cross_fit(workspace, PROBE, TWO_FOLDS, engine=LocalEngine(1))
    with pytest.raises(EarmarkError, match="'teacher' has scores but no network"):
        score_held_out(workspace, scores, CrossFitParams(n_folds=3), engine=LocalEngine(1))


@pytest.mark.parametrize("architecture", ["linear_probe", "mlp_probe", "attention_probe"])
def test_a_probe_says_in_which_frame_it_hears_a_class(tmp_path: Path, architecture: str) -> None:
    workspace, at = event_workspace(tmp_path)
    model = ModelParams(architecture=architecture, n_hidden=16)
    train = TrainParams(epochs=40, batch_patches=16, learning_rate=1e-2)
    probe = NetworkParams(name="teacher", model=model, train=train)
    scores = cross_fit(workspace, probe, TWO_FOLDS, engine=LocalEngine(1))
    held_out = score_held_out(workspace, scores, TWO_FOLDS, engine=LocalEngine(1))
    frame_of = dict(zip(workspace.clips["clip_id"], at, strict=True))
    for found in (scores, held_out):
        assert found.best_patches is not None
        expected = np.stack([frame_of[clip_id] for clip_id in found.clip_ids])
        is_right = found.best_patches[expected >= 0] == expected[expected >= 0]
        assert is_right.mean() > 0.9
    assert held_out.best_patch("clip000", "low") == 7
