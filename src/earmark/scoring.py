"""Frames to clip scores, and cross-fitting: scores from a teacher that never saw the clip.

A clip's score is the mean over its patches of the network's output (a probability), stored as its
logit. A teacher that was trained on a missing label as a negative has pushed its score down, so by
default the train split is cut into folds and each fold is scored by a teacher trained on the
others. The paper scored in-sample; ``in_sample`` does as it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from earmark.artefacts import is_current, read_json, read_table, write_aside, write_json
from earmark.artefacts import write_table as write_parquet
from earmark.engine import Task, run_tasks
from earmark.errors import EarmarkError
from earmark.frames import FrameStore
from earmark.labels import LabelSet
from earmark.models import Network
from earmark.params import CrossFitParams, NetworkParams, digest
from earmark.progress import SILENT, Meter, Progress
from earmark.train import AsLabelled, TrainingSet, n_patches_in_all, train
from earmark.workspace import Workspace

BATCH_PATCHES = 256
"""Patches scored at once: small enough to stay in a CPU's cache."""


@dataclass(frozen=True)
class Scores:
    """A network's scores of some clips: logits float32 [clip, class], memory-mapped.

    ``best_patches`` [clip, class] is the patch with the highest output.
    """

    folder: Path
    clip_ids: pl.Series
    class_ids: tuple[str, ...]
    logits: NDArray[np.float32]
    best_patches: NDArray[np.uint16]
    out_of_fold: bool
    digest: str

    @classmethod
    def open(cls, folder: str | Path) -> Scores:
        """Open the scores in a folder."""
        folder = Path(folder)
        if not (folder / "meta.json").exists():
            raise EarmarkError(f"{folder}: no finished scores here; make them with `earmark score`")
        meta = read_json(folder / "meta.json")
        scores = cls(
            folder,
            read_table(folder / "clips.parquet")["clip_id"],
            tuple(meta["class_ids"]),
            np.load(folder / "logits.npy", mmap_mode="r"),
            np.load(folder / "best_patches.npy", mmap_mode="r"),
            meta["out_of_fold"],
            meta["digest"],
        )
        expected = (len(scores.clip_ids), len(scores.class_ids))
        if scores.logits.shape != expected:
            raise EarmarkError(
                f"{folder}/logits.npy has shape {scores.logits.shape}, expected {expected}; "
                "delete the folder and run `earmark score` again"
            )
        return scores


def write_scores(
    folder: Path,
    clip_ids: pl.Series,
    class_ids: Sequence[str],
    logits: NDArray[np.float32],
    best_patches: NDArray[np.uint16],
    *,
    out_of_fold: bool,
    digest: str,
) -> Scores:
    """Write scores into a folder; ``meta.json`` comes last, as its seal."""
    (folder / "meta.json").unlink(missing_ok=True)
    for name, array in (("logits.npy", logits), ("best_patches.npy", best_patches)):
        with write_aside(folder / name) as aside, aside.open("wb") as file:
            np.save(file, array)
    write_parquet(folder / "clips.parquet", pl.DataFrame({"clip_id": clip_ids}))
    meta = {"digest": digest, "out_of_fold": out_of_fold, "class_ids": list(class_ids)}
    write_json(folder / "meta.json", meta)
    return Scores.open(folder)


