"""The commands that find missing labels: ``find``, ``scan`` and ``flag``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import AsJson, Call, Details, offers
from earmark.cli.models import describe_teacher
from earmark.cli.printing import tell
from earmark.cli.review import open_page
from earmark.errors import EarmarkError, quoted

if TYPE_CHECKING:
    from earmark.flags import Findings
    from earmark.pipeline import FoundMissing

_NONE_FLAGGED = (
    "Not one label is flagged; ask for more with --discard-percent or --n-flags, or for a lower "
    "--target"
)


@offers("pipeline.find")
def find(
    call: Call,
    no_review: Annotated[
        bool, typer.Option("--no-review", help="Stop before the listening page.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Of the page; 0: any.")] = 8321,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Find missing labels in a folder of sound, and listen to them."""
    found = call()
    root, is_worth_hearing = found.workspace.root, found.is_worth_hearing
    if as_json:
        _tell_found_json(found)
        return
    warnings = [f"warning: {each}" for each in found.flagged.findings.warnings]
    *how_good, missing = found.lines()
    told: dict[str, Any] = {
        "told": [missing, *found.advice()],
        "more": [*reversed(how_good), *warnings, *found.read_told()],
        "details": details,
    }
    if no_review or not is_worth_hearing:
        tell(False, next_command=_after_find(found), **told, wrote=root)
        return
    open_page(root, port=port, no_open=no_open, before=told)


def _after_find(found: FoundMissing) -> str:
    verb = "review" if found.is_worth_hearing else "report"
    return f"earmark {verb} {quoted(found.workspace.root)}"


def _tell_found_json(found: FoundMissing) -> None:
    tell(
        True,
        next_command=_after_find(found),
        wrote=found.workspace.root,
        clips=len(found.workspace.clips),
        flags=found.flagged.findings.n_flags,
        missing=found.flagged.findings.estimates.facts(),
        notes=found.read_told(),
        warnings=list(found.flagged.findings.warnings),
        **describe_teacher(found.taught, True),
    )


@offers("pipeline.scan")
def scan(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Find missing labels from labels and your model's scores, without audio."""
    result, out, sounds = call(), call["out"], call["sounds"]
    facts = _told(as_json, result.findings, result.notes)
    if not result.n_flags:
        raise _none_flagged(result.findings, f"; what is known is in {out / 'index.html'}")
    is_heard = sounds is not None and result.findings.knowledge.is_enough
    tell(
        as_json,
        next_command=f"open {quoted(out / 'index.html')} in a browser",
        then=f"earmark review {quoted(out)}" if is_heard else None,
        details=details,
        wrote=out,
        **facts,
    )


@offers("pipeline.write_flags")
def flag(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Flag labels that are likely missing; write the paper's 18 thresholds."""
    from earmark import pipeline

    flagged, work = call(), call["work"]
    facts = _told(as_json, flagged.findings)
    if (
        not flagged.findings.n_flags and call["labels"] == "given"
    ):  # corrected labels may leave none
        raise _none_flagged(flagged.findings, f" ({flagged.path})")
    is_known = flagged.findings.knowledge.is_enough
    export = f"earmark export {quoted(work)} labels.csv"
    following, then = f"earmark report {quoted(work)}", export if is_known else None
    if not flagged.findings.n_flags:
        following, then = export, None
    elif is_known and pipeline.open_workspace(work).has_sound():
        then = f"earmark review {quoted(work)}"
    tell(as_json, following, then=then, details=details, wrote=flagged.path, **facts)


def _told(as_json: bool, findings: Findings, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return what was found and what is doubtful, to be printed, or for programs."""
    from earmark.report import findings_told

    warnings = findings.warnings
    if as_json:
        told: dict[str, Any] = {"flags": findings.n_flags, "warnings": list(warnings)}
        told["missing"] = findings.estimates.facts()
        return told | ({"notes": list(notes)} if notes else {})
    doubts = [f"warning: {warning}" for warning in warnings]
    first, *rest = findings_told(findings)
    return {"told": [first], "more": [*rest, *doubts, *notes]}


def _none_flagged(findings: Findings, where: str) -> EarmarkError:
    """Say what is known, and how labels would be flagged all the same."""
    return EarmarkError(f"{findings.knowledge.told} {_NONE_FLAGGED}{where}")
