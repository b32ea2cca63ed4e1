"""The verbs that look at a dataset: ``check``, ``diff``, ``card`` and ``doctor``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from earmark.cli.options import (
    AsJson,
    ColumnOption,
    Details,
    RecipeOption,
    SeparatorOption,
    Work,
    ZerosOption,
    one_of,
    reading_of,
    table_lines,
    tell,
)
from earmark.errors import EarmarkError, quoted

if TYPE_CHECKING:
    from earmark.labels import Reading
    from earmark.stages import CheckedDataset

checks_app = typer.Typer()

_N_CLASSES = 4
"""Classes that ``diff`` prints without ``--details``."""


def _limit(what: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(min=0, max=1, help=what)
    return info


Missing = Annotated[float | None, _limit("Most that may be missing, by the estimate: a share.")]
MissingLow = Annotated[
    float | None, _limit("By the low end: fails only if more is surely missing.")
]
MissingHigh = Annotated[
    float | None, _limit("By the high end: passes only if surely no more is missing.")
]
Widest = Annotated[float | None, _limit("Most between the two ends of that interval.")]
Precision = Annotated[float | None, _limit("Least share of right flags, by ear.")]
PrecisionLow = Annotated[float | None, _limit("Its low end: passes only if it is surely as high.")]


@checks_app.command()
def check(
    work: Annotated[
        Path | None, typer.Argument(help="The workspace folder.", metavar="WORK")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Argument(help="JSON file to write; - prints it.", metavar="FILE"),
    ] = None,
    most_missing: Missing = None,
    most_missing_low: MissingLow = None,
    most_missing_high: MissingHigh = None,
    widest_interval: Widest = None,
    least_precision: Precision = None,
    least_precision_low: PrecisionLow = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="A label set: that of the flags written last, else as given. With --scores: the "
            "file of labels."
        ),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="A file of scores, in place of a workspace.")
    ] = None,
    classes: Annotated[Path | None, typer.Option(help="Classes in the order of scores.")] = None,
    clips: Annotated[Path | None, typer.Option(help="Clips in the order of scores.")] = None,
    column: ColumnOption = None,
    separator: SeparatorOption = None,
    zeros: ZerosOption = "implicit",
    scale: Annotated[str, typer.Option(help="auto, logits or probabilities.")] = "auto",
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Every class in the JSON, too.")
    ] = False,
    recipe: RecipeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, or write it to FILE.")
    ] = False,
    details: Details = False,
) -> None:
    """Hold a dataset to limits on its missing labels; exits with 1 if it fails one."""
    from earmark import stages
    from earmark.report import Limits

    limits = Limits(
        most_missing,
        most_missing_low,
        most_missing_high,
        widest_interval,
        least_precision,
        least_precision_low,
    )
    reading = reading_of(column, separator, zeros)
    if scores is None:
        _refuse_file_options(work, classes, clips, reading, scale)
        checked = stages.check_dataset(cast(Path, work), recipe, labels=labels, limits=limits)
        following = _after_check(cast(Path, work), checked)
    else:
        to = _only_file(labels, work, to, recipe)
        checked = stages.check_files(
            cast(str, labels),
            scores,
            limits=limits,
            classes=classes,
            clips=clips,
            scale=one_of("--scale", scale, ("auto", "logits", "probabilities")),
            columns=reading.columns,
            separator=reading.separator,
            zeros=reading.zeros,
        )
        following = f"earmark scan --labels {quoted(labels)} --scores {quoted(scores)}"
    _tell_check(checked, to, as_json, by_class, following, details)
    if not checked.is_passed:
        raise typer.Exit(1)


@checks_app.command()
def doctor(
    work: Work,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what reads all frames: their digests.")
    ] = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Look a workspace over: files, age, locks, versions, room; exits with 1 on a finding."""
    from earmark import stages

    health = stages.examine(work, quick=quick)
    commands = dict.fromkeys(one.command for one in health.findings if one.command)
    busy = [f"now: {health.holder} writes here, and is not done"] if health.holder else []
    tell(
        as_json,
        next(iter(commands), None),
        told=[health.told(), *busy],
        more=[str(one) for one in health.findings],
        details=details,
        **(health.facts() if as_json else {}),
    )
    if not health.is_healthy:
        raise typer.Exit(1)


