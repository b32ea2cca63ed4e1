"""The report of a workspace: gathered from what the other stages left there, and written.

Results of students are read inside the functions: their room imports torch, an extra.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from earmark.audio import FrameStore, read_clip
from earmark.errors import EarmarkError
from earmark.flags import stored_flags, stored_thresholds
from earmark.labels import LabelSet
from earmark.report import HeardFlag, ReportContents, class_summary, write_report
from earmark.runs import read_table
from earmark.scores import scored_labels
from earmark.stages.flag import judged_flags
from earmark.stages.opening import RecipeLike, Scored, WorkLike, open_scored

if TYPE_CHECKING:
    from earmark.experiments import SweepResults

N_HEARD_CLASSES = 4
"""Classes whose flags can be heard where the recipe names none."""


def make_report(work: WorkLike, recipe: RecipeLike = None) -> Path:
    """Write figures, tables and the page from what the other stages left; return the page's path.

    A sweep, a comparison and rounds of teaching each have their part; one of them is enough.
    """
    scored = open_scored(work, recipe)
    return write_report(scored.workspace.report_folder, _contents(scored))


def _contents(scored: Scored) -> ReportContents:
    from earmark.experiments import is_swept, read_sweep
    from earmark.training import read_histories

    workspace, recipe, scores = scored.workspace, scored.recipe, scored.scores
    sweep = read_sweep(workspace) if is_swept(workspace) else None
    choices, rounds = (
        _if_there(workspace.compare_table_path(name)) for name in ("choices", "rounds")
    )
    if sweep is None and choices is None and rounds is None:
        raise EarmarkError(
            f"{workspace.root}: there is nothing to report yet; run `earmark sweep`, "
            "`earmark compare` or `earmark iterate` first"
        )
    labels = scored_labels(scores, workspace.labels)
    known = (workspace.flags_folder, labels, scores.logits, scores.digest)
    points = stored_thresholds(*known)
    every, whole = scored_labels(scored.whole, workspace.labels), scored.whole
    own = (workspace.flags_folder, every, whole.logits, whole.digest)
    flags = stored_flags(*own, recipe.report.flag_percent)
    return ReportContents(
        title=f"earmark: {recipe.name}",
        results=None if sweep is None else sweep.summary,
        per_class=None if sweep is None else sweep.per_class,
        thresholds=points.table(labels.class_ids),
        classes=class_summary(labels, workspace.ontology),
        judged=judged_flags(workspace, scores),
        heard=_heard(scored, every, flags),
        provenance=_provenance(scored, sweep),
        choices=choices,
        rounds=rounds,
        courses=read_histories(workspace.models_folder),
        flag_percent=recipe.report.flag_percent,
        sample_rate_hz=recipe.front_end.sample_rate_hz,
    )


def _if_there(path: Path) -> pl.DataFrame | None:
    return read_table(path) if path.exists() else None


def _heard(scored: Scored, labels: LabelSet, flags: pl.DataFrame) -> dict[str, Sequence[HeardFlag]]:
    """Return the top flags of the chosen classes with their sound, by class name."""
    workspace, recipe = scored.workspace, scored.recipe
    ontology = workspace.ontology
    chosen = [ontology.find(name) for name in recipe.report.listen_classes]
    store = FrameStore.open(workspace.frames_folder)
    heard: dict[str, Sequence[HeardFlag]] = {}
    for class_id in chosen or _most_flagged(labels, flags):
        top = flags.filter(pl.col("class_id") == class_id).sort("rank")
        rows = top.head(recipe.report.listen_flags).to_dicts()
        heard[ontology.name(class_id)] = [_heard_flag(scored, store, row) for row in rows]
    return heard


def _most_flagged(labels: LabelSet, flags: pl.DataFrame) -> list[str]:
    """Return the classes with most flags for each positive: the worst labelled, it seems."""
    positives = dict(zip(labels.class_ids, labels.n_positives.tolist(), strict=True))
    counts = flags.group_by("class_id").len().sort("class_id")
    ranked = sorted(counts.iter_rows(), key=lambda row: -row[1] / max(positives[row[0]], 1))
    return [class_id for class_id, _ in ranked[:N_HEARD_CLASSES]]


def _heard_flag(
    scored: Scored, store: FrameStore, row: Mapping[str, str | int | float | None]
) -> HeardFlag:
    workspace, recipe, scores = scored.workspace, scored.recipe, scored.whole
    clip = workspace.clips.row(by_predicate=pl.col("clip_id") == row["clip_id"], named=True)
    column = workspace.ontology.index[str(row["class_id"])]
    best_patch, patch = None, scores.best_patch(str(row["clip_id"]), str(row["class_id"]))
    if patch is not None:
        first_frame = patch * store.patch_hop_frames
        best_patch = (first_frame, first_frame + store.patch_frames)
    waveform = None
    if clip["audio"] is not None:
        path = workspace.audio_place(clip["audio"])
        rate = recipe.front_end.sample_rate_hz
        waveform = read_clip(path, rate, clip["start_seconds"], clip["end_seconds"])
    truth = workspace.truth
    is_missing = None
    if truth is not None:
        in_workspace = int(workspace.clips["clip_id"].index_of(row["clip_id"]) or 0)
        is_missing = bool(truth.states([in_workspace])[0, column] > 0)
    return HeardFlag(
        rank=int(row["rank"] or 0),
        clip_id=str(row["clip_id"]),
        score=float(row["logit"] or 0),
        chance=None if row["chance"] is None else float(row["chance"]),
        is_missing=is_missing,
        waveform=waveform,
        frames=np.asarray(store.frames(int(store.rows_of([clip["clip_id"]])[0]))),
        best_patch=best_patch,
    )


def _provenance(scored: Scored, sweep: SweepResults | None) -> dict[str, str]:
    workspace, recipe, scores = scored.workspace, scored.recipe, scored.scores
    store = FrameStore.open(workspace.frames_folder)
    read = workspace.clips.filter(pl.col("clip_id").is_in(store.clip_ids.implode()))
    counts = {split: int((read["split"] == split).sum()) for split in ("train", "tune", "eval")}
    versions = {name: metadata.version(name) for name in ("earmark", "torch", "numpy", "polars")}
    seeds = () if sweep is None else sweep.results["seed"].unique().sort()
    return {
        "clips": ", ".join(f"{n:,} {split}" for split, n in counts.items()),
        "classes": str(workspace.labels.n_classes),
        "recipe": f"{recipe.name} ({recipe.digest()})",
        **({"seeds of the sweep": ", ".join(map(str, seeds))} if len(seeds) else {}),
        "teacher's scores": "out of fold" if scores.out_of_fold else "in-sample",
        "labels digest": workspace.labels.digest,
        "frames digest": store.digest,
        "scores digest": scores.digest,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "python": platform.python_version(),
    }
