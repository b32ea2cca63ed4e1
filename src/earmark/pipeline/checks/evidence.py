"""Evidence of missing labels, gathered from a workspace, or from files of labels and scores."""

from __future__ import annotations

from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from earmark.datasets import Workspace, read_labels
from earmark.errors import EarmarkError
from earmark.metrics import Interval
from earmark.pipeline.flag import find_flags, labels_flagged
from earmark.pipeline.listening.queue import open_judgements
from earmark.pipeline.listening.review import HeardPrecision, measure_precision
from earmark.pipeline.opening import RecipeLike, Scored, WorkLike, open_scored
from earmark.pipeline.scanning.scan import scan
from earmark.report import HeardEvidence, MissingEvidence
from earmark.storage import is_finished, read_seal


def gather_evidence(
    work: WorkLike, recipe: RecipeLike = None, labels: str | None = None
) -> MissingEvidence:
    """Gather what a workspace knows of its missing labels, by the scores and by ear.

    ``labels`` names the label set; by default it is that of the flags written last, else the labels
    as given. The flags are chosen anew as they were last.
    """
    scored = open_scored(work, recipe)
    workspace = scored.workspace
    name = labels or labels_flagged(workspace)
    folder = workspace.flags_folder
    written = read_seal(folder) if is_finished(folder) else {}
    findings = find_flags(scored, written.get("policy"), written.get("options", {}), name)
    heard, not_heard = hear_of(workspace)
    return MissingEvidence(findings, name, heard, not_heard, _origin(scored, name))


def evidence_of_files(
    labels: str | Path, scores: str | Path, **options: Any
) -> tuple[MissingEvidence, tuple[str, ...]]:
    """Gather what scores say of the labels of two files, and how these were read.

    ``options`` are those of :func:`earmark.pipeline.scan`.
    """
    found = scan(labels, scores, **options)
    origin = {"labels": str(labels), "scores": str(scores), **_versions()}
    reason = "files of labels and scores hold no answers"
    return MissingEvidence(found.findings, str(labels), None, reason, origin), found.notes


def hear_of(workspace: Workspace) -> tuple[HeardEvidence | None, str]:
    """Return what raters heard of the flags of a workspace; None, and why, where nobody did."""
    if not (workspace.judgements_path.exists() and workspace.queue_seal_path.exists()):
        return None, "nobody has listened yet"
    try:
        heard = measure_precision(workspace, is_written=False)
    except EarmarkError:  # answers about other labels than those that were drawn
        return None, "nobody has listened to labels of this queue yet"
    if not heard.overall["n_judged"]:
        return None, "nobody has listened to one of these flags yet"
    return _heard_evidence(workspace, heard), ""


def _heard_evidence(workspace: Workspace, heard: HeardPrecision) -> HeardEvidence:
    overall: dict[str, Any] = heard.overall
    every = heard.table.filter(scope="all")
    class_ids = every["class_id"].drop_nulls().to_list()
    columns = [workspace.ontology.index[class_id] for class_id in class_ids]
    whole = every.row(-1, named=True)
    middle = (whole["precision_low"] + whole["precision_high"]) / 2
    shares = (middle, whole["low"], whole["high"])
    with open_judgements(workspace) as store:
        answers = store.current()
    numbers = ("n_judged", "n_present", "n_not_present", "n_unsure")
    ends = ("precision_low", "precision_high", "low", "high")
    return HeardEvidence(
        flags=heard.flags,
        is_estimate=heard.is_estimate,
        **{name: overall[name] for name in (*numbers, *ends)},
        n_raters=answers["rater"].n_unique(),
        last=datetime.fromisoformat(str(answers["at"].max())).date().isoformat(),
        missing=Interval(*(share * whole["n_labels"] for share in shares)),
        n_positives=int(workspace.labels.n_positives[columns].sum()),
        n_classes=len(class_ids),
        coverage=whole["coverage"],
        gains="" if heard.gains is None else heard.gains.told,
    )


def _origin(scored: Scored, name: str) -> dict[str, str]:
    """Return what the evidence was made from."""
    recipe = scored.recipe
    return {
        "teacher": _teacher_told(scored),
        "labels digest": read_labels(scored.workspace, name).labels.digest,
        "scores digest": scored.whole.digest,
        "recipe": f"{recipe.name} ({recipe.digest()})",
        **_versions(),
    }


def _teacher_told(scored: Scored) -> str:
    """Say whose scores they are, to those who do not know the workspace."""
    recipe, scores = scored.recipe, scored.whole
    fold = "out of fold" if scores.out_of_fold else "not known to be out of fold"
    if scores.origin is not None:
        name = Path(scores.origin.path).name or "elsewhere"
        what = "scores from" if scores.origin.kind == "file" else "scores by"
        return f"{what} {name}, {fold}"
    if recipe.pretrained is not None:
        return f"scores by {recipe.pretrained.network} ({recipe.way or 'the best way'}), {fold}"
    architecture = recipe.taught.model.architecture
    return f"scores by a {architecture} that learnt from these labels, {fold}"


def _versions() -> dict[str, str]:
    return {"earmark": metadata.version("earmark")}