@checks_app.command()
def diff(
    before: Annotated[str, typer.Argument(help="A file of labels, or a workspace.", metavar="A")],
    after: Annotated[str, typer.Argument(help="The other one.", metavar="B")],
    work: Annotated[
        Path | None,
        typer.Option(help="A workspace: A and B may be names of its label sets, such as given."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV or Parquet file to write.")] = None,
    column: ColumnOption = None,
    separator: SeparatorOption = None,
    zeros: ZerosOption = "implicit",
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 where there is a difference.")
    ] = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Say what changed from one label set to another, class by class, by whom and how likely."""
    from earmark import stages
    from earmark.report import changed_classes, changes_told, labels_told

    reading = reading_of(column, separator, zeros)
    found = stages.compare_labels(before, after, work=work, reading=reading, out=out)
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


@checks_app.command()
def card(
    work: Work,
    out: Annotated[Path, typer.Option(help="Markdown file to write.")] = Path("CARD.md"),
    name: Annotated[str, typer.Option(help="Of the dataset; that of the folder.")] = "",
    licence: Annotated[str, typer.Option(help="Of the dataset: its address or name.")] = "",
    url: Annotated[str, typer.Option(help="Where the dataset is.")] = "",
    citation: Annotated[str, typer.Option(help="How to cite it.")] = "",
    dataset_version: Annotated[str, typer.Option(help="Such as 1.0.0.")] = "",
    labels: Annotated[
        str | None,
        typer.Option(help="A label set; that of the flags written last, else as given."),
    ] = None,
    recipe: RecipeOption = None,
    as_json: AsJson = False,
) -> None:
    """Write the dataset's card: what it is, what is missing in it, and how that is known."""
    from earmark import stages
    from earmark.report import Description, headline_told

    described = Description(name, licence, url, citation, dataset_version)
    written = stages.write_card(work, out, recipe, labels=labels, description=described)
    unsaid = written.contents.description.unsaid
    tell(
        as_json,
        told=[headline_told(written.contents.evidence)],
        more=[f"not said: {', '.join(unsaid)}; each has an option"] if unsaid else [],
        wrote=out,
    )


def _refuse_file_options(
    work: Path | None, classes: Path | None, clips: Path | None, reading: Reading, scale: str
) -> None:
    """Refuse what goes with two files alone, and no workspace at all."""
    from earmark.labels import GUESSED

    if work is None:
        raise EarmarkError(
            "expected a workspace, or two files: --labels FILE --scores FILE; got neither"
        )
    if classes or clips or reading != GUESSED or scale != "auto":
        raise EarmarkError(
            f"{work}: a workspace names its clips and columns itself; leave --classes, --clips, "
            "--column, --separator, --zeros and --scale out"
        )


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
    checked: CheckedDataset,
    to: Path | None,
    as_json: bool,
    by_class: bool,
    following: str,
    details: bool,
) -> None:
    """Write the JSON where it is asked for, and print words where JSON is not."""
    from earmark.report import evidence_told
    from earmark.runs import write_json

    facts = {**checked.facts(by_class=by_class), "next": following}
    is_printed = str(to) == "-" or (as_json and to is None)
    if is_printed:
        print(json.dumps(facts))
        return
    if to is not None:
        write_json(to, facts)
    findings = checked.evidence.findings
    warnings = [f"warning: {warning}" for warning in findings.warnings]
    found = evidence_told(checked.evidence)
    if findings.knowledge.is_enough:  # what is missing comes first, then how sure that is
        data, known, *missing = found
        found = [*missing, known, *warnings, data]
    tell(
        False,
        following,
        told=[one.told() for one in checked.limits],
        more=[*found, *checked.notes],
        details=details,
        wrote=to,
    )


def _after_check(work: Path, checked: CheckedDataset) -> str:
    """Return the next command: listen where nobody did, correct what was heard, or tell of it."""
    from earmark import stages

    if checked.evidence.heard is None:
        has_sound = stages.open_workspace(work).has_sound()
        heard_here = f"earmark review {quoted(work)}"
        return heard_here if has_sound else f"earmark judgements import {quoted(work)} FILE"
    if checked.is_passed or checked.evidence.labels != "given":
        return f"earmark card {quoted(work)}"
    return f"earmark relabel {quoted(work)}"
