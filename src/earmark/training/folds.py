"""The folds of a teacher: which clips are in which, and where its networks are kept.

Nobody else names the folders of folds. Nothing here needs torch.
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.config import CrossFitParams, NetworkParams
from earmark.datasets import ReadableClips, Workspace
from earmark.errors import EarmarkWarning, counted
from earmark.labels import folds
from earmark.scores import ScoreFolder
from earmark.storage import digest, is_finished


def fold_of_clips(
    clips: ReadableClips, teacher: NetworkParams, params: CrossFitParams
) -> NDArray[np.int64]:
    """Return the fold of each clip of the train split; all are in fold 0 of an in-sample teacher.

    Clips of one source are in one fold. Where there are fewer sources than folds, each is cut into
    stretches of neighbouring clips, and it is said.
    """
    if params.in_sample:
        return np.zeros(len(clips.labels), np.int64)
    sources = clips.sources
    n_sources = len(set(sources))
    if n_sources < params.n_folds:
        sources = _stretches(sources, params.n_folds)
        warnings.warn(
            f"{counted(n_sources, 'recording')} cannot be cut into {params.n_folds} folds: the "
            "teacher scores a stretch of a recording after it has learnt from others of it, so its "
            "flags may look better than they are",
            EarmarkWarning,
            stacklevel=2,
        )
    return folds(clips.labels, sources, params.n_folds, teacher.train.seed)


def _stretches(sources: list[str], n_folds: int) -> list[str]:
    """Return a name for each clip that it shares with its neighbours in the same recording."""
    places: dict[str, int] = {}
    n_clips = Counter(sources)
    named = []
    for source in sources:
        place = places[source] = places.get(source, -1) + 1
        named.append(f"{source}#{place * n_folds // n_clips[source]}")
    return named


def fold_folders(workspace: Workspace, teacher: str, params: CrossFitParams) -> list[Path]:
    """Return the folders of a teacher's networks: one for each fold, or its only one."""
    suffixes = [""] if params.in_sample else [f"-fold{fold}" for fold in range(params.n_folds)]
    return [workspace.model_folder(teacher + suffix) for suffix in suffixes]


def has_networks(workspace: Workspace, teacher: str, params: CrossFitParams) -> bool:
    """Tell whether all networks of a teacher are there."""
    return all(is_finished(folder) for folder in fold_folders(workspace, teacher, params))


def scores_digest(
    teacher: NetworkParams, params: CrossFitParams, store: FrameStore, told_digest: str
) -> str:
    """Identify a teacher's scores of the train split; ``told_digest`` is of what it was told.

    Scores of a probe from before it said where it hears are other scores: they are made again.
    """
    says_where = ("by patch",) if teacher.model.is_probe else ()
    return digest(teacher, params, store.digest, told_digest, *says_where)


def networks_behind(
    scores: ScoreFolder,
    workspace: Workspace,
    teacher: NetworkParams,
    params: CrossFitParams,
    clips: ReadableClips,
    store: FrameStore,
) -> list[tuple[Path, NDArray[np.int64]]] | None:
    """Return each network behind scores with the rows of the clips that it scored.

    ``clips`` are those of the train split with the labels that the teacher was told. None where
    the scores are another teacher's, or its networks are gone.
    """
    params = params.model_copy(update={"in_sample": not scores.out_of_fold})
    if scores.digest != scores_digest(teacher, params, store, clips.labels.digest):
        return None
    if not has_networks(workspace, teacher.name, params):
        return None
    fold_of = fold_of_clips(clips, teacher, params)
    folders = fold_folders(workspace, teacher.name, params)
    return [(folder, np.flatnonzero(fold_of == fold)) for fold, folder in enumerate(folders)]
