"""The teacher's scores of clips that it was never trained on: the tune and eval splits.

They say which labels of an evaluation set are suspect. A cross-fitted teacher is several networks;
its score is the mean of their logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio.frame_store import FrameStore
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.networks.examples import examples_of
from earmark.networks.model_card import read_params
from earmark.networks.saved import load_network
from earmark.runs.artefacts import is_current
from earmark.runs.engine import HERE, Engine, Task
from earmark.runs.parameters import CrossFitParams, digest
from earmark.runs.progress import SILENT, Meter, Progress
from earmark.scores.folder import ScoreFolder, write_score_folder
from earmark.training.teacher import readable_clips, score_clips


def score_held_out(
    workspace: Workspace,
    scores: ScoreFolder,
    params: CrossFitParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> ScoreFolder:
    """Score the tune and eval splits with the networks behind a teacher's scores, or find them.

    ``scores`` are those of the train split, made with ``params``. A teacher from elsewhere left
    scores but no network, and cannot be asked again.
    """
    teacher = scores.folder.name
    folder = held_out_folder(workspace, teacher)
    run_digest = digest("held out", scores.digest)
    if is_current(folder, run_digest):
        return ScoreFolder.open(folder)
    models = teacher_folders(workspace, teacher, params)
    if not can_score(workspace, teacher, params):
        raise EarmarkError(
            f"{workspace.root}: teacher {teacher!r} has scores but no network here, so the tune "
            "and eval splits cannot be scored; train one with `earmark score`"
        )
    store = FrameStore.open(workspace.frames_folder)
    parts = [readable_clips(workspace, store, split).store_rows for split in ("tune", "eval")]
    rows = np.concatenate(parts)
    shared = {"frames_folder": store.folder, "rows": rows, "class_ids": scores.class_ids}
    tasks = [
        Task(f"{path.name}, tune and eval", _score, {"model": path, **shared}, len(rows), "clips")
        for path in models
    ]
    logits, best = zip(*engine.map(tasks, progress), strict=True)
    return write_score_folder(
        folder,
        store.clip_ids.gather(rows),
        scores.class_ids,
        np.mean(logits, axis=0, dtype=np.float32),
        best[0],
        out_of_fold=True,
        digest=run_digest,
    )


def held_out_folder(workspace: Workspace, teacher: str) -> Path:
    """Return the folder of a teacher's scores of the tune and eval splits."""
    return workspace.scores_folder(f"{teacher}-held-out")


def scores_of(workspace: Workspace, teacher: str, clip_ids: pl.Series) -> ScoreFolder:
    """Open those scores of a teacher that hold some clips: of the train split, or held out."""
    scores = ScoreFolder.open(workspace.scores_folder(teacher))
    if clip_ids.is_in(scores.clip_ids.implode()).all():
        return scores
    return ScoreFolder.open(held_out_folder(workspace, teacher))


def can_score(workspace: Workspace, teacher: str, params: CrossFitParams) -> bool:
    """Tell whether all networks of a teacher are there."""
    folders = teacher_folders(workspace, teacher, params)
    return all((folder / "meta.json").exists() for folder in folders)


def teacher_folders(workspace: Workspace, teacher: str, params: CrossFitParams) -> list[Path]:
    """Return the folders of a teacher's networks: one for each fold, or its only one."""
    suffixes = [""] if params.in_sample else [f"-fold{fold}" for fold in range(params.n_folds)]
    return [workspace.model_folder(teacher + suffix) for suffix in suffixes]


def _score(
    model: Path,
    frames_folder: Path,
    rows: NDArray[np.int64],
    class_ids: Sequence[str],
    meter: Meter,
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return logits and best patches [clip, class] of some clips by one network."""
    store = FrameStore.open(frames_folder)
    network = load_network(model, store, class_ids)
    (logits,), best = score_clips(network, examples_of(read_params(model).model, store, rows))
    meter.advance(len(rows))
    return logits, best
