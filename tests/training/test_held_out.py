from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.errors import EarmarkError
from earmark.networks.examples import examples_of
from earmark.networks.saved import load_network
from earmark.runs.engine import LocalEngine
from earmark.runs.parameters import CrossFitParams, ModelParams, NetworkParams, TrainParams
from earmark.training.held_out import score_held_out, teacher_folders
from earmark.training.teacher import cross_fit, readable_clips, score_clips
from scenes import band_workspace, open_store

TEACHER = NetworkParams(
    name="teacher",
    model=ModelParams(architecture="mlp_probe", n_hidden=8),
    train=TrainParams(epochs=1, batch_patches=16),
)
FOLDS = CrossFitParams(n_folds=2)
ONE = LocalEngine(1)


def test_held_out_clips_get_the_mean_of_the_folds_networks(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    scores = cross_fit(workspace, TEACHER, FOLDS, engine=ONE)
    found = score_held_out(workspace, scores, FOLDS, engine=ONE)
    store = open_store(workspace)
    tune = readable_clips(workspace, store, "tune")
    by_hand = [
        score_clips(load_network(folder), examples_of(TEACHER.model, store, tune.store_rows))[0][0]
        for folder in teacher_folders(workspace, "teacher", FOLDS)
    ]
    assert found.clip_ids[: len(tune.labels)].equals(tune.labels.clip_ids)
    assert np.allclose(found.logits[: len(tune.labels)], np.mean(by_hand, axis=0), atol=1e-6)
    written = (found.folder / "logits.npy").stat().st_mtime_ns
    again = score_held_out(workspace, scores, FOLDS, engine=ONE)
    assert (again.folder / "logits.npy").stat().st_mtime_ns == written


def test_a_teacher_from_elsewhere_cannot_be_asked_again(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    scores = cross_fit(workspace, TEACHER, FOLDS, engine=ONE)
    with pytest.raises(EarmarkError, match="'teacher' has scores but no network"):
        score_held_out(workspace, scores, CrossFitParams(n_folds=3), engine=ONE)
