"""The sound and the picture of a clip, made when first asked for and kept for a while."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import (
    PLAYED_HZ,
    FrameStore,
    UnreadableAudio,
    is_replaced,
    picture_png,
    read_clip,
    seen_frames,
    wav_bytes,
)
from earmark.datasets import Workspace
from earmark.errors import EarmarkWarning
from earmark.runs import FrontEndParams

_N_KEPT = 48
"""Sounds and pictures in memory: those on the page, and those just left."""


@dataclass(frozen=True, eq=False)
class Media:
    """Makes what is heard and seen of a workspace's clips.

    ``sound(clip_id)`` returns a WAV and ``picture(clip_id)`` a PNG; both raise
    :class:`~earmark.audio.decode.UnreadableAudio` with the reason where there is nothing to hear.
    """

    workspace: Workspace
    front_end: FrontEndParams
    store: FrameStore | None

    @cached_property
    def sound(self) -> Callable[[str], bytes]:
        """Return the WAV of a clip."""
        return lru_cache(_N_KEPT)(lambda clip_id: wav_bytes(self._waveform(clip_id, PLAYED_HZ)))

    @cached_property
    def picture(self) -> Callable[[str], bytes]:
        """Return the PNG of a clip."""
        return lru_cache(_N_KEPT)(self._draw)

    @cached_property
    def seconds(self) -> Callable[[str], float | None]:
        """Return how long a clip is; None where there is nothing to hear."""
        return lru_cache(None)(self._measure)

    def _measure(self, clip_id: str) -> float | None:
        clip = self.workspace.clips.row(self._rows[clip_id], named=True)
        if clip["end_seconds"] is not None:
            return float(clip["end_seconds"] - (clip["start_seconds"] or 0))
        try:
            return len(self._waveform(clip_id, PLAYED_HZ)) / PLAYED_HZ
        except UnreadableAudio:
            return None

    def _draw(self, clip_id: str) -> bytes:
        waveform = self._waveform(clip_id, self.front_end.sample_rate_hz)
        store = None if self._is_replaced(clip_id) else self.store
        return picture_png(seen_frames(store, clip_id, waveform, self.front_end))

    def _is_replaced(self, clip_id: str) -> bool:
        """Tell whether a clip's sound is not that which its frames were made of; say so, too."""
        row = -1 if self.store is None else int(self.store.rows_of([clip_id])[0])
        if self.store is None or row < 0:
            return False
        place = self.workspace.audio_place(self.workspace.clips["audio"][self._rows[clip_id]])
        is_other = is_replaced(place, self.store, row)
        if is_other:
            told = f"{place}: changed since it was scored; raters hear what is there now"
            warnings.warn(told, EarmarkWarning, stacklevel=2)
        return is_other

    def _waveform(self, clip_id: str, rate_hz: int) -> NDArray[np.float32]:
        clip = self.workspace.clips.row(self._rows[clip_id], named=True)
        if clip["audio"] is None:
            raise UnreadableAudio(self.workspace.root, "no audio file is given for it")
        path = self.workspace.audio_place(clip["audio"])
        return read_clip(path, rate_hz, clip["start_seconds"], clip["end_seconds"])

    @cached_property
    def _rows(self) -> dict[str, int]:
        return dict(self.workspace.clips.select("clip_id", pl.int_range(pl.len())).iter_rows())
