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
from numpy.typing import NDArray
from scipy.special import expit

from earmark.audio.frame_store import FrameStore
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.labels.label_set import LabelSet
from earmark.labels.splits import folds
from earmark.metrics import lwlrap
from earmark.networks.architectures import Probe
from earmark.networks.examples import Examples, examples_of
from earmark.networks.model_card import write_card
from earmark.networks.onnx_export import Forward, forward_of
from earmark.networks.stacks import AnyNetwork, n_students
from earmark.runs.artefacts import is_current
from earmark.runs.engine import HERE, Engine, Task
from earmark.runs.parameters import CrossFitParams, ModelParams, NetworkParams, digest
from earmark.runs.progress import SILENT, Meter, Progress
from earmark.scores.folder import ScoreFolder, write_score_folder
from earmark.training.loop import n_examples_in_all, train
from earmark.training.supervision import AsLabelled, Supervision, TrainingSet

BATCH_EXAMPLES = 256
"""Clips scored at once, or patches on a GPU."""

CACHED_PATCHES = 32
"""Patches scored at once on a CPU: many more fall out of its cache."""


def score_clips(
    network: AnyNetwork, examples: Examples
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return logits float32 [student, clip, class], and the best examples uint16 [clip, class].

    The logit is that of the mean output over a clip's examples (patches), exact also where all
    outputs are tiny. The best example is the first student's.
    """
    shape = (len(examples.rows), network.n_classes)
    logits = np.empty((n_students(network), *shape), np.float32)
    best = np.empty(shape, np.uint16)
    store = examples.store
    n_examples = int(examples.per_clip.sum())
    forward = forward_of(network, n_examples, (store.patch_frames, store.n_bands))
    for group in _groups(examples.per_clip, _n_at_once(network)):
        logits[:, group], best[group] = _score_group(forward, examples, group)
    return logits, best


def sum_outputs(
    logits: NDArray[np.floating], firsts: Sequence[int] | NDArray[np.int64] = (0,)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum the outputs of a clip's examples, and what they lack to 1, from logits [..., example, c].

    Returns float64 [..., clip, class] twice, the clips beginning at the examples ``firsts``. Both
    sums keep their digits where all outputs are tiny, or all close to 1. Sums of parts of a clip
    add up; log(first) - log(second) is the logit of the clip's mean output.
    """
    z = logits.astype(np.float64)
    present = np.add.reduceat(expit(z), firsts, axis=-2)
    return present, np.add.reduceat(expit(-z), firsts, axis=-2)


def cross_fit(
    workspace: Workspace,
    network: NetworkParams,
    params: CrossFitParams,
    *,
    supervise: Callable[[NDArray[np.int64]], Supervision] | None = None,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> ScoreFolder:
    """Score the train split with a teacher, out of fold unless ``params.in_sample``.

    Clips without frames (quarantined) are left out. Folds that were finished before are found
    again by their digests. ``supervise`` says what the teacher is told of some of the split's
    clips, given by their rows; by default the labels as they are.
    """
    store = FrameStore.open(workspace.frames_folder)
    clips = readable_clips(workspace, store, "train")
    folder = workspace.scores_folder(network.name)
    supervise = supervise or (lambda rows: AsLabelled(clips.labels.select(rows)))
    told = supervise(np.arange(len(clips.labels)))
    run_digest = digest(network, params, store.digest, told.digest)
    if is_current(folder, run_digest):
        return ScoreFolder.open(folder)
    fold_of = np.zeros(len(clips.labels), np.int64)
    if not params.in_sample:
        fold_of = folds(clips.labels, clips.sources, params.n_folds, network.train.seed)
    tasks = []
    exam = tune_set(workspace, store, network.model) if network.train.patience else None
    for fold in range(int(fold_of.max()) + 1):
        is_held_out = fold_of == fold
        rows = np.flatnonzero(~is_held_out | params.in_sample)
        data = TrainingSet(store.folder, clips.store_rows[rows], supervise(rows), exam)
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
        model_folder = tasks[fold].arguments["folder"]
        write_card(model_folder, workspace.ontology)
    return write_score_folder(
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


@dataclass(frozen=True)
class TuneSet:
    """The tune split as the exam of networks in training (see ``supervision.Exam``)."""

    model: ModelParams
    frames_folder: Path
    store_rows: NDArray[np.int64]
    labels: LabelSet

    @property
    def digest(self) -> str:
        """Identifies clips and labels."""
        return digest(self.store_rows.tobytes(), self.labels.digest)

    def marks(self, network: AnyNetwork) -> dict[str, NDArray[np.float64]]:
        """Return lwlrap, and binary cross-entropy summed over classes, of clip scores [student]."""
        store = FrameStore.open(self.frames_folder)
        logits, _ = score_clips(network, examples_of(self.model, store, self.store_rows))
        is_positive = self.labels.states() > 0
        losses = np.logaddexp(0, logits) - is_positive * logits
        return {
            "lwlrap": np.array([lwlrap(is_positive, own) for own in logits]),
            "loss": losses.sum(axis=2, dtype=np.float64).mean(axis=1),
        }


def tune_set(workspace: Workspace, store: FrameStore, model: ModelParams) -> TuneSet | None:
    """Return the tune split as an exam, on the labels as given; None where it has no positives."""
    if "tune" not in workspace.clips["split"]:
        return None
    clips = readable_clips(workspace, store, "tune")
    if not clips.labels.n_positives.any():
        return None
    return TuneSet(model, store.folder, clips.store_rows, clips.labels)


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
    return Task(label, function, given, n_units, network.model.example_unit, stage="train")


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


def _n_at_once(network: AnyNetwork) -> int:
    is_on_cpu = next(network.parameters()).device.type == "cpu"
    return CACHED_PATCHES if is_on_cpu and not isinstance(network, Probe) else BATCH_EXAMPLES


def _groups(per_clip: NDArray[np.int64], n_at_once: int) -> list[slice]:
    """Cut clips into runs of at most ``n_at_once`` examples, but of whole clips."""
    ends = np.cumsum(per_clip)
    groups, first = [], 0
    while first < len(ends):
        used = ends[first - 1] if first else 0
        after = int(np.searchsorted(ends, used + n_at_once, side="right"))
        after = max(after, first + 1)
        groups.append(slice(first, after))
        first = after
    return groups


def _score_group(
    forward: Forward, examples: Examples, group: slice
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    lengths = examples.per_clip[group]
    firsts = np.cumsum(lengths) - lengths
    clips = np.repeat(np.arange(group.start, group.stop), lengths)
    which = np.arange(len(clips)) - np.repeat(firsts, lengths)
    z = forward(*examples.inputs(clips, which))
    z = z.reshape(-1, len(clips), z.shape[-1])  # [student, example, class]
    present, absent = sum_outputs(z, firsts)
    places = zip(firsts, lengths, strict=True)
    best = [z[0, first : first + n].argmax(axis=0) for first, n in places]
    return (np.log(present) - np.log(absent)).astype(np.float32), np.array(best, np.uint16)
