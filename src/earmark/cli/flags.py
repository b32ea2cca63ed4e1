"""The verbs that find labels that are likely to be missing: ``scan`` and ``flag``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from earmark.cli.commands import AsJson, Call, Details, offers
from earmark.cli.printing import tell
from earmark.errors import EarmarkError, quoted

if TYPE_CHECKING:
    from earmark.flags import Findings

_NONE_FLAGGED = (
    "Not one label is flagged; ask for more with --discard-percent or --n-flags, or for a lower "
    "--target"
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
        told = {"flags": findings.n_flags, "warnings": list(warnings)}
        return told | ({"notes": list(notes)} if notes else {})
    doubts = [f"warning: {warning}" for warning in warnings]
    first, *rest = findings_told(findings)
    if findings.knowledge.is_enough:  # what was found comes first, then how sure that is
        known, flagged, missing, *implied = rest
        first, rest = flagged, [missing, known, first, *implied]
    return {"told": [first], "more": [*rest, *doubts, *notes]}


def _none_flagged(findings: Findings, where: str) -> EarmarkError:
    """Say what is known, and how labels would be flagged all the same."""
    return EarmarkError(f"{findings.knowledge.told} {_NONE_FLAGGED}{where}")
