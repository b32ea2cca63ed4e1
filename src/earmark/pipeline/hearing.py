"""What is heard and seen of flags, on a page or in a notebook: excerpts and pictures of clips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import FrameStore, UnreadableAudio, is_replaced, read_clip, seen_frames
from earmark.config import FrontEndParams, Recipe
from earmark.datasets import Workspace, any_frames, scored_frames
from earmark.errors import EarmarkError, quoted
from earmark.flags import Findings
from earmark.pipeline.opening import Scored
from earmark.report import (
    N_IN_NOTEBOOK,
    HeardFlag,
    first_to_hear,
    notebook_html,
    unheard,
)
from earmark.scores import ScoreFolder

MOST_SECONDS = 30.0
"""Length of an excerpt: clips are heard whole, unless they are longer."""

_SECONDS_IN_NOTEBOOK = 10.0


def heard_flags(
    workspace: Workspace,
    recipe: Recipe,
    scores: ScoreFolder,
    flags: pl.DataFrame,
    most_seconds: float = MOST_SECONDS,
) -> list[HeardFlag]:
    """Return flags (clip_id, class_id, logit, rank, chance) with what can be heard of them.

    A clip longer than ``most_seconds`` is heard around the patch that scored best, or from its
    start where nobody knows. A clip that cannot be read says why.
    """
    ears = _Ears(workspace, recipe, scores, most_seconds)
    return [ears.heard(row) for row in flags.iter_rows(named=True)]


def shown_flags(findings: Findings, scored: Scored | None) -> str:
    """Return flags as a notebook shows them: the likeliest, with players where there is sound.

    Whatever keeps sounds from being played, the table is shown.
    """
    listed = first_to_hear(findings, N_IN_NOTEBOOK)
    if scored is None:
        return notebook_html(findings, unheard(listed))
    given = (scored.workspace, scored.recipe, scored.whole, listed)
    try:
        heard = heard_flags(*given, most_seconds=_SECONDS_IN_NOTEBOOK)
        return notebook_html(findings, heard, scored.recipe.front_end.sample_rate_hz)
    except (EarmarkError, ImportError, OSError):
        return notebook_html(findings, unheard(listed))


def after_flags(work: Path, has_sound: bool, findings: Findings) -> dict[str, str]:
    """Return what to do with flags, from what it does to its command.

    Where the scores do not know the labels there is nothing to be done with flags.
    """
    if not findings.knowledge.is_enough:
        return {}
    listening = {
        "Judge flags by ear, one key each": f"earmark review {quoted(work)}",
        "How many of the flags are right, by what was heard": f"earmark answers {quoted(work)}",
        "Correct the labels by what was heard": f"earmark relabel {quoted(work)}",
    }
    return (listening if has_sound else {}) | {
        "Write the labels, flagged ones to be ignored": f"earmark export {quoted(work)} labels.csv"
    }


@dataclass(frozen=True)
class _Excerpt:
    """A part of a clip that is heard, or why it is not."""

    waveform: NDArray[np.float32] | None = None
    frames: NDArray[np.floating] | None = None
    best_patch: tuple[int, int] | None = None
    note: str = ""


@dataclass(frozen=True)
class _Ears:
    workspace: Workspace
    recipe: Recipe
    scores: ScoreFolder
    most_seconds: float

    @property
    def front_end(self) -> FrontEndParams:
        return self.recipe.front_end

    def heard(self, row: Mapping[str, Any]) -> HeardFlag:
        clip_id, class_id = row["clip_id"], row["class_id"]
        excerpt = self._excerpt(clip_id, class_id)
        return HeardFlag(
            rank=row["rank"],
            clip_id=clip_id,
            score=row["logit"],
            chance=row["chance"],
            is_missing=self._is_missing(clip_id, class_id),
            waveform=excerpt.waveform,
            frames=excerpt.frames,
            best_patch=excerpt.best_patch,
            class_name=self.workspace.ontology.name(class_id),
            note=excerpt.note,
        )

    def _excerpt(self, clip_id: str, class_id: str) -> _Excerpt:
        clip = self.workspace.clips.row(self._rows[clip_id], named=True)
        best = self._best_patch(clip_id, class_id)
        if clip["audio"] is None:
            note = "no sound file" if self.workspace.has_sound() else ""
            return _Excerpt(None, self._stored_frames(clip_id), best, note)
        first = self._first_frame(best)
        skipped = first * self.front_end.hop_seconds
        try:
            waveform = self._read(clip, skipped)
        except UnreadableAudio as error:
            return _Excerpt(note=f"cannot be played: {error.reason}")
        is_other = self._is_replaced(clip_id, clip["audio"])
        # Frames of the store begin where the clip does, and so serve only where the excerpt does.
        store = None if first or is_other else self._store
        frames = seen_frames(store, clip_id, waveform, self.front_end)
        shown = None if best is None else (best[0] - first, best[1] - first)
        is_part = len(waveform) >= self.most_seconds * self.front_end.sample_rate_hz
        notes = [f"{self.most_seconds:g} s from {_clock(skipped)}"] if is_part else []
        notes += ["its file changed since it was scored"] if is_other else []
        return _Excerpt(waveform, frames, None if is_other else shown, ", ".join(notes))

    def _is_replaced(self, clip_id: str, audio: str) -> bool:
        """Tell whether a clip's sound is not that which frames were made of."""
        row = -1 if self._store is None else int(self._store.rows_of([clip_id])[0])
        place = self.workspace.audio_place(audio)
        return self._store is not None and row >= 0 and is_replaced(place, self._store, row)

    def _read(self, clip: Mapping[str, Any], skipped_seconds: float) -> NDArray[np.float32]:
        start = (clip["start_seconds"] or 0.0) + skipped_seconds
        end = start + self.most_seconds
        if clip["end_seconds"] is not None:
            end = min(end, clip["end_seconds"])
        path = self.workspace.audio_place(clip["audio"])
        return read_clip(path, self.front_end.sample_rate_hz, start, end)

    def _first_frame(self, best: tuple[int, int] | None) -> int:
        """Return the frame at which the excerpt begins, such that it holds the best patch."""
        n_most = round(self.most_seconds / self.front_end.hop_seconds)
        return 0 if best is None or best[1] <= n_most else (sum(best) - n_most) // 2

    def _best_patch(self, clip_id: str, class_id: str) -> tuple[int, int] | None:
        """Return the frames of the patch that scored best; None where it is not known."""
        patch, times = self.scores.best_patch(clip_id, class_id), self._patch_times
        if patch is None or times is None:
            return None
        hop, length = times
        first = round(patch * hop / self.front_end.hop_seconds)
        return first, first + round(length / self.front_end.hop_seconds)

    def _stored_frames(self, clip_id: str) -> NDArray[np.floating] | None:
        """Return the frames of a clip without a sound file, where they are pictures of sound."""
        store = self._store
        if store is None or store.meta.front_end is None:
            return None
        (row,) = store.rows_of([clip_id])
        return None if row < 0 else np.asarray(store.frames(int(row)))

    def _is_missing(self, clip_id: str, class_id: str) -> bool | None:
        truth = self.workspace.truth
        if truth is None:
            return None
        column = self.workspace.ontology.index[class_id]
        return bool(truth.states([self._rows[clip_id]])[0, column] > 0)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {clip_id: row for row, clip_id in enumerate(self.workspace.clips["clip_id"])}

    @cached_property
    def _patch_times(self) -> tuple[float, float] | None:
        """Seconds between the patches that scores speak of, and of one; None: nobody knows."""
        store = scored_frames(self.workspace, self.recipe)
        return None if store is None else store.patch_seconds

    @cached_property
    def _store(self) -> FrameStore | None:
        return any_frames(self.workspace)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
