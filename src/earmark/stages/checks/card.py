"""The card of a dataset: gathered from its workspace, and written as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from earmark.datasets import RelabelledFolder, Workspace, corrected_names
from earmark.errors import short_repr
from earmark.report import (
    CardContents,
    Correction,
    Description,
    MissingEvidence,
    card_markdown,
)
from earmark.runs import read_seal, write_text
from earmark.stages.checks.evidence import gather_evidence
from earmark.stages.opening import RecipeLike, WorkLike, open_workspace


@dataclass(frozen=True)
class WrittenCard:
    """A card, and the file that holds it."""

    path: Path
    contents: CardContents

    __repr__ = short_repr


def write_card(
    work: WorkLike,
    out: str | Path,
    recipe: RecipeLike = None,
    *,
    labels: str | None = None,
    description: Description | None = None,
    day: date | None = None,
) -> WrittenCard:
    """Write what a dataset is and what is missing in it, as Markdown.

    ``labels`` names the label set: that of the flags written last, else the labels as given.
    ``description`` is what only the owner can say, ``day`` the card's date, by default today.
    """
    workspace = open_workspace(work)
    evidence = gather_evidence(workspace, recipe, labels)
    described = description or Description()
    if not described.name:
        described = replace(described, name=workspace.root.resolve().name)
    contents = _contents(workspace, evidence, described, day or datetime.now(UTC).date())
    write_text(out, card_markdown(contents))
    return WrittenCard(Path(out), contents)


def _contents(
    workspace: Workspace, evidence: MissingEvidence, description: Description, day: date
) -> CardContents:
    clips = workspace.clips
    splits = dict(clips["split"].value_counts().iter_rows())
    return CardContents(
        description=description,
        evidence=evidence,
        splits={split: splits[split] for split in ("train", "tune", "eval") if split in splits},
        n_sources=clips["source"].n_unique(),
        n_with_sound=int(clips["audio"].is_not_null().sum()),
        corrections=list(_corrections(workspace)),
        day=day,
    )


def _corrections(workspace: Workspace) -> Iterator[Correction]:
    """Yield the corrected label sets that still hold for the labels of now."""
    for name in corrected_names(workspace):
        noted = read_seal(RelabelledFolder.of(workspace, name).path)
        if noted["original_labels"] != workspace.labels.digest:
            continue
        last = str(noted["last_judgement"])[:10]
        yield Correction(name, len(noted["raters"]), last, noted["outcomes"], noted["n_conflicts"])
