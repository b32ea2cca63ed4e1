"""A workspace's answers into a file of another program, and such a file into answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import polars as pl

from earmark.datasets import Workspace, scored_frames, whole_scores
from earmark.errors import EarmarkError, EarmarkWarning, counted
from earmark.review.judgements import Judgement
from earmark.review.peaks import best_peaks
from earmark.review.selections.formats import SelectionFormat, read_selections, write_selections
from earmark.review.selections.heard import Span, answers_of, make_selections
from earmark.review.selections.sound_files import SoundFiles
from earmark.runs import Recipe, is_finished
from earmark.scores import ScoreFolder


def export_selections(
    workspace: Workspace,
    recipe: Recipe,
    current: pl.DataFrame,
    path: str | Path,
    written_as: SelectionFormat,
) -> int:
    """Write where raters heard classes, by their current answers; return how many selections.

    Labels of which nobody knows when they are heard, nor how long the clip is, are left out, and
    counted in a warning.
    """
    files = SoundFiles(workspace)
    known = current.filter(pl.col("clip_id").is_in(workspace.clips["clip_id"].implode()))
    teachers = _teachers_spans(workspace, recipe, files)
    selections, n_timeless = make_selections(files, known, teachers)
    if selections.is_empty():
        raise EarmarkError(
            f"{workspace.root}: there is nothing to write: {counted(len(known), 'answer')} call no "
            "label present whose time is known; the answers themselves are written as CSV"
        )
    front_end = recipe.front_end
    n_written = write_selections(
        path,
        written_as,
        selections,
        files,
        workspace.ontology,
        (front_end.low_hz, front_end.high_hz),
        workspace.root.absolute().name,
    )
    n_left_out = n_timeless + len(selections) - n_written
    if n_left_out:
        warnings.warn(
            f"{counted(n_left_out, 'label')} left out: their sound files cannot be read, so nobody "
            "knows how long they are",
            EarmarkWarning,
            stacklevel=2,
        )
    return n_written


def import_selections(
    workspace: Workspace,
    path: str | Path,
    written_as: SelectionFormat,
    at: datetime,
    rater: str = "imported",
) -> list[Judgement]:
    """Return the answers "present" that the selections of a file or folder stand for."""
    found = read_selections(path, written_as)
    return answers_of(found, SoundFiles(workspace), workspace.ontology, at, rater)


def _teachers_spans(
    workspace: Workspace, recipe: Recipe, files: SoundFiles
) -> Callable[[str, str], Span | None]:
    """Return a function that gives the best patch of a label; None where nobody knows it."""
    folder = workspace.scores_folder(recipe.scores_name)
    if not is_finished(folder):
        return lambda clip_id, class_id: None  # noqa: ARG005
    scores = whole_scores(workspace, ScoreFolder.open(folder))
    peaks = best_peaks(recipe, scores, scored_frames(workspace, recipe), files.seconds)
    return lambda clip_id, class_id: next(iter(peaks.spans(clip_id, class_id)), None)
