"""The report of a workspace, and its card: gathered from what the other stages left, and written.

Results of students are read inside the functions: their room imports torch, an extra.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl

from earmark.datasets import (
    Workspace,
    corrected_names,
    measured_frames,
    stale_of,
    stamp_path,
    warn_stale,
    write_stamp,
)
from earmark.errors import short_repr
from earmark.flags import stored_flags, stored_thresholds
from earmark.options import Fields, Option
from earmark.pipeline.check import gather_evidence
from earmark.pipeline.flag import estimate_missing, found_flags, judged_flags
from earmark.pipeline.hearing import after_flags, heard_flags
from earmark.pipeline.listening.review import gains_so_far
from earmark.pipeline.opening import RecipeLike, Scored, WorkLike, open_scored, open_workspace
from earmark.pipeline.scanning.scan import write_findings
from earmark.report import (
    CardContents,
    Correction,
    Description,
    HeardFlag,
    MissingEvidence,
    ReportContents,
    TeacherGrade,
    card_markdown,
    class_summary,
    flags_to_hear,
    write_report,
)
from earmark.scores import scored_labels
from earmark.storage import read_seal, read_sealed, seal_path, write_text, writes

if TYPE_CHECKING:
    from earmark.experiments import SweepResults

N_HEARD_CLASSES = 4
"""How many classes' worth of flags can be heard where the recipe names no classes."""


@writes("report")
def make_report(work: WorkLike, recipe: RecipeLike = None) -> Path:
    """Write figures, tables and the page from what the other stages left; return the page's path.

    A sweep and a comparison each have their part. Where there is neither, the page is that of the
    flags: how many, how sure, and the likeliest to hear.
    """
    scored = open_scored(work, recipe)
    students = _students(scored.workspace)
    if students:
        contents = _contents(scored, students)
        path = write_report(scored.workspace.report_folder, contents)
    else:
        path = _write_flags_page(scored)
    write_stamp(scored.workspace, stamp_path(scored.workspace.report_page))
    return path


def _students(workspace: Workspace) -> set[str]:
    """Return the verbs whose results are there; those older than the dataset are left out."""
    choices = workspace.compare_table_path("choices")
    tables = {
        "sweep": (workspace.sweep_table_path("summary"), seal_path(workspace.sweep_folder)),
        "compare": (choices, stamp_path(choices)),
    }
    found = set()
    for verb, (table, stamp) in tables.items():
        stale = stale_of(workspace, table, stamp, verb)
        warn_stale(stale, "left out of the page")
        if table.exists() and stamp.exists() and stale is None:
            found.add(verb)
    return found


def _table(path: Path) -> pl.DataFrame:
    return read_sealed(stamp_path(path), path.name)


def _write_flags_page(scored: Scored) -> Path:
    """Write what a scan writes, with the likeliest flags to hear."""
    workspace, recipe = scored.workspace, scored.recipe
    findings = found_flags(scored)
    folder = workspace.report_folder
    write_findings(
        folder,
        findings,
        {
            "workspace": str(workspace.root.resolve()),
            "recipe": f"{recipe.name} ({recipe.digest()})",
            "labels digest": workspace.labels.digest,
            "scores digest": scored.whole.digest,
            "versions": {name: metadata.version(name) for name in ("earmark", "numpy", "polars")},
        },
        _heard(scored, findings.flags),
        after_flags(workspace.root, workspace.has_sound(), findings),
        recipe.front_end.sample_rate_hz,
        gains_so_far(workspace, findings.estimates),
    )
    return folder / "index.html"


def _contents(scored: Scored, students: set[str]) -> ReportContents:
    from earmark.experiments import read_sweep
    from earmark.training import read_histories

    workspace, recipe, scores = scored.workspace, scored.recipe, scored.scores
    sweep = read_sweep(workspace) if "sweep" in students else None
    compared = workspace.compare_table_path("choices")
    choices = _table(compared) if "compare" in students else None
    labels = scored_labels(scores, workspace.labels)
    points = stored_thresholds(workspace.flags_folder, labels, scores.logits, scores.digest)
    every, whole = scored_labels(scored.whole, workspace.labels), scored.whole
    estimates = estimate_missing(scored)
    own = (workspace.flags_folder, every, whole.logits, whole.digest)
    flags = stored_flags(*own, recipe.report.flag_percent)
    return ReportContents(
        title=f"earmark: {recipe.name}",
        results=None if sweep is None else sweep.summary,
        per_class=None if sweep is None else sweep.per_class,
        claims=None if sweep is None else sweep.claims,
        thresholds=points.table(labels.class_ids),
        classes=class_summary(labels, workspace.ontology),
        judged=judged_flags(workspace, scores),
        heard=_heard(scored, flags),
        provenance=_provenance(scored, sweep),
        choices=choices,
        courses=read_histories(workspace.models_folder),
        flag_percent=recipe.report.flag_percent,
        sample_rate_hz=recipe.front_end.sample_rate_hz,
        teacher=_grade(scored),
        estimates=estimates,
        gains=gains_so_far(workspace, estimates),
    )


