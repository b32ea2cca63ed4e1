"""Labels checked: what is wrong with a file of them, or worth knowing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from earmark.datasets import Workspace
from earmark.errors import EarmarkError, short_repr
from earmark.labels import (
    GUESSED,
    Finding,
    Implied,
    LabelSet,
    Reading,
    find_implied,
    find_problems,
    is_label_table,
    read_clip_list,
    read_label_file,
    read_label_table,
    refuse_no_labels,
)
from earmark.runs import SourceTable, read_source


@dataclass(frozen=True)
class CheckedLabels:
    """What is wrong, or worth knowing, about a file of labels.

    ``implied`` says what positives tell of their ancestors; None without a class tree, or where
    the labels have errors. ``notes`` say how a table was read.
    """

    path: Path
    findings: tuple[Finding, ...]
    implied: Implied | None
    notes: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def has_errors(self) -> bool:
        """Whether the labels cannot be used as they are."""
        return any(finding.is_error for finding in self.findings)


def check_labels(
    target: str | Path, clips: str | Path | None = None, reading: Reading = GUESSED
) -> CheckedLabels:
    """Check the labels of a workspace, or of a file of labels in any format.

    ``clips`` is the table that lists all clips of a file's labels; without it they are those that
    the labels mention. ``reading`` says how a table is to be read where guesses would be wrong.
    """
    target = Path(target)
    if not target.is_dir():
        return _check_file(target, None if clips is None else Path(clips), reading)
    if clips is not None or reading != GUESSED:
        raise EarmarkError(
            f"{target}: a workspace names its clips and columns itself; leave the options out"
        )
    workspace = Workspace.open(target)
    ontology, clip_ids = workspace.ontology, workspace.clips["clip_id"]
    table = read_source(workspace.labels_path)
    findings = tuple(find_problems(table, clip_ids, ontology.class_ids))
    checked = CheckedLabels(workspace.labels_path, findings, None)
    if not ontology.parents or checked.has_errors:
        return checked
    labels = LabelSet.from_table(table, clip_ids, ontology.class_ids)
    return replace(checked, implied=find_implied(labels, ontology))


def _check_file(path: Path, clips: Path | None, reading: Reading) -> CheckedLabels:
    """Check a file of labels: a table with the lines of its rows, any other file as a whole."""
    if is_label_table(path):
        read = read_label_table(path, reading)
        table, clip_ids, class_ids, notes = read.long, read.clip_ids, read.class_ids, read.notes
    else:
        file = read_label_file(path, reading=reading)
        refuse_no_labels(file.labels, path)
        clip_ids, class_ids, notes = file.labels.clip_ids, file.labels.class_ids, file.notes
        table = SourceTable.of(file.labels.rows(), path)
    if clips is not None:
        clip_ids = read_clip_list(clips)
    return CheckedLabels(path, tuple(find_problems(table, clip_ids, class_ids)), None, notes)
