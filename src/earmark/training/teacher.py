"""Teachers: networks that score clips which they were not trained on.

A teacher that was trained on a missing label as a negative has pushed its score down, so by
default the train split is cut into folds and each fold is scored by a teacher trained on the
others (cross-fitting). The paper scored in-sample; ``in_sample`` does as it did. The tune and eval
splits, which no fold was trained on, are scored by all of them: those scores say which labels of
an evaluation set are suspect. How folds and folders are named: :mod:`earmark.training.folds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.compute import HERE, SILENT, Engine, Meter, Progress, Task
from earmark.config import CrossFitParams, ModelParams, NetworkParams
from earmark.datasets import (
    Workspace,
    held_out_clips,
    held_out_digest,
    held_out_folder,
    held_out_scores,
    open_frames,
    readable_clips,
    single_digest,
    single_folder,
    write_stamp,
)
from earmark.errors import EarmarkError
from earmark.models import examples_of, load_network, read_params, score_and_locate, write_card
from earmark.scores import ScoreFolder, write_score_folder
from earmark.storage import is_current, seal_path
from earmark.training.folds import fold_folders, fold_of_clips, has_networks, scores_digest
from earmark.training.loading import Plan
from earmark.training.loop import train
from earmark.training.targets import TargetProvider, TrainingSet, TuneSet


def cross_fit(
    workspace: Workspace,
    network: NetworkParams,
    params: CrossFitParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> ScoreFolder:
    """Score the train split with a teacher, out of fold unless ``params.in_sample``.

    Clips without frames (quarantined) are left out. Folds that were finished before are found
    again by their digests.
    """
    store = open_frames(workspace, network.model)
    clips = readable_clips(workspace, store, "train")
    folder = workspace.scores_folder(network.name)
    every = TargetProvider(clips.labels.select(np.arange(len(clips.labels))))
    run_digest = scores_digest(network, params, store, every.digest)
    if is_current(folder, run_digest):
        write_stamp(workspace, seal_path(folder), of_frames=store.folder)
        return ScoreFolder.open(folder)
    fold_of = fold_of_clips(clips, network, params)
    validation = tune_set(workspace, store, network.model) if network.train.patience else None
    tasks = []
    for fold, model_folder in enumerate(fold_folders(workspace, network.name, params)):
        is_held_out = fold_of == fold
        rows = np.flatnonzero(~is_held_out | params.in_sample)
        tasks.append(
            training_task(
                model_folder.name,
                _train_and_score,
                network,
                TrainingSet(
                    store.folder,
                    clips.store_rows[rows],
                    TargetProvider(clips.labels.select(rows)),
                    validation,
                ),
                store,
                folder=model_folder,
                score_rows=clips.store_rows[is_held_out],
            )
        )
    logits = np.empty((len(fold_of), clips.labels.n_classes), np.float32)
    best = np.empty(logits.shape, np.uint16)
    for fold, result in enumerate(engine.map(tasks, progress)):
        (logits[fold_of == fold],), (best[fold_of == fold],) = result
        write_card(tasks[fold].arguments["folder"], workspace.ontology)
    scores = write_score_folder(
        folder,
        clips.labels.clip_ids,
        clips.labels.class_ids,
        logits,
        best,
        out_of_fold=not params.in_sample,
        digest=run_digest,
    )
    write_stamp(workspace, seal_path(folder), of_frames=store.folder)
    return scores


def score_held_out(
    workspace: Workspace,
    scores: ScoreFolder,
    params: CrossFitParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> ScoreFolder:
    """Score the tune and eval splits with the networks behind a teacher's scores, or find them.

    ``scores`` are those of the train split, made with ``params``. A cross-fitted teacher is
    several networks; its score is the mean of their logits. What each clip gets by one of them, in
    turn, is written, too: those scores compare with the train split's (see ``whole_scores``). A
    teacher from elsewhere left scores but no network, and cannot be asked again.
    """
    teacher = scores.folder.name
    folder = held_out_folder(workspace, teacher)
    run_digest = held_out_digest(scores.digest)
    single = single_folder(workspace, teacher)
    known = held_out_scores(workspace, scores)
    if known is not None and not has_networks(workspace, teacher, params):
        return known  # by a network from elsewhere, or of several ways together
    if is_current(folder, run_digest) and is_current(single, single_digest(run_digest)):
        return ScoreFolder.open(folder)
    if not has_networks(workspace, teacher, params):
        raise EarmarkError(
            f"{workspace.root}: teacher {teacher!r} has scores but no network here, so the tune "
            "and eval splits cannot be scored; train one with `earmark score`"
        )
    models = fold_folders(workspace, teacher, params)
    model = read_params(models[0]).model
    store = open_frames(workspace, model)
    clips = held_out_clips(workspace, store)
    if clips is None:
        raise EarmarkError(f"{workspace.root}: no clip of the tune and eval splits has frames")
    rows = clips.store_rows
    shared = {
        "frames_folder": store.folder,
        "rows": rows,
        "class_ids": scores.class_ids,
    }
    tasks = [
        Task(f"{path.name}, tune and eval", _score, {"model": path, **shared}, len(rows), "clips")
        for path in models
    ]
    logits, best = zip(*engine.map(tasks, progress), strict=True)
    turn = np.arange(len(rows)) % len(models), np.arange(len(rows))
    written = partial(
        write_score_folder,
        clip_ids=store.clip_ids.gather(rows),
        class_ids=scores.class_ids,
        out_of_fold=True,
    )
    written(
        single,
        logits=np.stack(logits)[turn],
        best_patches=np.stack(best)[turn],
        digest=single_digest(run_digest),
    )
    mean = np.asarray(np.mean(logits, axis=0, dtype=np.float32))
    return written(folder, logits=mean, best_patches=best[0], digest=run_digest)


def tune_set(workspace: Workspace, store: FrameStore, model: ModelParams) -> TuneSet | None:
    """Return the tune split with its labels as given; None where it has no positives."""
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
    """Return a task that trains a network, such as a fold of :func:`cross_fit`.

    Its progress counts the examples of the whole run; ``arguments`` go to the function beside the
    network and the data.
    """
    examples = examples_of(network.model, store, data.store_rows)
    n_units = Plan(network.train, examples.per_clip).n_examples
    given = {"network": network, "data": data, **arguments}
    return Task(label, function, given, n_units, "examples", stage="train")


def _train_and_score(
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    score_rows: NDArray[np.int64],
    meter: Meter,
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Train a network, or find it again, and score clips with it (see :func:`score_and_locate`)."""
    trained = train(network, data, folder, meter)
    store = FrameStore.open(data.frames_folder)
    return score_and_locate(trained, examples_of(network.model, store, score_rows))


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
    examples = examples_of(read_params(model).model, store, rows)
    (logits,), (best,) = score_and_locate(network, examples)
    meter.advance(len(rows))
    return logits, best