def _grade(scored: Scored) -> TeacherGrade | None:
    """Say how good the teacher is on clips that it was not trained on; None where it was."""
    scores = scored.scores
    if not scores.out_of_fold:
        return None
    from earmark.training import choose_evaluation_clips, evaluate_way

    clips = choose_evaluation_clips(scored.workspace, scores)
    tried = evaluate_way(scored.workspace, None, scores, clips)
    return TeacherGrade(scores.folder.name, tried.auc, tried.hits, clips.told)


def _heard(scored: Scored, flags: pl.DataFrame) -> list[HeardFlag]:
    """Return the likeliest flags, of all classes or of those that the recipe names, to hear."""
    asked, ontology = scored.recipe.report, scored.workspace.ontology
    chosen = [ontology.find(name) for name in asked.listen_classes]
    own = flags.filter(pl.col("class_id").is_in(chosen)) if chosen else flags
    rows = flags_to_hear(own, asked.listen_flags * (len(chosen) or N_HEARD_CLASSES))
    return heard_flags(scored.workspace, scored.recipe, scored.whole, rows)


def _provenance(scored: Scored, sweep: SweepResults | None) -> dict[str, str]:
    workspace, recipe, scores = scored.workspace, scored.recipe, scored.scores
    store = measured_frames(workspace)
    read = workspace.clips.filter(pl.col("clip_id").is_in(store.clip_ids.implode()))
    counts = {split: int((read["split"] == split).sum()) for split in ("train", "tune", "eval")}
    versions = {name: metadata.version(name) for name in ("earmark", "torch", "numpy", "polars")}
    seeds = () if sweep is None else sweep.results["seed"].unique().sort()
    return {
        "clips": ", ".join(f"{n:,} {split}" for split, n in counts.items()),
        "classes": str(workspace.labels.n_classes),
        "recipe": f"{recipe.name} ({recipe.digest()})",
        **({"seeds of the sweep": ", ".join(map(str, seeds))} if len(seeds) else {}),
        "scores": scores.told,
        "labels digest": workspace.labels.digest,
        "frames digest": store.digest,
        "scores digest": scores.digest,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class WrittenCard:
    """A card, and the file that holds it."""

    path: Path
    contents: CardContents

    __repr__ = short_repr


def write_card(
    work: WorkLike,
    out: Annotated[
        str | Path,
        Option("Write the dataset's card here, as Markdown; no page.", "--card", default=None),
    ],
    recipe: RecipeLike = None,
    *,
    labels: Annotated[
        str | None,
        Option("card: a label set; that of the flags written last, else as given."),
    ] = None,
    description: Annotated[Description | None, Fields()] = None,
    day: date | None = None,
) -> WrittenCard:
    """Write what a dataset is and what is missing in it, as Markdown.

    ``labels`` names the label set: that of the flags written last, else the labels as given.
    ``description`` is what only the owner can say, ``day`` the card's date, by default today.
    """
    workspace = open_workspace(work)
    evidence = gather_evidence(workspace, recipe, labels)
    described = description or Description()
    if not described.name:
        described = replace(described, name=workspace.root.resolve().name)
    contents = _card_contents(workspace, evidence, described, day or datetime.now(UTC).date())
    write_text(out, card_markdown(contents))
    return WrittenCard(Path(out), contents)


def _card_contents(
    workspace: Workspace, evidence: MissingEvidence, description: Description, day: date
) -> CardContents:
    clips = workspace.clips
    splits = dict(clips["split"].value_counts().iter_rows())
    return CardContents(
        description=description,
        evidence=evidence,
        splits={split: splits[split] for split in ("train", "tune", "eval") if split in splits},
        n_sources=clips["source"].n_unique(),
        n_with_sound=int(clips["audio"].is_not_null().sum()),
        corrections=list(_corrections(workspace)),
        day=day,
    )


def _corrections(workspace: Workspace) -> Iterator[Correction]:
    """Yield the corrected label sets that still hold for the labels of now."""
    for name in corrected_names(workspace):
        noted = read_seal(workspace.relabelled_folder(name))
        if noted["original_labels"] != workspace.labels.digest:
            continue
        last = str(noted["last_judgement"])[:10]
        yield Correction(name, len(noted["raters"]), last, noted["outcomes"], noted["n_conflicts"])
