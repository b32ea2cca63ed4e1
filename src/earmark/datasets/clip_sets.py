"""Which clips of a workspace have frames, and which have scores.

Networks are trained and judged on the clips of a split that have frames. Of a teacher's scores
students are told by those of the train split alone, which are out of fold there. Owners want every
clip: what they flag, hear and export is the *whole*, the train split's scores and those of the tune
and eval splits in one folder. Nobody else names these folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.config import ModelParams, Recipe
from earmark.datasets.stamps import write_stamp
from earmark.datasets.workspace import HELD_OUT_SPLITS, Split, Workspace
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.scores import UNLOCATED, Origin, ScoreFolder, write_score_folder
from earmark.storage import digest, is_current, is_finished, seal_path


@dataclass(frozen=True)
class ReadableClips:
    """The clips of a split that have frames: parallel labels, sources and places in the store."""

    labels: LabelSet
    sources: list[str]
    store_rows: NDArray[np.int64]

    @property
    def recordings(self) -> NDArray[np.int64]:
        """The recording of each clip, by number from 0; -1 where no other clip is of the same."""
        return number_recordings(self.sources)

    def select(self, rows: NDArray[np.int64]) -> ReadableClips:
        """Return some of the clips."""
        sources = [self.sources[row] for row in rows]
        return ReadableClips(self.labels.select(rows), sources, self.store_rows[rows])


def number_recordings(sources: Sequence[object]) -> NDArray[np.int64]:
    """Number the recordings of clips [clip] from 0; -1 where no other clip is of the same.

    >>> number_recordings(["b", "a", "b", "c", "c"]).tolist()
    [0, -1, 0, 1, 1]
    """
    _, which, n_clips = np.unique(np.array(sources), return_inverse=True, return_counts=True)
    numbers = np.where(n_clips > 1, np.cumsum(n_clips > 1) - 1, -1)
    return np.asarray(numbers[which], np.int64)


def open_frames(workspace: Workspace, model: ModelParams) -> FrameStore:
    """Open what a network looks at: a probe what a pretrained network heard, where there is such.

    Otherwise the frames: log-mel ones, or embeddings that an import brought.
    """
    heard = workspace.embeddings_folder
    is_heard = model.is_probe and is_finished(heard)
    return FrameStore.open(heard if is_heard else workspace.frames_folder)


def scored_frames(workspace: Workspace, recipe: Recipe) -> FrameStore | None:
    """Open the frames whose patches the teacher's scores speak of; None where there are none."""
    folder = workspace.frames_folder
    if recipe.pretrained is not None and recipe.way != "fine-tuned":
        is_own = recipe.way == "zero-shot"
        folder = workspace.outputs_folder if is_own else workspace.embeddings_folder
    return FrameStore.open(folder) if is_finished(folder) else None


def any_frames(workspace: Workspace) -> FrameStore | None:
    """Open a store that says which clips could be read, whatever its frames are; None without.

    Log-mel frames where there are some; else what a pretrained network heard.
    """
    folders = (workspace.frames_folder, workspace.embeddings_folder, workspace.outputs_folder)
    found = next((folder for folder in folders if is_finished(folder)), None)
    return None if found is None else FrameStore.open(found)


def measured_frames(workspace: Workspace) -> FrameStore:
    """Open the store by which clips of the evaluated splits are counted; refuse where none is."""
    return any_frames(workspace) or FrameStore.open(workspace.frames_folder)


def readable_clips(
    workspace: Workspace, store: FrameStore, split: str, labels: LabelSet | None = None
) -> ReadableClips:
    """Return the clips of a split that have frames; ``labels`` default to the labels as given."""
    clips = _with_frames(workspace, store, split)
    if clips.is_empty():
        n_clips = int((workspace.clips["split"] == split).sum())
        why = f"none of its {n_clips:,} clips has frames" if n_clips else "no clip is in it"
        raise EarmarkError(f"{workspace.root}: the {split} split cannot be used: {why}")
    return _readable(store, clips, workspace.labels if labels is None else labels)


def held_out_clips(workspace: Workspace, store: FrameStore) -> ReadableClips | None:
    """Return the clips of the tune and then of the eval split that have frames; None without."""
    clips = pl.concat(_with_frames(workspace, store, split) for split in HELD_OUT_SPLITS)
    return None if clips.is_empty() else _readable(store, clips, workspace.labels)


def _with_frames(workspace: Workspace, store: FrameStore, split: str) -> pl.DataFrame:
    clips = workspace.clips.with_row_index("row").filter(pl.col("split") == split)
    return clips.filter(pl.col("clip_id").is_in(store.clip_ids.implode()))


def _readable(store: FrameStore, clips: pl.DataFrame, labels: LabelSet) -> ReadableClips:
    return ReadableClips(
        labels.select(clips["row"].to_numpy()),
        clips["source"].to_list(),
        store.rows_of(clips["clip_id"]),
    )


