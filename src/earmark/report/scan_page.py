"""What a scan found, told in sentences and as one self-contained page.

Every number in a sentence is computed from the tables. The page needs no network and no other
file; it can be read on a telephone, in the light or in the dark.

A notebook shows a sentence and a short table of the likeliest flags with players.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from earmark.errors import counted
from earmark.flags import ANSWERS_MORE, VAGUE, Findings
from earmark.report.numerals import is_known, rounded
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
    ("Class", "text"), ("Missing (90 % interval)", "number"), ("Share missing", "bar"),
    ("At most", "number"), ("Flags", "number"), ("Positives", "number"), ("Negatives", "number"),
    ("Implicit", "number"), ("AUC", "number"),
)  # fmt: skip

_TITLES = "Labels that are likely to be missing", "Listen to these first"
_TITLES_OF_UNKNOWING = (
    "The highest-scored labels, which need not be missing",
    "Some of the highest-scored labels, in no order of likelihood",
)
"""Headings of the page and of its list of flags; where the scores do not know the labels."""


def missing_told(findings: Findings) -> str:
    """Say how many labels are missing in all, and what listening would add.

    An interval that is too wide for its middle to mean anything is given by its ends.
    """
    classes = findings.classes
    known = classes.filter(pl.col("n_missing").is_not_null())
    if known.is_empty() or findings.total is None:
        return (
            "How many labels are missing cannot be estimated: not one of the "
            f"{len(classes):,} classes has enough positives that the scores know."
        )
    lowest, middle, highest = findings.total
    low, total, high = rounded(lowest), rounded(middle), rounded(highest)
    n_known, n_all = len(known), len(classes)
    where = f"all {n_all:,} classes" if n_known == n_all else (
        f"the {n_known:,} of {n_all:,} classes that can be estimated"
    )  # fmt: skip
    beside = f"beside {known['n_positives'].sum():,} positives, in {where}"
    reach = findings.reach_heard
    narrower = ""
    if reach is not None and 2 * reach < 0.8 * (highest - lowest):
        narrower = (
            f" {ANSWERS_MORE} {'more ' if findings.is_heard else ''}answers by ear would narrow it "
            f"to about ± {rounded(reach)}."
        )
    if highest > VAGUE * lowest:
        return f"Between {low} and {high} labels are missing {beside}.{narrower}"
    by = "by ear, " if findings.is_heard else ""
    return (
        f"About {total} labels are missing ({by}90 % interval {low} to {high}) {beside}.{narrower}"
    )


def findings_told(findings: Findings) -> list[str]:
    """Say in a few sentences what was found and how sure that is, without the warnings.

    Scores that do not know the labels come first, and nothing is made of them.
    """
    flagged = f"{findings.n_flags:,} labels flagged: {findings.policy_told}."
    known = findings.knowledge
    told = [
        findings.data_told,
        known.told,
        f"{flagged} {sureness_told(findings)}".strip(),
        missing_told(findings) if known.is_enough else "",
        findings.implied_told,
    ]
    if not known.is_enough:
        told[:2] = known.told, findings.data_told
    return [sentence for sentence in told if sentence]


def sureness_told(findings: Findings) -> str:
    """Say how many of the flags are missing labels, going by their chances."""
    n_expected = findings.flag_table.n_expected
    if n_expected is None:
        return ""
    about = rounded(n_expected)
    if findings.n_right is None:
        return f"By their chances about {about} of them are right."
    low, high = (rounded(end) for end in findings.n_right)
    by = "what was heard" if findings.is_heard else "the scores"
    return f"Going by {by}, about {about} of them are right ({low} to {high})."


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
    headline = _headline(findings)
    title, flags_title = _TITLES if known.is_enough else _TITLES_OF_UNKNOWING
    classes = [_shown(row) for row in _by_missing(findings.classes).to_dicts()]
    return render(
        "scan.html",
        title=title,
        flags_title=flags_title,
        headline=headline,
        told=[sentence for sentence in _found_first(findings) if sentence != headline],
        warnings=findings.warnings,
        headings=_HEADINGS,
        classes=classes,
        has_vague=any(row["is_vague"] for row in classes),
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


def _headline(findings: Findings) -> str:
    """Say the one thing that the page says first: how many are missing, else how many look so."""
    if not findings.knowledge.is_enough:
        return findings.knowledge.told
    is_counted = findings.classes["n_missing"].is_not_null().any()
    if is_counted or not findings.n_flags:
        return missing_told(findings)
    n_flags = counted(findings.n_flags, "label looks", "labels look")
    return f"{n_flags} missing. {sureness_told(findings)}".strip()


def _found_first(findings: Findings) -> list[str]:
    """Return what was found, then how sure that is, then what was read."""
    first, *rest = findings_told(findings)
    if not findings.knowledge.is_enough:
        return [first, *rest]
    known, *found = rest
    return [*found, known, first]


def _by_missing(classes: pl.DataFrame) -> pl.DataFrame:
    """Sort by ``order``: the number of missing labels, or the least that it may be.

    Where the scores do not tell the number (``is_vague``) only its interval is of use.
    """
    is_vague = (pl.col("method") == "expectation").fill_null(False) & pl.col("low").is_not_null()
    order = pl.when("is_vague").then("low").otherwise("n_missing")
    return (
        classes.with_columns(is_vague=is_vague)
        .with_columns(order=order)
        .sort("order", "n_flags", descending=True, nulls_last=True)
    )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Add the missing labels' share of all positives, known and missing, where it is known."""
    n_missing = row["n_missing"]
    if n_missing is None or row["is_vague"]:
        return row
    return row | {"share": n_missing / max(n_missing + row["n_positives"], 1)}


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
