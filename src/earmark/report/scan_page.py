"""What a scan found, told in sentences and as one self-contained page.

Every number in a sentence is computed from the tables. The page needs no network and no other
file; it can be read on a telephone, in the light or in the dark.

A notebook shows a sentence and a short table of the likeliest flags with players.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from earmark.flags import Findings
from earmark.report.numerals import is_known
from earmark.report.rendering import (
    GLOSSARY,
    HeardFlag,
    first_to_hear,
    fit_sounds,
    flag_picture,
    flag_sound,
    linker,
    listened_html,
    render,
)

if TYPE_CHECKING:
    from earmark.review import Gains


_N_CLASSES_SHOWN, _N_POSITIVES_SHOWN = 8, 6
"""Classes whose lowest positives the page lists, and positives of each."""

_N_FLAGS_FIRST = 12
"""Flags that are listed at once; the others are folded below them."""

_WORDS = ("explicit", "implicit", "flag", "AUC")
"""Words that the page explains."""

_HEADINGS = (
    ("Class", "text"), ("Missing", "number"), ("Flags", "number"), ("Positives", "number"),
    ("Negatives", "number"), ("Implicit", "number"), ("AUC", "number"),
)  # fmt: skip

_TITLES = "Labels that are likely to be missing", "Listen to these first"
_TITLES_OF_UNKNOWING = (
    "The highest-scored labels, which need not be missing",
    "Some of the highest-scored labels, in no order of likelihood",
)
"""Headings of the page and of its list of flags; where the scores do not know the labels."""


def findings_told(findings: Findings) -> list[str]:
    """Say in a few sentences what was found, then how sure that is, then what was read.

    Scores that do not know the labels come first. Warnings are left out.
    """
    told = [findings.estimates.describe(), findings.knowledge.told]
    if not findings.knowledge.is_enough:
        told.reverse()
    flagged = f"Flagged: {findings.policy_told}."
    return [each for each in (*told, flagged, findings.data_told, findings.implied_told) if each]


def by_missing(findings: Findings) -> pl.DataFrame:
    """Return the classes, those first in which most labels are missing, else most are flagged.

    ``n_missing`` is a class's part of the total; null without a total that means anything.
    """
    estimates = findings.estimates
    totals = {} if estimates.is_vague else estimates.class_totals
    n_missing = pl.col("class_id").replace_strict(totals, default=None, return_dtype=pl.Float64)
    classes = findings.classes.with_columns(n_missing=n_missing)
    return classes.sort("n_missing", "n_flags", descending=True, nulls_last=True)


def scan_html(
    findings: Findings,
    provenance: Mapping[str, str],
    heard: Sequence[HeardFlag] | None = None,
    next_commands: Mapping[str, str] | None = None,
    sample_rate_hz: int = 16_000,
    gains: Gains | None = None,
) -> str:
    """Return the page as HTML.

    ``heard`` are the flags of :func:`~earmark.report.rendering.first_to_hear` with their sounds;
    without them the page lists the same flags by name. ``next_commands`` say what to do next, from
    what it does to the command, and ``gains`` what listening found.
    """
    sound = flag_sound(sample_rate_hz)
    listed = unheard(first_to_hear(findings)) if heard is None else heard
    listed = fit_sounds(listed, sound)
    known = findings.knowledge
    headline, *told = findings_told(findings)
    if known.is_enough and gains is not None:
        headline = gains.describe()
    title, flags_title = _TITLES if known.is_enough else _TITLES_OF_UNKNOWING
    classes = by_missing(findings)
    has_missing = bool(classes["n_missing"].is_not_null().any())
    return render(
        "scan.html",
        title=title,
        flags_title=flags_title,
        headline=headline,
        told=told,
        warnings=findings.warnings,
        headings=_HEADINGS if has_missing else _HEADINGS[:1] + _HEADINGS[2:],
        classes=classes.to_dicts(),
        has_missing=has_missing,
        flags=listed,
        flags_told=_flags_told(listed),
        next=next_commands or {},
        n_first=_N_FLAGS_FIRST,
        glossary=[term for term in GLOSSARY if term.name in _WORDS],
        link=linker(_WORDS),
        picture=flag_picture,
        sound=sound,
        listened=listened_html(gains),
        wrong=_lowest_positives(findings),
        facts=provenance,
    )


_Lists = list[tuple[dict[str, Any], list[dict[str, Any]]]]
"""Classes, each with some of its labels."""


def unheard(listed: pl.DataFrame) -> list[HeardFlag]:
    """Return flags of :func:`~earmark.report.rendering.first_to_hear` without their sounds."""
    return [
        HeardFlag(
            rank=row["rank"],
            clip_id=row["clip_id"],
            score=row["logit"],
            chance=row["chance"],
            class_name=row["name"],
        )
        for row in listed.iter_rows(named=True)
    ]


def _flags_told(listed: Sequence[HeardFlag]) -> str:
    """Say by what the flags of the page were chosen."""
    few = "only a few of each class are listed here."
    if any(is_known(flag.chance) for flag in listed):
        return (
            "The likeliest of the flags first. Chance: how likely it is that the class is there "
            f"though nobody said so, as estimated; {few}"
        )
    return f"By rank within their class, because no chance is known; {few}"


def _lowest_positives(findings: Findings) -> _Lists:
    """List the lowest positives of the classes in which positives stand out most."""
    below = findings.wrong_positives.filter(pl.col("rank") == 1).join(
        findings.classes.select("class_id", "auc"), on="class_id", maintain_order="left"
    )
    worst = below.sort("auc", descending=True, nulls_last=True)
    return _lists(worst, findings.wrong_positives)


def _lists(classes: pl.DataFrame, labels: pl.DataFrame) -> _Lists:
    return [
        (row, labels.filter(class_id=row["class_id"]).head(_N_POSITIVES_SHOWN).to_dicts())
        for row in classes.head(_N_CLASSES_SHOWN).to_dicts()
    ]


N_IN_NOTEBOOK = 6
"""Flags that a notebook shows: each brings its sound along, and a notebook should stay small."""


def notebook_html(
    findings: Findings, flags: Sequence[HeardFlag], sample_rate_hz: int = 16_000
) -> str:
    """Return what was found as HTML, with some of its flags; those with a waveform have players."""
    headline, second, flagged, *_ = findings_told(findings)
    return render(
        "notebook.html",
        headline=headline,
        told=[flagged] if findings.knowledge.is_enough else [second, flagged],
        flags=flags,
        is_heard=any(flag.waveform is not None or flag.note for flag in flags),
        is_judged=any(flag.is_missing is not None for flag in flags),
        n_more=findings.n_flags - len(flags),
        warnings=findings.warnings,
        sound=flag_sound(sample_rate_hz),
    )
