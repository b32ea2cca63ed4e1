"""The card of a dataset in Markdown: what it is, what is missing in it, and how that is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated

import polars as pl

from earmark.errors import counted
from earmark.flags import LEAST_R, MOST_R
from earmark.options import Option
from earmark.report.evidence import MissingEvidence, heard_told
from earmark.report.numerals import is_known
from earmark.report.scan_page import by_missing
from earmark.text import markdown

_N_CLASSES_SHOWN = 10


@dataclass(frozen=True)
class Description:
    """What only its owner can say of a dataset; empty where it was not said."""

    name: Annotated[str, Option("card: of the dataset; that of the folder.")] = ""
    licence: Annotated[str, Option("card: of the dataset, its address or name.")] = ""
    url: Annotated[str, Option("card: where the dataset is.")] = ""
    citation: Annotated[str, Option("card: how to cite it.")] = ""
    version: Annotated[str, Option("card: such as 1.0.0.", "--dataset-version")] = ""

    @property
    def unsaid(self) -> list[str]:
        """What those who publish a dataset should say, and was not."""
        return [name for name, text in vars(self).items() if not text]


@dataclass(frozen=True)
class Correction:
    """A label set that raters corrected: by how many, until when, and what became of labels."""

    name: str
    n_raters: int
    last: str
    outcomes: Mapping[str, int]
    n_conflicts: int


@dataclass(frozen=True)
class CardContents:
    """What the card of a dataset is made of.

    ``splits`` has the number of clips in each, ``n_sources`` counts recordings, and ``day`` is the
    card's date.
    """

    description: Description
    evidence: MissingEvidence
    splits: Mapping[str, int]
    n_sources: int
    n_with_sound: int
    corrections: Sequence[Correction]
    day: date

    @property
    def n_clips(self) -> int:
        """Clips of all splits."""
        return sum(self.splits.values())


def card_markdown(contents: CardContents) -> str:
    """Return the card as Markdown."""
    parts = [
        f"# {markdown(contents.description.name)}",
        markdown(contents.evidence.estimates.describe()),
        "## The dataset",
        _rows_of(_dataset_rows(contents)),
        LABELS_TOLD,
        "## Missing labels",
        _listed(evidence_parts(contents.evidence)),
        "## Where most is missing",
        *_worst_parts(contents.evidence),
        "## Corrections",
        *_correction_parts(contents.corrections),
        "## Doubts",
        _listed(doubts_told(contents.evidence)) or "None.",
        "## Made from",
        _rows_of({**contents.evidence.origin, "date": contents.day.isoformat()}),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


LABELS_TOLD = (
    "A label is *explicit* where a person was asked whether the class is in the clip (a positive "
    "or a negative), and *implicit* where nobody was. Implicit labels are usually taken as "
    "negatives; those of classes that are in the clip all the same are *missing*."
)


def evidence_parts(evidence: MissingEvidence) -> list[str]:
    """Say by what the missing labels are known, which labels are flagged, and who listened."""
    whose = "" if evidence.labels == "given" else "All numbers are about the labels as given."
    flagged = f"Flagged: {evidence.findings.policy_told}."
    told = [_teacher_told(evidence), flagged, heard_told(evidence), whose]
    return [sentence for sentence in told if sentence]


def _teacher_told(evidence: MissingEvidence) -> str:
    """Say whose scores they are, and how well they know the labels."""
    auc, teacher = evidence.findings.knowledge.median_auc, evidence.origin.get("teacher", "scores")
    known = f": AUC {auc:.2f} in the median class (0.5 is chance)" if is_known(auc) else ""
    doubt = "" if evidence.findings.knowledge.is_enough else ". They do not know the labels"
    return f"By {teacher}{known}{doubt}."


def doubts_told(evidence: MissingEvidence) -> list[str]:
    """List what an estimate supposes, and what was found doubtful."""
    supposed = (
        f"Before people have listened, the numbers suppose that for each given label {LEAST_R:g} "
        f"to {MOST_R:g} are missing."
    )
    # Advice on options is for the owner, who has read it on the terminal.
    warnings = (each for each in evidence.findings.warnings if "--" not in each)
    return [*([] if evidence.estimates.n_answers else [supposed]), *warnings]


def correction_told(one: Correction) -> str:
    """Say what raters changed in a corrected label set."""
    became = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in one.outcomes.items() if n)
    return (
        f"{one.name}: by {counted(one.n_raters, 'rater')}, until {one.last}. Implicit labels that "
        f"were heard became: {became or 'nothing else'}. Explicit labels that raters contradict, "
        f"left as they were: {one.n_conflicts:,}."
    )


def _dataset_rows(contents: CardContents) -> dict[str, str]:
    classes, said = contents.evidence.findings.classes, contents.description
    splits = ", ".join(f"{name} {n:,}" for name, n in contents.splits.items())
    own = {
        "version": said.version,
        "licence": said.licence,
        "address": said.url,
        "cite": said.citation,
    }
    return {
        **{name: text for name, text in own.items() if text},
        "clips": f"{contents.n_clips:,} ({splits}), {contents.n_with_sound:,} with sound",
        "recordings": f"{contents.n_sources:,}",
        "classes": f"{len(classes):,}",
        "label set": contents.evidence.labels,
        "explicit positives": f"{classes['n_positives'].sum():,}",
        "explicit negatives": f"{classes['n_negatives'].sum():,}",
        "implicit labels": f"{classes['n_implicit'].sum():,}",
    }


def _worst_parts(evidence: MissingEvidence) -> list[str]:
    known = by_missing(evidence.findings).filter(pl.col("n_missing") > 0)
    if known.is_empty():
        return [markdown(evidence.estimates.describe_total())]
    rows = [
        [str(row["name"]), f"{row['n_missing']:,.1f}", f"{row['n_positives']:,}"]
        for row in known.head(_N_CLASSES_SHOWN).iter_rows(named=True)
    ]
    more = len(known) - len(rows)
    return [
        "Each class's part of the labels that are missing in all.",
        _table(["class", "missing", "positives"], rows),
        f"{more:,} more classes are not listed." if more else "",
    ]


def _correction_parts(corrections: Sequence[Correction]) -> list[str]:
    if not corrections:
        return ["None: these are the labels as they were given."]
    return [_listed(map(correction_told, corrections))]


def _rows_of(facts: Mapping[str, str]) -> str:
    return _table(["", ""], [[name, text] for name, text in facts.items()])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [[markdown(text) for text in line] for line in (header, *rows)]
    lines.insert(1, ["---"] * len(header))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _listed(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {markdown(sentence)}" for sentence in sentences)
