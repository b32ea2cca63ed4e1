"""Small stores of frames with known truth, and networks quick to train on them.

Each class lights up a band of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from earmark.audio import FrameStore, write_store
from earmark.compute import LocalEngine
from earmark.config import CrossFitParams, ModelParams, NetworkParams, TrainParams
from earmark.datasets import Workspace, write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.scores import ScoreFolder

CLASS_IDS = ("low", "middle", "high")
PROBE = NetworkParams(
    name="probe",
    model=ModelParams(architecture="mlp_probe", n_hidden=8),
    train=TrainParams(epochs=2, batch_patches=16, learning_rate=1e-2),
)
TEACHER = PROBE.model_copy(
    update={"name": "teacher", "train": PROBE.train.model_copy(update={"epochs": 6})}
)
"""Trained for longer: what it scores is flagged."""
FOLDS = CrossFitParams(n_folds=2)
ONE = LocalEngine(1)


def band_workspace(root: Path, n_clips: int = 60, n_frames: int = 144, seed: int = 0) -> Workspace:
    """Write clips whose classes are loud bands; a third of the positives are hidden."""
    rng = np.random.default_rng(seed)
    present = rng.random((n_clips, len(CLASS_IDS))) < 0.4
    was_asked = rng.random(present.shape) < 0.67
    clip_ids = [f"clip{i:03}" for i in range(n_clips)]
    write_store(
        root / "frames",
        (
            (clip_id, _frames(rng, row, n_frames))
            for clip_id, row in zip(clip_ids, present, strict=True)
        ),
        patch_frames=96,
        patch_hop_frames=48,
    )
    return _write(root, clip_ids, present, was_asked)


def event_workspace(
    root: Path, n_clips: int = 150, n_frames: int = 12, seed: int = 0
) -> tuple[Workspace, np.ndarray]:
    """Write clips of embeddings in which every class sounds in one frame; return which as well.

    The frames are int64 [clip, class], -1 where the class is not there; clips last 6 s.
    """
    rng = np.random.default_rng(seed)
    present = rng.random((n_clips, len(CLASS_IDS))) < 0.4
    at = np.where(present, rng.integers(0, n_frames, present.shape), -1)
    at[0], present[0] = 7, True
    frames = rng.normal(0, 1, (n_clips, n_frames, 24)).astype(np.float32)
    for clip, column in np.argwhere(present):
        frames[clip, at[clip, column], 8 * column : 8 * column + 4] += 4.0
    clip_ids = [f"clip{i:03}" for i in range(n_clips)]
    write_store(root / "frames", zip(clip_ids, frames, strict=True))
    return _write(root, clip_ids, present, rng.random(present.shape) < 0.67, 6.0), at


def _write(
    root: Path,
    clip_ids: list[str],
    present: np.ndarray,
    was_asked: np.ndarray,
    seconds: float | None = None,
) -> Workspace:
    """Write a workspace around frames; a third of the clips is held out."""
    n_clips = len(clip_ids)
    states = np.where(present, 1, -1).astype(np.int8)
    splits = ["train" if i % 3 else ("tune" if i % 2 else "eval") for i in range(n_clips)]
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": pl.Series([None] * n_clips, dtype=pl.String),
            "start_seconds": pl.Series([None] * n_clips, dtype=pl.Float64),
            "end_seconds": pl.Series([seconds] * n_clips, dtype=pl.Float64),
            "split": splits,
            "source": [f"recording{i // 2}" for i in range(n_clips)],
        }
    )
    labels = LabelSet.from_dense(np.where(was_asked, states, 0), clip_ids, CLASS_IDS)
    truth = LabelSet.from_dense(states, clip_ids, CLASS_IDS)
    return write_dataset(root, clips, Ontology(CLASS_IDS), labels, truth, replace=True)


def scored_workspace(root: Path) -> tuple[Workspace, ScoreFolder]:
    """Write such clips, and have a teacher score the train split out of fold."""
    from earmark.training import cross_fit

    workspace = band_workspace(root)
    return workspace, cross_fit(workspace, TEACHER, FOLDS, engine=ONE)


def _frames(rng: np.random.Generator, present: np.ndarray, n_frames: int) -> np.ndarray:
    frames = rng.normal(-4.0, 0.5, (n_frames, 64))
    for column in np.flatnonzero(present):
        frames[:, 10 + 20 * column : 16 + 20 * column] += 4.0
    return frames.astype(np.float16)


def open_store(workspace: Workspace) -> FrameStore:
    return FrameStore.open(workspace.frames_folder)
