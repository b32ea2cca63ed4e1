"""Workspaces made from others: other splits, fewer clips, hidden labels, other labels.

All of them share audio and frames with their original, so they cost next to nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace as changed
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import Progress
from earmark.config import HidingParams
from earmark.datasets.simulate.hiding import hide, n_missing
from earmark.datasets.workspace import ImportSummary, Workspace, write_dataset
from earmark.errors import EarmarkError, counted
from earmark.labels import LabelSet, deal_splits, largest_deviation, subset
from earmark.options import Argument, Option, read_numbers, read_shares
from earmark.storage import break_seal, is_finished, is_url, move_files, scratch_beside, writes


def derive_workspace(
    original: Workspace,
    out: str | Path,
    labels: LabelSet,
    truth: LabelSet | None = None,
    splits: pl.Series | None = None,
) -> Workspace:
    """Write a workspace with other labels of an original's clips, or of some of them.

    Audio is shared, and so are the frames (as hard links; as copies on another disk). The clips
    are those of ``labels``, in their order, in the ``splits`` given or those of the original. A
    folder that holds a dataset is refused.
    """
    derived = Workspace(Path(out))
    if derived.has_dataset():
        raise EarmarkError(f"{out}: there is a dataset in it already; give another folder")
    clips = pl.DataFrame({"clip_id": labels.clip_ids}).join(
        original.clips, on="clip_id", how="left", maintain_order="left"
    )
    audio = [name and _from_anywhere(original, name) for name in clips["audio"]]
    clips = clips.with_columns(pl.Series("audio", audio, pl.String))
    if splits is not None:
        clips = clips.with_columns(splits.alias("split"))
    _share_files(original.frames_folder, derived.frames_folder)
    access = original.audio_access
    access = changed(access, folders=(original.root.resolve(), *access.folders))
    return write_dataset(out, clips, original.ontology, labels, truth, access=access)


def _read_recalls(text: str) -> HidingParams:
    return HidingParams.checked(recall_range=read_numbers(text))


@writes("import workspace", makes=True)
def import_workspace(
    source: Annotated[str | Path, Argument("The other workspace.", "SOURCE")],
    work: Annotated[
        str | Path, Option("The workspace folder to write; SOURCE itself.", default=None)
    ],
    *,
    splits: Annotated[
        Mapping[str, float] | None,
        Option("Deal clips to train, tune and eval: 80,10,10.", read=read_shares),
    ] = None,
    train_share: Annotated[
        float | None, Option("Keep this share of the train split.", low=0.0001, high=1)
    ] = None,
    hiding: Annotated[
        HidingParams | None,
        Option(
            "Hide labels: lowest and highest chance, over classes, to be given.",
            "--recall",
            read=_read_recalls,
        ),
    ] = None,
    assume_complete: Annotated[bool, Option("Take implicit labels for absent ones.")] = False,
    seed: Annotated[int, Option("Other splits, clips and labels.", low=0)] = 0,
    replace: Annotated[bool, Option("Deal anew where there are splits already.")] = False,
    progress: Progress | None = None,
) -> ImportSummary:
    """Make a workspace of another one: other splits, part of the train split, labels hidden.

    Audio and frames are shared with the ``source``. In this order: ``splits`` deals the clips out
    to train, tune and eval by these shares, whole recordings at a time; ``train_share`` keeps that
    share of the train split (the paper's tr_small of tr_large: nested, class distribution kept);
    ``hiding`` hides labels of a fully labelled dataset as nomination does, and keeps the truth, to
    judge by and never to train on. Implicit labels have no known truth, and are refused there
    unless ``assume_complete`` takes them for absent.

    With ``work`` the same folder as ``source``, the splits change in place. Splits that are there
    already are kept, unless ``replace``.
    """
    del progress
    original = Workspace.open(source)
    is_in_place = Path(work).resolve() == original.root.resolve()
    if is_in_place and (train_share is not None or hiding is not None):
        raise EarmarkError(
            f"{work}: only splits can change in place; name another folder for fewer clips or "
            "labels"
        )
    clips, labels, truth = original.clips, original.labels, original.truth
    notes = []
    if splits is not None:
        dealt = _dealt(original, splits, seed, replace=replace)
        clips = clips.with_columns(dealt)
    if train_share is not None:
        is_kept, note = _smaller(clips, labels, train_share, seed)
        notes.append(note)
        clips, labels = clips.filter(is_kept), labels.select(is_kept)
        truth = None if truth is None else truth.select(is_kept)
    if hiding is not None:
        truth = _complete(original.root, labels, assume_complete=assume_complete)
        seeded = hiding.model_copy(update={"seed": seed}) if seed else hiding
        labels = _with_hidden(original, truth, seeded)
        notes.append(f"{int(n_missing(truth, labels).sum()):,} labels are hidden.")
    if is_in_place:
        written = write_dataset(
            work,
            clips,
            original.ontology,
            labels,
            truth,
            access=original.audio_access,
            replace=True,
        )
    else:
        written = derive_workspace(original, work, labels, truth, clips["split"])
    return ImportSummary(written, len(clips), len(clips), 0, tuple(notes))


def _dealt(
    workspace: Workspace, shares: Mapping[str, float], seed: int, *, replace: bool
) -> pl.Series:
    """Return the split of every clip, by shares of train, tune and eval."""
    clips = workspace.clips
    split = deal_splits(workspace.labels, clips["source"], shares, seed)
    empty = [name for name in shares if name not in split]
    if empty:
        raise EarmarkError(
            f"{workspace.root}: {clips['source'].n_unique():,} recordings are too few for shares "
            f"of {', '.join(f'{share:g}' for share in shares.values())}: none is left for "
            f"{' and '.join(empty)}"
        )
    has_splits = clips["split"].n_unique() > 1
    if has_splits and not replace and not split.equals(clips["split"]):
        raise EarmarkError(
            f"{workspace.root}: the clips are in {clips['split'].n_unique()} splits already; "
            "nothing was changed. Give --replace to deal them out anew"
        )
    return split


def _smaller(
    clips: pl.DataFrame, labels: LabelSet, share: float, seed: int
) -> tuple[NDArray[np.bool_], str]:
    """Return which clips a share of the train split keeps, and how far class shares moved."""
    train = np.flatnonzero((clips["split"] == "train").to_numpy())
    of_train = labels.select(train)
    is_chosen = subset(of_train, clips["source"].gather(train), share, seed)
    is_kept = np.ones(len(clips), bool)
    is_kept[train] = is_chosen
    deviation = largest_deviation(of_train, is_chosen)
    is_exact = deviation.class_id is None
    exact = "as far as can be told" if is_exact else f"within {deviation.relative:.0%}"
    n_clips = counted(int(is_chosen.sum()), "train clip")
    return is_kept, f"{n_clips}; classes are as common as before, {exact}."


def _complete(root: Path, labels: LabelSet, *, assume_complete: bool) -> LabelSet:
    """Return labels as the truth; refuse implicit ones unless they are said to be absent."""
    n_implicit = int(labels.n_implicit.sum())
    if n_implicit and not assume_complete:
        raise EarmarkError(
            f"{root}: {n_implicit:,} of {labels.n_clips * labels.n_classes:,} labels are "
            "implicit, so the truth is not known; if they are all truly absent, say so with "
            "--assume-complete"
        )
    return labels


def _with_hidden(original: Workspace, truth: LabelSet, params: HidingParams) -> LabelSet:
    labels = hide(truth, original.ontology, params)
    if not n_missing(truth, labels).any():
        raise EarmarkError(
            f"{original.root}: not one of {int(truth.n_positives.sum()):,} positives was hidden, "
            f"by recalls of {params.recall_range[0]:g} to {params.recall_range[1]:g}; lower them"
        )
    return labels


def _from_anywhere(workspace: Workspace, audio: str) -> str:
    """Name a file so that it is found from any folder."""
    return audio if is_url(audio) else str(workspace.audio_path(audio).resolve())


def _share_files(folder: Path, shared: Path) -> None:
    """Link the files of a finished store; later stages replace files, they never write into one."""
    break_seal(shared)  # of an interrupt
    if not is_finished(folder):
        return
    with scratch_beside(shared) as scratch:
        for path in folder.iterdir():
            try:
                os.link(path, scratch / path.name)
            except OSError:  # another disk, or a file system without links
                shutil.copy2(path, scratch / path.name)
        move_files(scratch, shared)
