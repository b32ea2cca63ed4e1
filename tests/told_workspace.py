"""A small workspace that a teacher has scored, with a class tree, recordings, truth and chances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from earmark.audio import write_store
from earmark.config import Recipe
from earmark.datasets import Workspace, write_dataset
from earmark.flags import find_p_missing
from earmark.labels import LabelSet, Ontology
from earmark.scores import ScoreFolder, write_score_folder

CLASS_IDS = ("animal", "dog", "cat", "engine")
TREE = Ontology(CLASS_IDS, {"dog": ("animal",), "cat": ("animal",)})
N_TRAIN, N_TUNE = 240, 20


def told_workspace(root: Path, seed: int = 0) -> tuple[Workspace, ScoreFolder]:
    """Write clips of which two at a time are of one recording; frames say what is present."""
    random = np.random.default_rng(seed)
    n_clips = N_TRAIN + N_TUNE
    clip_ids = [f"clip{i:03}" for i in range(n_clips)]
    present = random.random((n_clips, len(CLASS_IDS))) < 0.3
    present[:, 0] |= present[:, 1] | present[:, 2]
    given = np.where(random.random(present.shape) < 0.6, np.where(present, 1, -1), 0)
    frames = [
        (clip_id, random.normal(row.sum(), 1, (6 + place % 3, 8)).astype(np.float16))
        for place, (clip_id, row) in enumerate(zip(clip_ids, present, strict=True))
    ]
    write_store(root / "frames", frames, patch_frames=4, patch_hop_frames=2)
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": pl.Series([None] * n_clips, dtype=pl.String),
            "start_seconds": pl.Series([None] * n_clips, dtype=pl.Float64),
            "end_seconds": pl.Series([None] * n_clips, dtype=pl.Float64),
            "split": ["train"] * N_TRAIN + ["tune"] * N_TUNE,
            "source": [f"recording{i // 2}" for i in range(n_clips)],
        }
    )
    labels = LabelSet.from_dense(given, clip_ids, CLASS_IDS)
    truth = LabelSet.from_dense(np.where(present, 1, -1), clip_ids, CLASS_IDS)
    workspace = write_dataset(root, clips, TREE, labels, truth)
    logits = np.where(present, 1.5, -1.5) + random.normal(0, 1, present.shape)
    scores = write_score_folder(
        workspace.scores_folder(Recipe().scores_name),
        workspace.clips["clip_id"].head(N_TRAIN),
        CLASS_IDS,
        logits[:N_TRAIN].astype(np.float32),
        None,
        out_of_fold=True,
        digest="scores",
    )
    return workspace, scores


def write_chances(workspace: Workspace, scores: ScoreFolder) -> None:
    """Write the chances of the train split's labels, as ``earmark flag --chances`` does."""
    labels = workspace.labels.select(workspace.rows("train"))
    p_missing = find_p_missing(labels, scores.logits_path, workspace.ontology)
    workspace.chances_path.parent.mkdir(exist_ok=True)
    p_missing.write(workspace.chances_path, labels.n_clips)
