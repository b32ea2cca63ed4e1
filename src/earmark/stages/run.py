"""All stages of one run, from a recipe and a folder to the report.

Each stage is a function of the workspace and the recipe that finds its finished work again, so a
run that was interrupted, or whose recipe changed in one place, repeats only what has to be.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import polars as pl

from earmark.audio.decode import read_clip
from earmark.audio.frame_store import FrameStore
from earmark.datasets.extraction import extract_frames
from earmark.datasets.label_versions import read_relabelled
from earmark.datasets.readable_clips import readable_clips
from earmark.datasets.synthetic import scenes
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.experiments.sweep import SweepResults, is_swept, read_sweep, run_sweep
from earmark.flags.flag import flag, survey
from earmark.flags.judged import judge_flags
from earmark.flags.thresholds import Thresholds, thresholds
from earmark.labels.label_set import LabelSet
from earmark.report.contents import HeardFlag, ReportContents
from earmark.report.page import write_report
from earmark.report.results import class_summary
from earmark.review.judged_chance import flag_by_judgements, read_calibration
from earmark.review.relabel import without_cleared
from earmark.runs.artefacts import read_table, write_json, write_table
from earmark.runs.engine import HERE, Engine
from earmark.runs.parameters import PAPER_DISCARD_PERCENTS, digest
from earmark.runs.progress import SILENT, Progress
from earmark.runs.recipe import Recipe
from earmark.scores.alignment import scored_labels
from earmark.scores.folder import ScoreFolder
from earmark.training.history import read_histories
from earmark.training.teacher import cross_fit

N_HEARD_CLASSES = 4
"""Classes whose flags can be heard where the recipe names none."""


@dataclass(frozen=True)
class Outcome:
    """What a run found, for those who print it."""

    workspace: Workspace
    n_flags: int
    judged: pl.DataFrame | None
    sweep: SweepResults
    report: Path


def run(
    recipe: Recipe, root: str | Path, *, engine: Engine = HERE, progress: Progress = SILENT
) -> Outcome:
    """Run every stage of a recipe in a workspace."""
    workspace = make_dataset(recipe, root, engine=engine, progress=progress)
    extract_frames(workspace, recipe.front_end, engine=engine, progress=progress)
    scores = cross_fit(
        workspace, recipe.teacher, recipe.cross_fit, engine=engine, progress=progress
    )
    flags = write_flags(workspace, scores, recipe.report.flag_percent)
    sweep = run_sweep(
        workspace,
        recipe.students,
        recipe.sweep,
        scores,
        recipe.cross_fit,
        engine=engine,
        progress=progress,
    )
    report = make_report(workspace, recipe)
    return Outcome(workspace, len(flags), judged_flags(workspace, scores), sweep, report)


def make_dataset(
    recipe: Recipe, root: str | Path, *, engine: Engine = HERE, progress: Progress = SILENT
) -> Workspace:
    """Open the workspace, or make the recipe's scenes in it if it is empty."""
    workspace = Workspace(Path(root))
    if recipe.scenes is not None:
        return scenes.write_scenes(
            workspace.root, recipe.scenes, recipe.hiding, engine=engine, progress=progress
        )
    return Workspace.open(root)


def write_flags(
    workspace: Workspace,
    scores: ScoreFolder,
    discard_percent: float,
    *,
    target: float | None = None,
    labels_name: str | None = None,
) -> pl.DataFrame:
    """Write the thresholds of the paper's 18 points, and the flags of one point.

    A ``target`` asks for flags of at least that chance instead: as judged by ear where there are
    judgements, as estimated from the scores where there are none. ``labels_name`` names corrected
    labels; what raters cleared is not flagged again.
    """
    relabelled = None if labels_name is None else read_relabelled(workspace, labels_name)
    labels = scored_labels(scores, relabelled.labels if relabelled else workspace.labels)
    found = survey(labels, scores.logits, discard_percent=discard_percent)
    points, flags = found.thresholds, found.flags
    if target is not None:
        flags = _flags_of_chance(workspace, scores, labels, target)
    if relabelled is not None:
        flags = without_cleared(flags, relabelled.rulings)
    write_table(workspace.flags_folder / "thresholds.parquet", points.table(labels.class_ids))
    write_table(workspace.flags_folder / "flags.parquet", flags)
    meta = {"digest": digest(labels.digest, scores.digest), "discard_percent": discard_percent}
    chosen = {"target": target, "labels": labels_name, "scores": scores.folder.name}
    write_json(workspace.flags_folder / "meta.json", {**meta, **chosen})
    return flags


def _flags_of_chance(
    workspace: Workspace, scores: ScoreFolder, labels: LabelSet, target: float
) -> pl.DataFrame:
    calibrated = read_calibration(workspace)
    if calibrated is None:
        return flag(labels, scores.logits, policy="precision", target=target)
    return flag_by_judgements(labels, scores.logits, calibrated, target)


def judged_flags(workspace: Workspace, scores: ScoreFolder) -> pl.DataFrame | None:
    """Hold the flags of all 18 points against the truth, where it is known."""
    if workspace.truth is None:
        return None
    labels = scored_labels(scores, workspace.labels)
    truth = scored_labels(scores, workspace.truth)
    return judge_flags(labels, truth, scores.logits, _all_thresholds(labels, scores))