def held_out_folder(workspace: Workspace, teacher: str) -> Path:
    """Return the folder of a teacher's scores of the tune and eval splits."""
    return workspace.scores_folder(f"{teacher}-held-out")


def single_folder(workspace: Workspace, teacher: str) -> Path:
    """Return the folder of held-out scores by one of a teacher's networks for each clip."""
    return workspace.scores_folder(f"{teacher}-held-out-single")


def single_digest(held_out: str) -> str:
    """Identify held-out scores by single networks by the digest of their mean's."""
    return digest("single", held_out)


def held_out_digest(scores_digest: str) -> str:
    """Identify a teacher's scores of the held-out splits by those of the train split."""
    return digest("held out", scores_digest)


def held_out_scores(workspace: Workspace, scores: ScoreFolder) -> ScoreFolder | None:
    """Open the held-out scores of the teacher behind ``scores``; None where there are none."""
    folder = held_out_folder(workspace, scores.folder.name)
    if not is_finished(folder):
        return None
    found = ScoreFolder.open(folder)
    return found if found.digest == held_out_digest(scores.digest) else None


def whole_scores(workspace: Workspace, scores: ScoreFolder) -> ScoreFolder:
    """Return the scores of every scored clip of every split, those of the train split first.

    Scores of the held-out splits count where they compare with those of the train split: not where
    the teacher was trained on the clips of one and not of the other (``earmark score
    --in-sample``). Of a cross-fitted teacher they are those by a single network for each clip, as
    on the train split: a mean of networks is less extreme, and would hardly ever be flagged.
    Without any the whole is ``scores`` itself.
    """
    held_out = held_out_scores(workspace, scores)
    if held_out is None or held_out.out_of_fold != scores.out_of_fold:
        return scores
    single = single_folder(workspace, scores.folder.name)
    if is_current(single, single_digest(held_out.digest)):
        held_out = ScoreFolder.open(single)
    parts = (scores, held_out)
    folder = workspace.scores_folder(f"{scores.folder.name}-whole")
    run_digest = digest("whole", *(part.digest for part in parts))
    if is_current(folder, run_digest):
        return ScoreFolder.open(folder)
    return write_score_folder(
        folder,
        pl.concat([part.clip_ids for part in parts]),
        scores.class_ids,
        np.concatenate([part.logits for part in parts]),
        _best_patches(parts),
        out_of_fold=scores.out_of_fold,
        digest=run_digest,
    )


def _best_patches(parts: Sequence[ScoreFolder]) -> NDArray[np.uint16] | None:
    """Return the best patches of all clips, UNLOCATED in parts that know none."""
    if all(part.best_patches is None for part in parts):
        return None
    unlocated = (np.full(part.logits.shape, UNLOCATED, np.uint16) for part in parts)
    own = (part.best_patches for part in parts)
    best = [none if known is None else known for none, known in zip(unlocated, own, strict=True)]
    return np.concatenate(best)


def write_scores(
    workspace: Workspace,
    teacher: str,
    clip_ids: pl.Series,
    logits: NDArray[np.float32],
    best_patches: NDArray[np.uint16] | None,
    *,
    out_of_fold: bool,
    digest: str,
    origin: Origin | None,
) -> ScoreFolder:
    """Write the scores [clip, class] of clips of any split; return those of the train split.

    ``clip_ids`` may come in any order; classes are the workspace's, in their order. The scores of
    the tune and eval splits go into the folder of held-out scores. ``origin`` is where they come
    from, unless they learnt from the labels here.
    """
    places = pl.DataFrame({"clip_id": clip_ids}).with_row_index("place")
    clips = workspace.clips.join(places, on="clip_id", maintain_order="left")

    def written(folder: Path, splits: Sequence[Split], digest: str) -> ScoreFolder:
        own = clips.filter(pl.col("split").is_in(splits))
        rows = own["place"].to_numpy()
        return write_score_folder(
            folder,
            own["clip_id"],
            workspace.ontology.class_ids,
            logits[rows],
            None if best_patches is None else best_patches[rows],
            out_of_fold=out_of_fold,
            digest=digest,
            origin=origin,
        )

    if clips["split"].is_in(HELD_OUT_SPLITS).any():  # first: the others say that all are there
        held_out = held_out_folder(workspace, teacher)
        written(held_out, HELD_OUT_SPLITS, held_out_digest(digest))
    scores = written(workspace.scores_folder(teacher), ("train",), digest)
    write_stamp(workspace, seal_path(scores.folder))
    return scores


def scores_of(workspace: Workspace, teacher: str, clip_ids: pl.Series) -> ScoreFolder:
    """Open those scores of a teacher that hold some clips: of train, held out, or of the whole."""
    scores = ScoreFolder.open(workspace.scores_folder(teacher))
    for found in (scores, held_out_scores(workspace, scores)):
        if found is not None and clip_ids.is_in(found.clip_ids.implode()).all():
            return found
    return whole_scores(workspace, scores)
