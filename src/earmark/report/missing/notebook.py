"""Flags as a notebook shows them: a sentence, and a short table of the likeliest with players."""

from __future__ import annotations

from collections.abc import Sequence

from earmark.flags import Findings
from earmark.report.contents import HeardFlag
from earmark.report.missing.scan_page import missing_told, sureness_told
from earmark.report.rendering import flag_sound, render

N_IN_NOTEBOOK = 6
"""Flags that a notebook shows: each brings its sound along, and a notebook should stay small."""


def notebook_html(
    findings: Findings, flags: Sequence[HeardFlag], sample_rate_hz: int = 16_000
) -> str:
    """Return what was found as HTML, with some of its flags; those with a waveform have players."""
    known = findings.knowledge
    flagged = f"{findings.n_flags:,} labels flagged: {findings.policy_told}."
    told = [flagged, sureness_told(findings), missing_told(findings)]
    headline, *more = told if known.is_enough else [known.told, flagged]
    return render(
        "notebook.html",
        headline=headline,
        told=[sentence for sentence in more if sentence],
        flags=flags,
        is_heard=any(flag.waveform is not None or flag.note for flag in flags),
        is_judged=any(flag.is_missing is not None for flag in flags),
        n_more=findings.n_flags - len(flags),
        warnings=findings.warnings,
        sound=flag_sound(sample_rate_hz),
    )
