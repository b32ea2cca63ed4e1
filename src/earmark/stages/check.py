"""Labels and scores checked: what is wrong with a label file, and how good scores are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from earmark.datasets import Workspace
from earmark.errors import EarmarkError, nearest
from earmark.labels import (
    Finding,
    Implied,
    LabelSet,
    Ontology,
    checked_table,
    find_implied,
    find_problems,
)
from earmark.metrics import Evaluation, evaluate
from earmark.runs import read_source
from earmark.scores import ScoreFolder


@dataclass(frozen=True)
class CheckedLabels:
    """What is wrong, or worth knowing, about a file of labels.

    ``implied`` says what positives tell of their ancestors; None without a class tree, or where
    the labels have errors.
    """

    path: Path
    findings: tuple[Finding, ...]
    implied: Implied | None

    @property
    def has_errors(self) -> bool:
        """Whether the labels cannot be used as they are."""
        return any(finding.is_error for finding in self.findings)


def check_labels(target: str | Path, clips: str | Path | None = None) -> CheckedLabels:
    """Check the labels of a workspace, or of a CSV or Parquet file.

    ``clips`` is the table that lists all clips of a file's labels; without it they are those that
    the labels mention.
    """
    target = Path(target)
    if target.is_dir():
        workspace = Workspace.open(target)
        clip_ids = workspace.clips["clip_id"]
        return _check(workspace.labels_path, clip_ids, workspace.ontology)
    return _check(target, None if clips is None else _listed_clips(Path(clips)), None)


def evaluate_scores(labels: str | Path, scores: str | Path) -> Evaluation:
    """Measure a folder of scores against a file of labels: d', lwlrap and average precision."""
    opened = ScoreFolder.open(scores)
    known = LabelSet.read(labels, class_ids=opened.class_ids).rows()
    scored = known.filter(known["clip_id"].is_in(opened.clip_ids.implode()))
    kept = LabelSet.from_rows(scored, opened.clip_ids, opened.class_ids, str(labels))
    return evaluate(kept, opened.logits, opened.class_ids)


def _check(path: Path, clip_ids: pl.Series | None, ontology: Ontology | None) -> CheckedLabels:
    table = read_source(path)
    rows = checked_table(table).rows
    if clip_ids is None:
        clip_ids = rows["clip_id"].unique(maintain_order=True)
    if ontology is None:
        class_ids = rows["class_id"].unique(maintain_order=True).to_list()
    else:
        class_ids = list(ontology.class_ids)
    checked = CheckedLabels(path, tuple(find_problems(table, clip_ids, class_ids)), None)
    if ontology is None or not ontology.parents or checked.has_errors:
        return checked
    labels = LabelSet.from_table(table, clip_ids, class_ids)
    return CheckedLabels(path, checked.findings, find_implied(labels, ontology))


def _listed_clips(path: Path) -> pl.Series:
    listed = read_source(path).rows
    if "clip_id" not in listed.columns:
        hint = nearest("clip_id", listed.columns)
        raise EarmarkError(f"{path}: there is no column 'clip_id'{hint}")
    return listed["clip_id"].cast(pl.String).unique(maintain_order=True)
