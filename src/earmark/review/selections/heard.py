"""Answers into selections, and selections into answers.

A label is written where the raters' votes call it present. Its span is the one that raters set;
where nobody did, the teacher's best patch, and where that is not known either, the whole clip.
Spans of one label that overlap, of one rater or of several, are written as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

from earmark.datasets import PAIR
from earmark.errors import EarmarkError, counted
from earmark.labels import Ontology
from earmark.review.judgement_files import content_id
from earmark.review.judgements import Judgement, combine_votes
from earmark.review.queues.queue import item_id
from earmark.review.selections.sound_files import SoundFiles
from earmark.runs import digest

Span = tuple[float, float]
"""Start and end in seconds."""

SELECTION_SCHEMA = pl.Schema(
    {
        "clip_id": pl.String(),
        "class_id": pl.String(),
        "file": pl.String(),
        "start": pl.Float64(),
        "end": pl.Float64(),
        "span": pl.String(),
        "raters": pl.String(),
        "at": pl.String(),
    }
)
"""Start and end are seconds of the file; ``span`` says whose they are: rater, teacher or clip."""

_TOLERANCE_SECONDS = 0.002
"""A selection that leaves out no more of a clip's start and end is about the whole clip."""

_LEAST_OVERLAP_SECONDS = 0.1
"""A selection that reaches into a clip by less, and with less than half of it, is not about it."""


@dataclass(frozen=True)
class Selection:
    """A stretch of a sound file as another program wrote it; ``where`` it stood, for messages."""

    where: str
    file: str
    label: str
    start: float
    end: float
    clip: str | None = None
    """The clip that was meant, where the file says it: its name, or its id in AOEF."""
    is_set: bool = True
    """Whether a person set the span: it is not the teacher's, nor just the whole clip's."""
    raters: tuple[str, ...] = ()


def make_selections(
    files: SoundFiles, current: pl.DataFrame, teachers: Callable[[str, str], Span | None]
) -> tuple[pl.DataFrame, int]:
    """Return the labels that current answers call present, and how many of them have no times.

    ``teachers`` gives the part of a clip in which the teacher hears a class, if it is known. A
    label has no times where nobody knows a part of the clip, nor how long the clip is.
    """
    heard = combine_votes(current, PAIR).filter(answer="present").select(*PAIR, "at")
    said = current.filter(answer="present").group_by(PAIR).agg("span_start", "span_end", "rater")
    rows: list[tuple[Any, ...]] = []
    n_timeless = 0
    for clip_id, class_id, at, *said_of in heard.join(said, on=PAIR).iter_rows():
        starts, ends, names = said_of
        raters = ",".join(sorted(set(names)))
        set_spans = [span for span in zip(starts, ends, strict=True) if span[0] is not None]
        spans, whose = _merged(set_spans), "rater"
        if not spans:
            spans, whose = _unmarked(files, clip_id, teachers(clip_id, class_id))
        n_timeless += not spans
        for start, end in spans:
            first = files.bounds(clip_id)[0]
            place = (files.file_of(clip_id), first + start, first + end)
            rows.append((clip_id, class_id, *place, whose, raters, at))
    table = pl.DataFrame(rows, SELECTION_SCHEMA, orient="row")
    return table.sort("file", "start", "end", "class_id"), n_timeless


def _unmarked(files: SoundFiles, clip_id: str, best: Span | None) -> tuple[list[Span], str]:
    """Return the span of a label that no rater marked, if one is known, and whose it is."""
    seconds = files.seconds(clip_id)
    if best is not None and (seconds is None or best[0] < seconds):
        # The last patch of a clip may reach beyond its end.
        return [(best[0], best[1] if seconds is None else min(best[1], seconds))], "teacher"
    return ([] if seconds is None else [(0.0, seconds)]), "clip"


def _merged(spans: list[Span]) -> list[Span]:
    """Return spans of which none overlap; those that merely touch stay apart.

    >>> _merged([(3, 4), (0, 2), (1, 3)])
    [(0, 3), (3, 4)]
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def answers_of(
    selections: Iterable[Selection],
    files: SoundFiles,
    ontology: Ontology,
    at: datetime,
    rater: str = "imported",
) -> list[Judgement]:
    """Return the answers "present" that selections stand for, all of them or none.

    A selection is about every clip of its file that it reaches into, and its span is cut there. The
    whole of a clip, and a point in it, are answers without a span. ``rater`` answers where the file
    names nobody. Several selections of a class in a clip are several items, so that none of them
    takes another's place. A file or class that is not known is refused.
    """
    found: dict[tuple[str, str, str, Span | None], None] = {}
    for one in selections:
        try:
            class_id = ontology.find(one.label)
            places = list(_places(one, files))
        except EarmarkError as error:
            raise EarmarkError(f"{one.where}: {error}; nothing was imported") from None
        for clip_id, span in places:
            for name in one.raters or (rater,):
                found[name, clip_id, class_id, span] = None
    answers, seen = [], set()
    for name, clip_id, class_id, span in found:
        is_first = (name, clip_id, class_id) not in seen
        seen.add((name, clip_id, class_id))
        item = item_id(clip_id, class_id) if is_first else digest(clip_id, class_id, span)
        answers.append(_answer(name, item, clip_id, class_id, span, at))
    return answers


def _answer(
    rater: str, item: str, clip_id: str, class_id: str, span: Span | None, at: datetime
) -> Judgement:
    start, end = span or (None, None)
    return Judgement(
        id=content_id(rater, item, "present", start, end),
        at=at,
        rater=rater,
        item=item,
        clip_id=clip_id,
        class_id=class_id,
        answer="present",
        span_start=start,
        span_end=end,
    )


def _places(one: Selection, files: SoundFiles) -> Iterator[tuple[str, Span | None]]:
    """Yield the clips that a selection is about, with its span in each."""
    if not 0 <= one.start <= one.end:
        raise EarmarkError(
            f"from {one.start:g} s to {one.end:g} s is no part of a file: expected seconds from "
            "the file's start, the end not before the start"
        )
    known = files.clip(one.clip)
    clips = files.find(one.file) if known is None else [known]
    placed = [(clip_id, _inside(one, *files.bounds(clip_id))) for clip_id in clips]
    inside = [(clip_id, span) for clip_id, span in placed if span is not None]
    if not inside:
        parts = counted(len(clips), "clip")
        raise EarmarkError(
            f"no clip of {one.file!r} ({parts}) holds {one.start:g} s to {one.end:g} s; are the "
            "times seconds from the file's start?"
        )
    for clip_id, (start, end) in inside:
        first, last = files.bounds(clip_id)
        is_whole = last is not None and end - start >= last - first - _TOLERANCE_SECONDS
        has_span = one.is_set and end > start and not is_whole
        yield clip_id, (start, end) if has_span else None


def _inside(one: Selection, first: float, last: float | None) -> Span | None:
    """Return a selection's span from the clip's start, cut at its ends; None if it is elsewhere."""
    start = max(one.start, first)
    end = one.end if last is None else min(one.end, last)
    least = min(_LEAST_OVERLAP_SECONDS, (one.end - one.start) / 2)
    if end - start < least:
        return None
    return round(start - first, 3), round(end - first, 3)
