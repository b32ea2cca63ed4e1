"""The commands that check and compare labels: ``check`` and ``diff``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import AsJson, Call, Details, offers
from earmark.cli.printing import table_lines, tell
from earmark.errors import EarmarkError, counted, first_few, quoted

if TYPE_CHECKING:
    import polars as pl

    from earmark.labels import LabelSet
    from earmark.pipeline import CheckedLabels, CheckedWorkspace, ComparedLabels
    from earmark.report import MissingEvidence

_N_CLASSES = 4
"""Classes that ``diff`` prints without ``--details``."""

_N_STATES, _N_RATERS = 5, 3
"""Kinds of change, and raters of each, that ``diff`` prints."""


@offers("pipeline.check_workspace", "pipeline.check_labels")
def check(
    call: Call,
    work: Annotated[
        Path | None, typer.Argument(help="A workspace, or a file of labels.", metavar="WORK")
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
    if work is None:
        raise EarmarkError("expected a workspace, or a file of labels; got none")
    if work.is_dir():
        checked = call("check_workspace", because="a workspace, which names clips and columns")
        facts, next_command = checked.facts(by_class=by_class), _after_check(work, checked)
        summary, more = _workspace_lines(checked)
        is_passed = checked.is_passed
    else:
        labels = call("check_labels", because="a file of labels alone", path=work)
        facts, next_command, is_passed = labels.facts(), None, not labels.has_errors
        summary = [f"{counted(len(labels.findings), 'finding')} in {labels.path}"]
        more = [*_label_lines(labels), *labels.notes]
    if as_json:
        print(json.dumps({**facts, "next": next_command}))
    else:
        tell(False, next_command, told=summary, more=more, details=details)
    if not is_passed:
        raise typer.Exit(1)


def _workspace_lines(checked: CheckedWorkspace) -> tuple[list[str], list[str]]:
    """Return whether limits are kept and all is in order, and then what is wrong and missing."""
    busy = [f"now: {checked.holder} writes here, and is not done"] if checked.holder else []
    summary = [*(limit.told() for limit in checked.limits), checked.summary(), *busy]
    label_lines = [] if checked.labels is None else _label_lines(checked.labels)
    errors = [line for line in label_lines if line.startswith("error: ")]
    missing = [f"missing labels: {checked.unknown}"]
    if checked.evidence is not None:
        missing = _evidence_lines(checked.evidence)
    others = [line for line in label_lines if not line.startswith("error: ")]
    return summary, [*map(str, checked.problems), *errors, *missing, *others]


def _label_lines(checked: CheckedLabels) -> list[str]:
    """List what is wrong with labels, errors first, and what positives imply of their ancestors."""
    errors_first = sorted(checked.findings, key=lambda finding: not finding.is_error)
    lines = [f"{'error' if one.is_error else 'note'}: {one.message}" for one in errors_first]
    implied = checked.implied
    if implied is None:
        return lines
    return [
        *lines,
        f"{implied.n_implied:,} implicit labels are implied by a child that is present; "
        f"{implied.n_contradictions:,} ancestors are marked absent though a child is present",
        *(
            f"{row['kind']}: clip {row['clip_id']}, {row['class_id']} by {row['child_id']}"
            for row in implied.table().sort("kind", descending=True).iter_rows(named=True)
        ),
    ]


def _evidence_lines(evidence: MissingEvidence) -> list[str]:
    """Describe what is missing first where that is known, then how sure it is."""
    from earmark.report import findings_told, heard_told

    warnings = [f"warning: {warning}" for warning in evidence.findings.warnings]
    heard = heard_told(evidence)
    return [*findings_told(evidence.findings), *([heard] if heard else []), *warnings]


def _after_check(work: Path, checked: CheckedWorkspace) -> str | None:
    """Return the next command: mend what is wrong, listen, correct labels, or publish a card."""
    from earmark import pipeline

    commands = [problem.command for problem in checked.problems if problem.command]
    evidence = checked.evidence
    if commands or evidence is None:
        return commands[0] if commands else None
    if not evidence.estimates.n_answers:
        has_sound = pipeline.open_workspace(work).has_sound()
        listen = f"earmark review {quoted(work)}"
        return listen if has_sound else f"earmark answers {quoted(work)} --import FILE"
    is_kept = all(limit.is_passed for limit in checked.limits)
    if is_kept or evidence.labels != "given":
        return f"earmark report {quoted(work)} --card CARD.md"
    return f"earmark relabel {quoted(work)}"


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
    compared, out = call(), call["out"]
    if as_json:
        print(json.dumps({**compared.facts(), "wrote": None if out is None else str(out)}))
    else:
        changes, *more = _change_lines(compared)
        tell(
            False,
            told=[
                changes,
                _describe_labels(f"A, {call['before']}", compared.before),
                _describe_labels(f"B, {call['after']}", compared.after),
            ],
            table=_class_table(compared, None if details else _N_CLASSES),
            more=[*more, *compared.notes],
            details=details,
            wrote=out,
        )
    if exit_code and not compared.changes.is_none:
        raise typer.Exit(1)


def _describe_labels(title: str, labels: LabelSet) -> str:
    n_present = int(labels.present.sum())
    return (
        f"{title}: {counted(labels.n_clips, 'clip')}, "
        f"{counted(labels.n_classes, 'class', 'classes')}, {n_present:,} present, "
        f"{len(labels.present) - n_present:,} not present."
    )


def _change_lines(compared: ComparedLabels) -> list[str]:
    """Describe what was added, removed and changed, by whom, and what one side lacks."""
    from earmark.labels import KINDS

    changes = compared.changes
    if changes.is_none:
        return ["No difference: the same labels of the same clips and classes."]
    counts = ", ".join(f"{changes.n_of(kind):,} {kind}" for kind in KINDS)
    states = changes.by_states.rows()
    lines = [
        f"{counts}, in {counted(len(changes.by_class), 'class', 'classes')}.",
        *(_describe_state(compared.table, *row) for row in states[:_N_STATES]),
    ]
    if len(states) > _N_STATES:
        n_more = len(states) - _N_STATES
        lines.append(f"and {counted(n_more, 'other change of state', 'other changes of state')}")
    for side, only in (("A", changes.only_before), ("B", changes.only_after)):
        nouns = (("clip", "clips"), ("class", "classes"))
        lacking = [
            f"{counted(len(names), *noun)} ({first_few(names)})"
            for names, noun in zip(only, nouns, strict=True)
            if len(names)
        ]
        lines += [f"Only in {side}: {', '.join(lacking)}."] if lacking else []
    return lines


def _describe_state(table: pl.DataFrame, before: str | None, after: str | None, n: int) -> str:
    """Describe one kind of change: how many labels, who decided, how likely they were missing."""
    import polars as pl

    same = pl.col("before").eq_missing(pl.lit(before)) & pl.col("after").eq_missing(pl.lit(after))
    rows = table.filter(same)
    parts = [f"{before or 'not there'} -> {after or 'not there'}: {n:,}"]
    raters = rows["rater"].drop_nulls().str.split(",").explode()
    if len(raters):
        counts = raters.value_counts(sort=True).head(_N_RATERS).iter_rows()
        parts.append(f"by ear, {', '.join(f'{rater!s} {n:,}' for rater, n in counts)}")
    chances = rows["chance"].drop_nulls()
    if len(chances):
        mean = float(chances.to_numpy().mean())
        parts.append(f"{len(chances):,} flagged, chance {mean:.2f} on average")
    return "; ".join(parts)


def _class_table(compared: ComparedLabels, most: int | None) -> list[str]:
    """Return the table of classes, those with most changes first."""
    from earmark.labels import KINDS

    names = dict(compared.table.select("class_id", "name").unique().iter_rows())
    rows: list[list[Any]] = [
        [names.get(class_id) or class_id, *(f"{n:,}" for n in counts)]
        for class_id, *counts in compared.changes.by_class.rows()
    ]
    return table_lines(["class", *KINDS], rows, most=most) if rows else []
