"""A dataset checked: its files, its labels, and how many of these are missing, held to limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from earmark.datasets import Workspace, unusable_sounds
from earmark.errors import EarmarkError, counted, short_repr
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
from earmark.options import Fields, Option
from earmark.pipeline.checks.evidence import evidence_of_files, gather_evidence
from earmark.pipeline.checks.health import Health, examine
from earmark.pipeline.opening import RecipeLike, WorkLike, open_workspace
from earmark.report import HeldLimit, Limits, MissingEvidence, hold_limits
from earmark.storage import SourceTable, read_source

NO_LIMITS = Limits()


@dataclass(frozen=True)
class CheckedDataset:
    """What is known of a dataset's missing labels, and which limits it keeps.

    ``notes`` say how files were read, and how many sounds are missing or empty.
    """

    evidence: MissingEvidence
    limits: tuple[HeldLimit, ...]
    notes: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def is_passed(self) -> bool:
        """Whether every limit is kept; without limits, it is."""
        return all(one.is_passed for one in self.limits)

    def facts(self, *, by_class: bool = False) -> dict[str, Any]:
        """Return everything as plain values, for programs; with every class if it is asked for."""
        told = {
            "verdict": "passed" if self.is_passed else "failed",
            "limits": [one.facts() for one in self.limits],
            **self.evidence.facts(),
            "notes": list(self.notes),
        }
        return told | ({"classes": self.evidence.classes.to_dicts()} if by_class else {})


def check_dataset(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    labels: str | None = None,
    limits: Limits = NO_LIMITS,
) -> CheckedDataset:
    """Hold a workspace to limits; without limits it passes, and is told of all the same.

    ``labels`` names the label set: that of the flags written last, else the labels as given.
    """
    evidence = gather_evidence(work, recipe, labels)
    missing, empty = unusable_sounds(open_workspace(work))
    notes = tuple(
        f"{counted(len(files), 'sound file')} {trouble}, such as {files[0]}"
        for files, trouble in ((missing, "not there"), (empty, "of 0 bytes"))
        if files
    )
    return CheckedDataset(evidence, hold_limits(evidence, limits), notes)


def check_files(
    labels: Annotated[str | Path, Option("The file of labels.")],
    scores: Annotated[
        str | Path, Option("A file of scores, in place of a workspace.", default=None)
    ],
    *,
    limits: Annotated[Limits, Fields()] = NO_LIMITS,
    classes: Annotated[str | Path | None, Option("Classes in the order of scores.")] = None,
    clips: Annotated[str | Path | None, Option("Clips in the order of scores.")] = None,
    scale: Annotated[
        Literal["auto", "logits", "probabilities"], Option("auto, logits or probabilities.")
    ] = "auto",
    reading: Reading = GUESSED,
) -> CheckedDataset:
    """Hold a file of labels and one of scores to limits; the rest is as in a scan."""
    evidence, notes = evidence_of_files(
        labels,
        scores,
        classes=classes,
        clips=clips,
        scale=scale,
        columns=reading.columns,
        separator=reading.separator,
        zeros=reading.zeros,
    )
    return CheckedDataset(evidence, hold_limits(evidence, limits), notes)


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

    def facts(self) -> dict[str, Any]:
        """Return everything as plain values, for programs."""
        facts: dict[str, Any] = {
            "findings": [vars(finding) for finding in self.findings],
            "notes": list(self.notes),
        }
        implied = self.implied
        return facts if implied is None else facts | {"implied": implied.table().to_dicts()}


def check_labels(
    target: str | Path,
    clips: Annotated[
        str | Path | None, Option("Clips in the order of scores, or all that labels are of.")
    ] = None,
    reading: Reading = GUESSED,
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


@dataclass(frozen=True)
class CheckedWorkspace:
    """A workspace looked over: its files, its labels, and what is known of missing ones.

    ``labels`` is None where they cannot be read, ``dataset`` where nothing is known of missing
    labels: ``unknown`` says why.
    """

    health: Health
    labels: CheckedLabels | None
    dataset: CheckedDataset | None
    unknown: str = ""

    __repr__ = short_repr

    @property
    def is_passed(self) -> bool:
        """Whether every limit is kept; without limits, whether files and labels are in order."""
        if self.dataset is not None and self.dataset.limits:
            return self.dataset.is_passed
        return self.health.is_healthy and self.labels is not None and not self.labels.has_errors

    def facts(self, *, by_class: bool = False) -> dict[str, Any]:
        """Return everything as plain values, for programs; with every class if it is asked for."""
        dataset = {"unknown": self.unknown}
        if self.dataset is not None:
            dataset = self.dataset.facts(by_class=by_class)
        labels = {} if self.labels is None else self.labels.facts()
        return {
            **dataset,
            **self.health.facts(),
            "label_findings": labels.get("findings", []),
            "implied": labels.get("implied", []),
            "verdict": "passed" if self.is_passed else "failed",
        }


def check_workspace(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    labels: Annotated[
        str | None,
        Option(
            "A label set: that of the flags written last, else as given. With --scores: the file "
            "of labels."
        ),
    ] = None,
    limits: Annotated[Limits, Fields()] = NO_LIMITS,
    quick: Annotated[bool, Option("Without reading all frames.")] = False,
) -> CheckedWorkspace:
    """Look over a workspace: its files, its labels, and its missing labels.

    ``quick`` leaves out reading all frames. What is known of missing labels takes scores; only
    where there are ``limits`` is it an error that there are none.
    """
    workspace = open_workspace(work)
    health = examine(workspace, quick=quick)
    checked: CheckedLabels | None = None
    dataset: CheckedDataset | None = None
    unknown = ""
    try:
        checked = check_labels(workspace.root)
        dataset = check_dataset(workspace, recipe, labels=labels, limits=limits)
    except EarmarkError as error:
        if limits != NO_LIMITS:
            raise
        unknown = str(error)
    return CheckedWorkspace(health, checked, dataset, unknown)