def make_report(workspace: Workspace, recipe: Recipe) -> Path:
    """Write figures, tables and the page from what the other stages left in the workspace.

    A sweep, a comparison and rounds of teaching each have their part; one of them is enough.
    """
    scores = ScoreFolder.open(workspace.scores_folder(recipe.teacher.name))
    sweep = read_sweep(workspace) if is_swept(workspace) else None
    choices, rounds = (
        _if_there(workspace.compare_folder / f"{name}.parquet") for name in ("choices", "rounds")
    )
    if sweep is None and choices is None and rounds is None:
        raise EarmarkError(
            f"{workspace.root}: there is nothing to report yet; run `earmark sweep`, "
            "`earmark compare` or `earmark iterate` first"
        )
    labels = scored_labels(scores, workspace.labels)
    flags = flag(labels, scores.logits, discard_percent=recipe.report.flag_percent)
    contents = ReportContents(
        title=f"earmark: {recipe.name}",
        results=None if sweep is None else sweep.summary,
        per_class=None if sweep is None else sweep.per_class,
        thresholds=_all_thresholds(labels, scores).table(labels.class_ids),
        classes=class_summary(labels, workspace.ontology),
        judged=judged_flags(workspace, scores),
        heard=_heard(workspace, recipe, scores, labels, flags),
        provenance=_provenance(workspace, recipe, scores, sweep),
        choices=choices,
        rounds=rounds,
        courses=read_histories(workspace.root / "models"),
        flag_percent=recipe.report.flag_percent,
        sample_rate_hz=recipe.front_end.sample_rate_hz,
    )
    return write_report(workspace.report_folder, contents)


def export_labels(
    workspace: Workspace,
    scores: ScoreFolder,
    discard_percent: float,
    path: Path,
    labels_name: str | None = None,
) -> int:
    """Write one operating point's label set: clip_id, class_id, state; return the rows written.

    The state is present, not_present or ignored; labels that are not listed are negatives. Of
    corrected labels, ``labels_name``, those that raters could not settle are ignored as well, and
    those that they cleared are not.
    """
    relabelled = None if labels_name is None else read_relabelled(workspace, labels_name)
    labels = scored_labels(scores, relabelled.labels if relabelled else workspace.labels)
    ignored = flag(labels, scores.logits, discard_percent=discard_percent, with_chance=False)
    if relabelled is not None:
        rulings = scored_labels(scores, relabelled.rulings)
        unsettled = rulings.rows().filter("present")
        ignored = pl.concat([without_cleared(ignored, rulings), unsettled], how="diagonal")
    state = pl.when("present").then(pl.lit("present")).otherwise(pl.lit("not_present"))
    explicit = labels.rows().select("clip_id", "class_id", state=state)
    masked = ignored.select("clip_id", "class_id", state=pl.lit("ignored")).unique()
    table = pl.concat([explicit, masked]).sort("clip_id", "class_id")
    write_table(path, table)
    return len(table)


def _if_there(path: Path) -> pl.DataFrame | None:
    return read_table(path) if path.exists() else None


def _all_thresholds(labels: LabelSet, scores: ScoreFolder) -> Thresholds:
    return thresholds(labels, scores.logits, PAPER_DISCARD_PERCENTS)


def _heard(
    workspace: Workspace, recipe: Recipe, scores: ScoreFolder, labels: LabelSet, flags: pl.DataFrame
) -> dict[str, Sequence[HeardFlag]]:
    """Return the top flags of the chosen classes with their sound, by class name."""
    ontology = workspace.ontology
    chosen = [ontology.find(name) for name in recipe.report.listen_classes]
    store = FrameStore.open(workspace.frames_folder)
    heard: dict[str, Sequence[HeardFlag]] = {}
    for class_id in chosen or _most_flagged(labels, flags):
        top = flags.filter(pl.col("class_id") == class_id).sort("rank")
        rows = top.head(recipe.report.listen_flags).to_dicts()
        heard[ontology.name(class_id)] = [
            _heard_flag(workspace, recipe, scores, store, row) for row in rows
        ]
    return heard


def _most_flagged(labels: LabelSet, flags: pl.DataFrame) -> list[str]:
    """Return the classes with most flags for each positive: the worst labelled, it seems."""
    positives = dict(zip(labels.class_ids, labels.n_positives.tolist(), strict=True))
    counts = flags.group_by("class_id").len().sort("class_id")
    ranked = sorted(counts.iter_rows(), key=lambda row: -row[1] / max(positives[row[0]], 1))
    return [class_id for class_id, _ in ranked[:N_HEARD_CLASSES]]


def _heard_flag(
    workspace: Workspace,
    recipe: Recipe,
    scores: ScoreFolder,
    store: FrameStore,
    row: Mapping[str, str | int | float | None],
) -> HeardFlag:
    clip = workspace.clips.row(by_predicate=pl.col("clip_id") == row["clip_id"], named=True)
    column = workspace.ontology.index[str(row["class_id"])]
    place = int(scores.clip_ids.index_of(row["clip_id"]) or 0)
    first_frame = int(scores.best_patches[place, column]) * store.patch_hop_frames
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
        best_patch=(first_frame, first_frame + store.patch_frames),
    )


def _provenance(
    workspace: Workspace, recipe: Recipe, scores: ScoreFolder, sweep: SweepResults | None
) -> dict[str, str]:
    store = FrameStore.open(workspace.frames_folder)
    counts = {s: len(readable_clips(workspace, store, s).labels) for s in ("train", "tune", "eval")}
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
