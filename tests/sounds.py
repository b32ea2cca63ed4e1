"""Small workspaces of real sound files, and untrained networks in finished folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from earmark.audio import FrameStore
from earmark.compute import LocalEngine
from earmark.config import ModelParams, NetworkParams
from earmark.datasets import Workspace, extract_frames, write_dataset
from earmark.labels import LabelSet, Ontology

if TYPE_CHECKING:
    from earmark.models import ModelCard

CLASS_IDS = ("/m/hum", "/m/beep", "/m/hiss")
ONTOLOGY = Ontology(CLASS_IDS, names=dict(zip(CLASS_IDS, ("Hum", "Beep", "Hiss"), strict=True)))
NARROW = ModelParams(width=0.125)


def sound(seed: int, seconds: float = 1.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * 16_000)) / 16_000
    tone = np.sin(2 * np.pi * rng.uniform(200, 4_000) * time)
    return (0.2 * tone + rng.normal(0, 0.02, len(time))).astype(np.float32)


def sound_workspace(root: Path, n_clips: int = 6) -> Workspace:
    """Write clips of 1.5 s (3 patches) and their frames; the last clip is for tuning."""
    import soundfile  # in here, so that what needs no sound runs without it

    clip_ids = [f"clip{i}" for i in range(n_clips)]
    for i, clip_id in enumerate(clip_ids):
        (root / "audio").mkdir(parents=True, exist_ok=True)
        soundfile.write(root / "audio" / f"{clip_id}.wav", sound(i), 16_000, subtype="FLOAT")
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": [f"audio/{clip_id}.wav" for clip_id in clip_ids],
            "start_seconds": pl.Series([None] * n_clips, dtype=pl.Float64),
            "end_seconds": pl.Series([None] * n_clips, dtype=pl.Float64),
            "split": ["train"] * (n_clips - 1) + ["tune"],
            "source": clip_ids,
        }
    )
    states = np.zeros((n_clips, len(CLASS_IDS)), np.int8)
    states[:, 0] = 1
    labels = LabelSet.from_dense(states, clip_ids, CLASS_IDS)
    workspace = write_dataset(root, clips, ONTOLOGY, labels)
    extract_frames(workspace, engine=LocalEngine(1))
    return workspace


def model_folder(
    folder: Path, store: FrameStore, model: ModelParams = NARROW, n_students: int = 1
) -> ModelCard:
    """Write an untrained network as if it had been trained on a store, with its card."""
    # in here, so that what needs no network runs without torch
    from earmark.models import build, write_card, write_network

    network = build(model, store.n_bands, len(CLASS_IDS), n_students, seed=1)
    params = NetworkParams(name=folder.name, model=model)
    write_network(folder, params, network, CLASS_IDS, store, "run")
    return write_card(folder, ONTOLOGY)
