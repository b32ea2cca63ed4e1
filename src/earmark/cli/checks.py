"""The verbs that look at a dataset: ``check`` and ``diff``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import AsJson, Call, Details, offers
from earmark.cli.printing import table_lines, tell
from earmark.errors import EarmarkError, counted, quoted

if TYPE_CHECKING:
    from earmark.pipeline import CheckedDataset, CheckedLabels, CheckedWorkspace

_N_CLASSES = 4
"""Classes that ``diff`` prints without ``--details``."""


@offers("pipeline.check_workspace", "pipeline.check_labels", "pipeline.check_files")
def check(
    call: Call,
    work: Annotated[
        Path | None, typer.Argument(help="A workspace, or a file of labels.", metavar="WORK")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Argument(help="JSON file to write; - prints it.", metavar="FILE"),
    ] = None,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Every class in the JSON, too.")
    ] = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Check files and labels for problems; exit with 1 if a limit is exceeded.

    Without limits, with 1 where something is wrong with files or labels.
    """
    following: str | None = None
    if call["scores"] is not None:
        labels, scores = call["labels"], call["scores"]
        to = _only_file(labels, work, to, call["recipe"])
        checked = call("check_files")
        facts = checked.facts(by_class=by_class)
        told = [*(one.told() for one in checked.limits)]
        more = [*_evidence_lines(checked), *checked.notes]
        following = f"earmark scan --labels {quoted(labels)} --scores {quoted(scores)}"
        is_passed = checked.is_passed
    elif work is None:
        raise EarmarkError(
            "expected a workspace, a file of labels, or two files: --labels FILE --scores FILE; "
            "got none"
        )
    elif work.is_dir():
        looked = call("check_workspace", because="a workspace, which names clips and columns")
        facts, following = looked.facts(by_class=by_class), _after_check(work, looked)
        told, more = _workspace_lines(looked)
        is_passed = looked.is_passed
    else:
        read = call("check_labels", because="a file of labels alone", target=work)
        facts, is_passed = read.facts(), not read.has_errors
        told = [f"{counted(len(read.findings), 'finding')} in {read.path}"]
        more = [*_label_lines(read), *read.notes]
    _tell_check(facts, told, more, to, as_json, following, details)
    if not is_passed:
        raise typer.Exit(1)


@offers("pipeline.compare_labels")
def diff(
    call: Call,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 where there is a difference.")
    ] = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Compare two label sets: what changed, class by class, and by whom."""
    from earmark.report import changed_classes, changes_told, labels_told

    found, before, after, out = call(), call["before"], call["after"], call["out"]
    changes = found.changes
    if as_json:
        print(json.dumps({**found.facts(), "wrote": None if out is None else str(out)}))
    else:
        changed, *states = changes_told(changes, found.table)
        sides = [labels_told(f"A, {before}", found.before), labels_told(f"B, {after}", found.after)]
        columns, rows = changed_classes(changes, found.table)
        tell(
            False,
            told=[changed, *sides],
            table=table_lines(columns, rows, most=None if details else _N_CLASSES) if rows else [],
            more=[*states, *found.notes],
            details=details,
            wrote=out,
        )
    if exit_code and not changes.is_none:
        raise typer.Exit(1)


def _only_file(
    labels: str | None, first: Path | None, second: Path | None, recipe: str | None
) -> Path | None:
    """Return the JSON file to write, which is the only argument where there is no workspace."""
    if labels is None or second is not None or recipe is not None:
        raise EarmarkError(
            "--scores takes the place of a workspace: give --labels, the file of labels, and no "
            "workspace or recipe"
        )
    return first


def _tell_check(
    facts: dict[str, Any],
    told: Sequence[str],
    more: Sequence[str],
    to: Path | None,
    as_json: bool,
    following: str | None,
    details: bool,
) -> None:
    """Write the JSON where it is asked for, and print words where JSON is not."""
    from earmark.storage import write_json

    facts = {**facts, "next": following}
    if str(to) == "-" or (as_json and to is None):
        print(json.dumps(facts))
        return
    if to is not None:
        write_json(to, facts)
    tell(False, following, told=told, more=more, details=details, wrote=to)


def _workspace_lines(looked: CheckedWorkspace) -> tuple[list[str], list[str]]:
    """Say whether limits are kept and all is in order, and then what is wrong and missing."""
    health, labels, dataset = looked.health, looked.labels, looked.dataset
    limits = [] if dataset is None else [one.told() for one in dataset.limits]
    busy = [f"now: {health.holder} writes here, and is not done"] if health.holder else []
    wrong = [str(one) for one in health.findings]
    noted = [] if labels is None else _label_lines(labels)
    missing = [f"missing labels: {looked.unknown}"] if dataset is None else _evidence_lines(dataset)
    errors = [line for line in noted if line.startswith("error: ")]
    others = [line for line in noted if not line.startswith("error: ")]
    told = [*limits, health.told(), *busy]
    return told, [*wrong, *errors, *missing, *others, *(dataset.notes if dataset else ())]


def _label_lines(checked: CheckedLabels) -> list[str]:
    """Say what is wrong with labels, errors first, and what positives imply of their ancestors."""
    errors_first = sorted(checked.findings, key=lambda finding: not finding.is_error)
    lines = [f"{'error' if one.is_error else 'note'}: {one.message}" for one in errors_first]
    if checked.implied is None:
        return lines
    implied = checked.implied
    rows = implied.table().sort("kind", descending=True).to_dicts()
    return [
        *lines,
        f"{implied.n_implied:,} implicit labels are implied by a child that is present; "
        f"{implied.n_contradictions:,} ancestors are marked absent though a child is present",
        *(f"{row['kind']}: clip {row['clip_id']}, {row['class_id']} by {row['child_id']}"
          for row in rows),
    ]  # fmt: skip


def _evidence_lines(checked: CheckedDataset) -> list[str]:
    """Say what is missing first where that is known, then how sure it is."""
    from earmark.report import evidence_told

    findings = checked.evidence.findings
    warnings = [f"warning: {warning}" for warning in findings.warnings]
    lines = evidence_told(checked.evidence)
    if findings.knowledge.is_enough:
        data, how_sure, *missing = lines
        lines = [*missing, how_sure, *warnings, data]
    return lines


def _after_check(work: Path, looked: CheckedWorkspace) -> str | None:
    """Return the next command: mend what is wrong, listen, correct the labels, or tell of it."""
    from earmark import pipeline

    commands = [one.command for one in looked.health.findings if one.command]
    checked = looked.dataset
    if commands or checked is None:
        return commands[0] if commands else None
    if checked.evidence.heard is None:
        has_sound = pipeline.open_workspace(work).has_sound()
        heard_here = f"earmark review {quoted(work)}"
        return heard_here if has_sound else f"earmark answers {quoted(work)} --import FILE"
    if checked.is_passed or checked.evidence.labels != "given":
        return f"earmark report {quoted(work)} --card CARD.md"
    return f"earmark relabel {quoted(work)}"
