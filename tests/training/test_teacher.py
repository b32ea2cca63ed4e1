from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from earmark.datasets.workspace import Workspace
from earmark.metrics import lwlrap
from earmark.networks.architectures import build_model, build_probe
from earmark.networks.examples import ClipExamples, Examples
from earmark.runs.artefacts import write_table
from earmark.runs.engine import LocalEngine
from earmark.runs.parameters import CrossFitParams, ModelParams, NetworkParams, TrainParams
from earmark.training.teacher import cross_fit, readable_clips, score_clips, tune_set
from scenes import band_workspace, open_store

TINY = NetworkParams(
    name="teacher",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=24, batch_patches=8, learning_rate=3e-3),
)


def test_a_clips_score_is_the_logit_of_its_mean_output(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=9, n_frames=240))
    network = build_model(ModelParams(width=0.125), 3).eval()
    rows = np.array([4, 0, 7])
    (logits,), best = score_clips(network, Examples(store, rows))
    for place, row in enumerate(rows):
        patches = store.patches(np.full(4, row), np.arange(4))
        with torch.inference_mode():
            outputs = torch.sigmoid(network(torch.from_numpy(patches).float()).double()).numpy()
        mean = outputs.mean(axis=0)
        assert logits[place] == pytest.approx(np.log(mean / (1 - mean)), rel=1e-5)
        assert np.array_equal(best[place], outputs.argmax(axis=0))


def test_tiny_outputs_keep_their_order(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=3))
    network = build_model(ModelParams(width=0.125), 3).eval()
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([-60.0, -61.0, 60.0]))
    (logits,), _ = score_clips(network, Examples(store, np.array([0])))
    assert logits[0] == pytest.approx([-60.0, -61.0, 60.0])


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


def test_processes_and_one_process_give_the_same_scores(tmp_path: Path) -> None:
    scores = [
        cross_fit(
            band_workspace(tmp_path / str(n)),
            TINY,
            CrossFitParams(n_folds=2),
            engine=LocalEngine(n),
        )
        for n in (1, 2)
    ]
    assert np.array_equal(scores[0].logits, scores[1].logits)


def test_in_sample_scores_say_so(tmp_path: Path) -> None:
    params = CrossFitParams(in_sample=True)
    assert not cross_fit(band_workspace(tmp_path), TINY, params, engine=LocalEngine(1)).out_of_fold


def test_the_tune_split_marks_every_student(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    store = open_store(workspace)
    params = ModelParams(architecture="linear_probe")
    exam = tune_set(workspace, store, params)
    assert exam is not None
    network = build_probe(params, store.n_bands, 3, n_students=2)
    with torch.no_grad():
        network.biases[0][1] += torch.tensor([1.0, 0.0, 2.0])
    clips = readable_clips(workspace, store, "tune")
    logits, _ = score_clips(network, ClipExamples(store, clips.store_rows))
    is_positive = clips.labels.states() > 0
    marks = exam.marks(network)
    for student, own in enumerate(logits.astype(np.float64)):
        outputs = 1 / (1 + np.exp(-own))
        losses = -np.log(np.where(is_positive, outputs, 1 - outputs)).sum(axis=1)
        assert marks["loss"][student] == pytest.approx(losses.mean(), rel=1e-5)
        assert marks["lwlrap"][student] == pytest.approx(lwlrap(is_positive, own))


def test_without_a_tune_split_there_is_no_exam(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    clips = workspace.clips.with_columns(split=pl.lit("train"))
    write_table(tmp_path / "clips.parquet", clips)
    assert tune_set(Workspace.open(tmp_path), open_store(workspace), ModelParams()) is None
