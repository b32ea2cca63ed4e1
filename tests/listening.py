"""A small workspace to listen to: tones in noise, with labels, scores and a known truth."""

from __future__ import annotations

import atexit
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import polars as pl
import soundfile

from earmark.config import Recipe, ReportParams, ReviewParams
from earmark.datasets import Workspace, write_dataset
from earmark.flags import made_from
from earmark.labels import LabelSet, Ontology
from earmark.review import JudgementStore, ReviewQueue, make_queue, write_queue
from earmark.review.server.session import ReviewSession, open_review_session
from earmark.scores import ScoreFolder, scored_labels, write_score_folder

RATE_HZ = 16_000
TONES_HZ = {"hum": 220, "siren": 900, "whistle": 2500}
CLASS_IDS = tuple(TONES_HZ)
ONTOLOGY = Ontology(
    (*CLASS_IDS, "alarm"),
    parents={"siren": ("alarm",), "whistle": ("alarm",)},
    names={"hum": "Hum", "siren": "Siren", "whistle": "Whistle", "alarm": "Alarm"},
    definitions={"siren": "A tone that warns of <b>danger</b> & haste."},
)
RECIPE = Recipe(report=ReportParams(flag_percent=20))
SHORT = ReviewParams(aim="measure", flags_per_block=12, blocks_per_class=1, overlap=1)
TONE_AT_SECONDS = 2.88
"""Where the tones begin: patch 6."""


def tone_workspace(
    root: Path,
    n_clips: int = 90,
    seconds: float = 5.0,
    seed: int = 0,
    clip_name: str = "clip",
    ontology: Ontology = ONTOLOGY,
) -> Workspace:
    """Write clips with a tone for each class that is present; a third of the labels are hidden."""
    if ontology is not ONTOLOGY:
        return _write_tones(root, n_clips, seconds, seed, clip_name, ontology)
    shutil.copytree(_kept_tones(n_clips, seconds, seed, clip_name), root, dirs_exist_ok=True)
    return Workspace.open(root)


@cache
def _kept_tones(n_clips: int, seconds: float, seed: int, clip_name: str) -> Path:
    """Write a workspace once in this process, for tests to copy."""
    root = Path(mkdtemp(prefix="tones-"))
    atexit.register(shutil.rmtree, root)
    _write_tones(root, n_clips, seconds, seed, clip_name, ONTOLOGY)
    return root


def _write_tones(
    root: Path, n_clips: int, seconds: float, seed: int, clip_name: str, ontology: Ontology
) -> Workspace:
    rng = np.random.default_rng(seed)
    present = rng.random((n_clips, len(CLASS_IDS))) < 0.4
    present = np.column_stack([present, present[:, 1:].any(axis=1)])
    was_asked = rng.random(present.shape) < 0.4
    clip_ids = [f"{clip_name}{i:03}" for i in range(n_clips)]
    for clip_id, row in zip(clip_ids, present, strict=True):
        soundfile.write(_path(root, clip_id), _scene(rng, row, seconds), RATE_HZ)
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": [f"audio/{clip_id}.wav" for clip_id in clip_ids],
            "start_seconds": pl.Series([None] * n_clips, dtype=pl.Float64),
            "end_seconds": pl.Series([None] * n_clips, dtype=pl.Float64),
            "split": ["train"] * n_clips,
            "source": [f"recording{i // 2}" for i in range(n_clips)],
        }
    )
    states = np.where(present, 1, -1).astype(np.int8)
    labels = LabelSet.from_dense(np.where(was_asked, states, 0), clip_ids, ontology.class_ids)
    truth = LabelSet.from_dense(states, clip_ids, ontology.class_ids)
    workspace = write_dataset(root, clips, ontology, labels, truth)
    _write_scores(workspace, present, rng)
    return workspace


def open_tones(
    root: Path,
    raters: tuple[str, ...] = ("ann",),
    params: ReviewParams = SHORT,
    **options: object,
) -> ReviewSession:
    """Make a workspace and open its review."""
    workspace = tone_workspace(root, **options)  # type: ignore[arg-type]
    scores = ScoreFolder.open(workspace.scores_folder("teacher"))
    labels = scored_labels(scores, workspace.labels)
    queue = make_queue(labels, scores.logits, workspace.ontology, params)
    queue = replace(queue, population=made_from(labels, scores.digest))
    write_queue(workspace, queue)
    judgements = JudgementStore(workspace.judgements_path)
    return open_review_session(workspace, RECIPE, ReviewQueue(queue, judgements, raters))


def _path(root: Path, clip_id: str) -> Path:
    path = root / "audio" / f"{clip_id}.wav"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _scene(rng: np.random.Generator, row: np.ndarray, seconds: float) -> np.ndarray:
    time = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    scene = 0.003 * rng.standard_normal(len(time))
    is_on = (time >= TONE_AT_SECONDS) & (time < TONE_AT_SECONDS + 1)
    for is_present, hz in zip(row, TONES_HZ.values(), strict=False):
        scene[is_on] += is_present * 0.1 * np.sin(2 * np.pi * hz * time[is_on])
    return scene


def _write_scores(workspace: Workspace, present: np.ndarray, rng: np.random.Generator) -> None:
    logits = (3.0 * present - 2 + rng.standard_normal(present.shape)).astype(np.float32)
    write_score_folder(
        workspace.scores_folder("teacher"),
        workspace.clips["clip_id"],
        ONTOLOGY.class_ids,
        logits,
        np.where(present, 6, 1).astype(np.uint16),
        out_of_fold=True,
        digest="made up",
    )
