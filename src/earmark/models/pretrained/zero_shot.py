"""Scores by a pretrained network's own classes: nothing is trained here.

A clip's score is the mean output over the frames in which the network heard it, stored as a logit,
as in :mod:`earmark.models.clip_scores`. Classes that the network does not know are unscored: NaN,
never flagged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.compute import SILENT, Progress
from earmark.datasets import Workspace, readable_clips, write_scores, write_stamp
from earmark.models import sum_outputs
from earmark.models.pretrained.class_maps import ClassMap
from earmark.scores import UNLOCATED, Origin, ScoreFolder
from earmark.storage import digest, is_current, seal_path

_CLIPS_AT_ONCE = 256


def score_zero_shot(
    workspace: Workspace,
    name: str,
    outputs: FrameStore,
    class_map: ClassMap,
    *,
    origin: Origin,
    out_of_fold: bool,
    progress: Progress = SILENT,
) -> ScoreFolder:
    """Score all clips by what a network said of them (``outputs``), under the name ``name``.

    ``out_of_fold`` says that the network was not trained on these clips. Returns the scores of the
    train split; those of the others are the held-out scores.
    """
    readable_clips(workspace, outputs, "train")  # refuses where there is none
    mapped = (class_map.outputs, class_map.columns, workspace.ontology.class_ids)
    run_digest = digest("zero-shot", outputs.digest, mapped, out_of_fold, workspace.splits_digest)
    folder = workspace.scores_folder(name)
    if not is_current(folder, run_digest):
        logits, best = _scored(outputs, class_map, len(workspace.ontology.class_ids), progress)
        write_scores(
            workspace,
            name,
            outputs.clip_ids,
            logits,
            best,
            out_of_fold=out_of_fold,
            digest=run_digest,
            origin=origin,
        )
    write_stamp(workspace, seal_path(folder), of_frames=outputs.folder)
    return ScoreFolder.open(folder)


def _scored(
    outputs: FrameStore, class_map: ClassMap, n_classes: int, progress: Progress
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return logits and best frames [clip, class] of every clip of the store."""
    n_clips = len(outputs.index)
    logits = np.full((n_clips, n_classes), np.nan, np.float32)
    best = np.full((n_clips, n_classes), UNLOCATED, np.uint16)
    meter = progress.job("scores by its own classes", n_clips, "clips")
    columns, taken = list(class_map.columns), list(class_map.outputs)
    for row in range(n_clips):
        frames = outputs.frames(row)[:, taken]  # [frame, output]
        present, absent = sum_outputs(frames)
        logits[row, columns] = (np.log(present) - np.log(absent))[0]
        best[row, columns] = frames.argmax(axis=0)
        if (row + 1) % _CLIPS_AT_ONCE == 0 or row + 1 == n_clips:
            meter.advance((row % _CLIPS_AT_ONCE) + 1)
    return logits, best
