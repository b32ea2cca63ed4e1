"""Workspaces made from others: fewer clips, hidden labels, other labels.

All of them share audio and frames with their original, so they cost next to nothing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl

from earmark.datasets.synthetic.hiding import hide, n_missing
from earmark.datasets.workspace import Workspace, write_dataset
from earmark.errors import EarmarkError
from earmark.labels import Deviation, LabelSet, largest_deviation, subset
from earmark.runs import HidingParams, is_finished


def derive_workspace(
    original: Workspace, out: str | Path, labels: LabelSet, truth: LabelSet | None = None
) -> Workspace:
    """Write a workspace with other labels of an original's clips, or of some of them.

    Audio is shared, and so are the frames (as hard links; as copies on another disk). The clips
    are those of ``labels``, in their order. A folder that holds a dataset is refused.
    """
    derived = Workspace(Path(out))
    if derived.has_dataset():
        raise EarmarkError(f"{out}: there is a dataset in it already; give another folder")
    clips = pl.DataFrame({"clip_id": labels.clip_ids}).join(
        original.clips, on="clip_id", how="left", maintain_order="left"
    )
    audio = [name and _from_anywhere(original.audio_place(name)) for name in clips["audio"]]
    clips = clips.with_columns(pl.Series("audio", audio, pl.String))
    _share_files(original.frames_folder, derived.frames_folder)
    return write_dataset(out, clips, original.ontology, labels, truth)


def subset_workspace(
    workspace: Workspace, out: str | Path, share: float, seed: int = 0
) -> tuple[Workspace, Deviation]:
    """Write a workspace with a share of the train split and all of the others.

    Audio and frames are shared with the original. The deviation is the largest one of a class's
    prior from that in the whole train split (see
    :func:`~earmark.labels.splits.largest_deviation`).
    """
    train = workspace.rows("train")
    labels = workspace.labels.select(train)
    is_chosen = subset(labels, workspace.clips["source"].gather(train), share, seed)
    is_kept = np.ones(workspace.labels.n_clips, bool)
    is_kept[train] = is_chosen
    truth = None if workspace.truth is None else workspace.truth.select(is_kept)
    smaller = derive_workspace(workspace, out, workspace.labels.select(is_kept), truth)
    return smaller, largest_deviation(labels, is_chosen)


def hidden_workspace(
    workspace: Workspace,
    out: str | Path,
    params: HidingParams,
    *,
    assume_complete: bool = False,
) -> Workspace:
    """Write a copy of a fully labelled workspace in which labels are hidden and the truth is kept.

    The truth goes to ``truth.parquet``, to judge by and never to train on; audio and frames are
    shared. Implicit labels are refused, because nobody knows their truth, unless
    ``assume_complete`` takes them for absent.
    """
    truth = workspace.labels
    n_implicit = int(truth.n_implicit.sum())
    if n_implicit and not assume_complete:
        raise EarmarkError(
            f"{workspace.root}: {n_implicit:,} of {truth.n_clips * truth.n_classes:,} labels are "
            "implicit, so the truth is not known; if they are all truly absent, say so with "
            "--assume-complete"
        )
    labels = hide(truth, workspace.ontology, params)
    if not n_missing(truth, labels).any():
        raise EarmarkError(
            f"{workspace.root}: not one of {int(truth.n_positives.sum()):,} positives was hidden, "
            f"by recalls of {params.recall_range[0]:g} to {params.recall_range[1]:g}; lower them"
        )
    return derive_workspace(workspace, out, labels, truth)


def _from_anywhere(place: str | Path) -> str:
    """Name a file so that it is found from any folder."""
    return place if isinstance(place, str) else str(place.resolve())


def _share_files(folder: Path, shared: Path) -> None:
    """Link the files of a finished store; later stages replace files, they never write into one."""
    shutil.rmtree(shared, ignore_errors=True)  # what an interrupt left behind
    if not is_finished(folder):
        return
    shared.mkdir(parents=True)
    for path in folder.iterdir():
        try:
            os.link(path, shared / path.name)
        except OSError:  # another disk, or a file system without links
            shutil.copy2(path, shared / path.name)
