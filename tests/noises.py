"""Workspaces of noise: sound files that hold nothing, for stores of frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from earmark.config import FrontEndParams
from earmark.datasets import CLIP_SCHEMA, Workspace, write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.storage import AudioAccess, read_table

RATE = 16_000
PARAMS = FrontEndParams()


class CountingProgress:
    """Remembers what was announced and done."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, int, str]] = []
        self.n_done = 0

    def job(self, label: str, n_total: int, unit: str) -> CountingProgress:
        self.jobs.append((label, n_total, unit))
        return self

    def advance(self, n_done: int, note: str = "") -> None:
        self.n_done += n_done


def make_workspace(
    root: Path, audio: list[str | None], folders: Sequence[Path] = (), *, is_remote: bool = False
) -> Workspace:
    clip_ids = [f"clip{i}" for i in range(len(audio))]
    clips = pl.DataFrame(
        {"clip_id": clip_ids, "audio": audio, "split": "train", "source": clip_ids},
        schema_overrides={"audio": pl.String},
    ).with_columns(start_seconds=None, end_seconds=None)
    ontology = Ontology.from_table(
        pl.DataFrame({"class_id": ["a"], "name": ["A"], "definition": [""], "parents": [[]]})
    )
    labels = LabelSet.from_dense(np.ones((len(clip_ids), 1), np.int8), clip_ids, ["a"])
    access = AudioAccess(root, tuple(folders), is_remote)
    return write_dataset(root, clips.select(list(CLIP_SCHEMA)), ontology, labels, access=access)


def write_noise(path: Path, seconds: float, seed: int) -> np.ndarray:
    import soundfile  # in here, so that what needs no sound runs without it

    sound = np.random.default_rng(seed).uniform(-0.5, 0.5, int(seconds * RATE)).astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound, RATE, subtype="PCM_16")
    return sound


def noisy_workspace(root: Path, n_clips: int = 6) -> Workspace:
    for i in range(n_clips):
        write_noise(root / "audio" / f"{i}.wav", 0.5 + 0.4 * i % 2.0, seed=i)
    return make_workspace(root, [f"audio/{i}.wav" for i in range(n_clips)])


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of a folder's files; of seals without the times of the sounds."""
    return {path.name: _without_times(path) for path in sorted(folder.iterdir())}


def _without_times(path: Path) -> bytes:
    if not path.match("shard-*.parquet"):
        return path.read_bytes()
    return read_table(path).drop("mtime_ns").write_json().encode()
