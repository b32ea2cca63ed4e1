"""Frames to clip scores, and cross-fitting: scores from a teacher that never saw the clip.

A clip's score is the mean over its patches of the network's output (a probability), stored as its
logit. A teacher that was trained on a missing label as a negative has pushed its score down, so by
default the train split is cut into folds and each fold is scored by a teacher trained on the
others. The paper scored in-sample; ``in_sample`` does as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from earmark.artefacts import is_current, read_json, read_table, write_aside, write_json
from earmark.artefacts import write_table as write_parquet
from earmark.engine import LOCAL, Engine, Task
from earmark.errors import EarmarkError
from earmark.frames import FrameStore
from earmark.labels import LabelSet
from earmark.models import Network, Probe
from earmark.params import CrossFitParams, NetworkParams, digest
from earmark.progress import SILENT, Meter, Progress
from earmark.splits import folds
from earmark.train import (
    AsLabelled,
    Examples,
    TrainingSet,
    examples_of,
    n_examples_in_all,
    train,
)
from earmark.workspace import Workspace

BATCH_EXAMPLES = 256
"""Patches or clips scored at once: small enough to stay in a CPU's cache."""


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
    network: Network | Probe, examples: Examples
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return logits float32 [student, clip, class], and the best examples uint16 [clip, class].

    The logit is that of the mean output over a clip's examples (patches), exact also where all
    outputs are tiny. The best example is the first student's.
    """
    shape = (len(examples.rows), network.n_classes)
    logits = np.empty((_n_students(network), *shape), np.float32)
    best = np.empty(shape, np.uint16)
    for group in _groups(examples.per_clip):
        logits[:, group], best[group] = _score_group(network, examples, group)
    return logits, best


def cross_fit(
    workspace: Workspace,
    network: NetworkParams,
    params: CrossFitParams,
    *,
    engine: Engine = LOCAL,
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
            training_task(
                f"{network.name}{suffix}",
                train_and_score,
                network,
                data,
                store,
                folder=workspace.model_folder(network.name + suffix),
                score_rows=clips.store_rows[is_held_out],
            )
        )
    logits = np.empty((len(fold_of), clips.labels.n_classes), np.float32)
    best = np.empty(logits.shape, np.uint16)
    for fold, result in enumerate(engine.map(tasks, progress)):
        (logits[fold_of == fold],), best[fold_of == fold] = result
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


def training_task(
    label: str,
    function: Callable[..., Any],
    network: NetworkParams,
    data: TrainingSet,
    store: FrameStore,
    **arguments: Any,
) -> Task:
    """Return a task that trains a network, such as :func:`train_and_score`.

    Its progress counts the examples of the whole run; ``arguments`` go to the function beside the
    network and the data.
    """
    examples = examples_of(network.model, store, data.store_rows)
    n_units = n_examples_in_all(examples.per_clip, network.train)
    given = {"network": network, "data": data, **arguments}
    return Task(label, function, given, n_units, network.model.example_unit)


def train_and_score(
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    score_rows: NDArray[np.int64],
    meter: Meter,
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Train a network, or find it again, and score clips with it (see :func:`score_clips`)."""
    trained = train(network, data, folder, meter)
    store = FrameStore.open(data.frames_folder)
    return score_clips(trained, examples_of(network.model, store, score_rows))


def _n_students(network: Network | Probe) -> int:
    return network.n_students if isinstance(network, Probe) else 1


def _groups(per_clip: NDArray[np.int64]) -> list[slice]:
    """Cut clips into runs of about BATCH_EXAMPLES examples."""
    ends = np.cumsum(per_clip)
    groups, first = [], 0
    while first < len(ends):
        used = ends[first - 1] if first else 0
        after = int(np.searchsorted(ends, used + BATCH_EXAMPLES, side="right"))
        after = max(after, first + 1)
        groups.append(slice(first, after))
        first = after
    return groups


@torch.inference_mode()
def _score_group(
    network: Network | Probe, examples: Examples, group: slice
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    lengths = examples.per_clip[group]
    firsts = np.cumsum(lengths) - lengths
    clips = np.repeat(np.arange(group.start, group.stop), lengths)
    which = np.arange(len(clips)) - np.repeat(firsts, lengths)
    z = network(*examples.inputs(clips, which)).double().cpu().numpy()
    z = z.reshape(-1, len(clips), network.n_classes)  # [student, example, class]
    present = np.add.reduceat(1 / (1 + np.exp(-z)), firsts, axis=1)  # sums over a clip's examples
    absent = np.add.reduceat(1 / (1 + np.exp(z)), firsts, axis=1)
    places = zip(firsts, lengths, strict=True)
    best = [z[0, first : first + n].argmax(axis=0) for first, n in places]
    return (np.log(present) - np.log(absent)).astype(np.float32), np.array(best, np.uint16)