def score_clips(
    network: Network, store: FrameStore, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return logits float32 [clip, class] of some clips of a store, and their best patches.

    The logit is that of the mean output over patches, exact also where all outputs are tiny.
    """
    n_classes = network.head.out_features
    logits = np.empty((len(rows), n_classes), np.float32)
    best = np.empty((len(rows), n_classes), np.uint16)
    for group in _groups(store.n_patches[rows]):
        logits[group], best[group] = _score_group(network, store, rows[group])
    return logits, best


def folds(
    labels: LabelSet, sources: Sequence[str], n_folds: int, seed: int = 0
) -> NDArray[np.int64]:
    """Assign clips to folds 0..n-1: recordings stay whole and rare classes reach every fold.

    Recordings are placed one by one, those with the rarest class first, each into the fold that
    has fewest positives of that class (then fewest clips).
    """
    names, recording_of = np.unique(np.asarray(sources, dtype=str), return_inverse=True)
    if len(names) < n_folds:
        raise EarmarkError(f"{len(names)} recordings cannot be cut into {n_folds} folds")
    columns_of = _positive_columns(labels, recording_of, len(names))
    rarest = [c[labels.n_positives[c].argmin()] if len(c) else -1 for c in columns_of]
    rarity = np.where(np.array(rarest) < 0, labels.n_clips, labels.n_positives[rarest])
    sizes = np.bincount(recording_of)
    shuffled = np.random.default_rng(seed).permutation(len(names))
    n_positives = np.zeros((n_folds, labels.n_classes), np.int64)
    n_clips = np.zeros(n_folds, np.int64)
    fold_of = np.empty(len(names), np.int64)
    for recording in shuffled[np.argsort(rarity[shuffled], kind="stable")]:
        has_positives = rarest[recording] >= 0
        n_rarest = n_positives[:, rarest[recording]] if has_positives else np.zeros_like(n_clips)
        fold = np.lexsort((n_clips, n_rarest))[0]  # fewest of the rarest class, then fewest clips
        fold_of[recording] = fold
        n_positives[fold, columns_of[recording]] += 1
        n_clips[fold] += sizes[recording]
    return fold_of[recording_of]


def _positive_columns(
    labels: LabelSet, recording_of: NDArray[np.int64], n_recordings: int
) -> list[NDArray[np.int32]]:
    """Return the classes that are positive in each recording."""
    recordings = recording_of[labels.clip_rows[labels.present]]
    order = np.argsort(recordings, kind="stable")
    cuts = np.searchsorted(recordings[order], np.arange(1, n_recordings))
    return np.split(labels.columns[labels.present][order], cuts)


def cross_fit(
    workspace: Workspace,
    network: NetworkParams,
    params: CrossFitParams,
    *,
    n_workers: int | None = None,
    progress: Progress = SILENT,
) -> Scores:
    """Score the train split with a teacher, out of fold unless ``params.in_sample``.

    Clips without frames (quarantined) are left out. Folds that were finished before are found
    again by their digests.
    """
    store = FrameStore.open(workspace.frames_folder)
    clips = readable_clips(workspace, store, "train")
    folder = workspace.scores_folder(network.name)
    run_digest = digest(network, params, store.digest, clips.labels.digest)
    if is_current(folder, run_digest):
        return Scores.open(folder)
    fold_of = np.zeros(len(clips.labels), np.int64)
    if not params.in_sample:
        fold_of = folds(clips.labels, clips.sources, params.n_folds, network.train.seed)
    tasks = []
    for fold in range(int(fold_of.max()) + 1):
        is_held_out = fold_of == fold
        train_on = clips.select(np.flatnonzero(~is_held_out | params.in_sample))
        data = TrainingSet(store.folder, train_on.store_rows, AsLabelled(train_on.labels))
        suffix = "" if params.in_sample else f"-fold{fold}"
        tasks.append(
            scoring_task(
                f"{network.name}{suffix}",
                network,
                data,
                workspace.model_folder(network.name + suffix),
                clips.store_rows[is_held_out],
                store,
            )
        )
    logits = np.empty((len(fold_of), clips.labels.n_classes), np.float32)
    best = np.empty(logits.shape, np.uint16)
    for fold, result in enumerate(run_tasks(tasks, n_workers, progress)):
        logits[fold_of == fold], best[fold_of == fold] = result
    return write_scores(
        folder,
        clips.labels.clip_ids,
        clips.labels.class_ids,
        logits,
        best,
        out_of_fold=not params.in_sample,
        digest=run_digest,
    )


@dataclass(frozen=True)
class ReadableClips:
    """The clips of a split that have frames: parallel labels, sources and places in the store."""

    labels: LabelSet
    sources: list[str]
    store_rows: NDArray[np.int64]

    def select(self, rows: NDArray[np.int64]) -> ReadableClips:
        """Return some of the clips."""
        sources = [self.sources[row] for row in rows]
        return ReadableClips(self.labels.select(rows), sources, self.store_rows[rows])


def readable_clips(
    workspace: Workspace, store: FrameStore, split: str, labels: LabelSet | None = None
) -> ReadableClips:
    """Return the clips of a split that have frames; ``labels`` default to the labels as given."""
    clips = workspace.clips.with_row_index("row").filter(pl.col("split") == split)
    clips = clips.filter(pl.col("clip_id").is_in(store.clip_ids.implode()))
    if clips.is_empty():
        raise EarmarkError(f"{workspace.root}: no clip of the {split} split has frames")
    labels = workspace.labels if labels is None else labels
    return ReadableClips(
        labels.select(clips["row"].to_numpy()),
        clips["source"].to_list(),
        store.rows_of(clips["clip_id"]),
    )


def scoring_task(
    label: str,
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    score_rows: NDArray[np.int64],
    store: FrameStore,
) -> Task:
    """Return the task of training a network and scoring other clips of the same store with it."""
    n_patches = n_patches_in_all(store.n_patches[data.store_rows], network.train)
    arguments: dict[str, Any] = {
        "network": network,
        "data": data,
        "folder": folder,
        "score_rows": score_rows,
    }
    return Task(label, train_and_score, arguments, n_patches, "patches")


def train_and_score(
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    score_rows: NDArray[np.int64],
    meter: Meter,
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Train a network, or find it again, and score clips with it."""
    trained = train(network, data, folder, meter)
    return score_clips(trained, FrameStore.open(data.frames_folder), score_rows)


def _groups(n_patches: NDArray[np.int64]) -> list[slice]:
    """Cut clips into runs of about BATCH_PATCHES patches."""
    ends = np.cumsum(n_patches)
    groups, first = [], 0
    while first < len(ends):
        used = ends[first - 1] if first else 0
        after = int(np.searchsorted(ends, used + BATCH_PATCHES, side="right"))
        after = max(after, first + 1)
        groups.append(slice(first, after))
        first = after
    return groups


@torch.inference_mode()
def _score_group(
    network: Network, store: FrameStore, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    lengths = store.n_patches[rows]
    firsts = np.cumsum(lengths) - lengths
    clips = np.repeat(rows, lengths)
    which = np.arange(len(clips)) - np.repeat(firsts, lengths)
    device = next(network.parameters()).device
    patches = torch.from_numpy(store.patches(clips, which)).to(device, torch.float32)
    z = network(patches).double().cpu().numpy()  # [patch, class]
    present = np.add.reduceat(1 / (1 + np.exp(-z)), firsts)  # [clip, class], times n patches
    absent = np.add.reduceat(1 / (1 + np.exp(z)), firsts)
    best = [z[first : first + n].argmax(axis=0) for first, n in zip(firsts, lengths, strict=True)]
    return (np.log(present) - np.log(absent)).astype(np.float32), np.array(best, np.uint16)
