"""The sounds, pictures and class cards that the page may have, under names that give nothing away.

The sound and the picture of a clip are made when they are first asked for, and cached for a while.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

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
from earmark.config import FrontEndParams
from earmark.datasets import Workspace
from earmark.errors import EarmarkError, EarmarkWarning
from earmark.labels import Ontology
from earmark.review.class_card import Card, Cards, search_classes
from earmark.review.peaks import Peaks
from earmark.scores import ScoreFolder, scored_labels
from earmark.storage import digest

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


_MOST_FOUND = 12
"""Classes that a search returns."""


class Unknown(EarmarkError):  # noqa: N818 - named for what it is
    """There is no such block, item or clip."""


@dataclass(frozen=True, eq=False)
class ClipRegistry:
    """The sounds of a review by the names that the page knows, and cards of its classes.

    ``in_queue`` (clip_id, class_id) are labels to be judged, which are no examples.
    """

    workspace: Workspace
    scores: ScoreFolder
    peaks: Peaks
    media: Media
    in_queue: pl.DataFrame
    has_embeddings: bool = False
    """Whether frames are embeddings, by which clips can be compared."""
    clips: dict[str, str] = field(default_factory=dict)
    """Clips by the names under which the page asks for them."""
    raters: dict[str, set[str]] = field(default_factory=dict)
    """Who may hear a name that is not everybody's."""

    def put(self, sound_id: str, clip_id: str) -> str:
        """Let the page ask for a clip under a name; return the name."""
        self.clips[sound_id] = clip_id
        return sound_id

    def put_clip(self, clip_id: str, rater: str) -> str:
        """Let a rater's page ask for a clip as a whole; return its name there."""
        name = self.put(digest("clip", clip_id), clip_id)
        self.raters.setdefault(name, set()).add(rater)
        return name

    def is_for(self, rater: str, sound_id: str) -> bool:
        """Tell whether a rater may hear what a name stands for."""
        return rater in self.raters.get(sound_id, {rater})

    def clip_of(self, sound_id: str) -> str:
        """Return the clip behind a name."""
        if sound_id not in self.clips:
            raise Unknown("there is no such clip")
        return self.clips[sound_id]

    def sound(self, sound_id: str) -> bytes:
        """Return a clip's WAV; raises UnreadableAudio with the reason."""
        return self.media.sound(self.clip_of(sound_id))

    def picture(self, sound_id: str) -> bytes:
        """Return a clip's PNG; raises UnreadableAudio with the reason."""
        return self.media.picture(self.clip_of(sound_id))

    def card(self, class_id: str) -> dict[str, Any]:
        """Return what the page tells of a class."""
        card = self._made(class_id)
        decoy = None if card.decoy is None else self._example(card.decoy, class_id)
        return {
            "class_id": class_id,
            "name": card.name,
            "path": card.path,
            "definition": card.definition,
            "confused": card.confused,
            "examples": [self._example(clip_id, class_id) for clip_id in card.examples],
            "decoy": decoy,
        }

    def given(self, clip_id: str, besides: Iterable[str] = ()) -> list[str]:
        """Return the names of the classes that a clip was given, besides some."""
        own, left_out = self._positives.filter(clip_id=clip_id)["class_id"], set(besides)
        return [self.workspace.ontology.name(one) for one in own if one not in left_out]

    def found_classes(self, text: str) -> list[dict[str, Any]]:
        """Return the classes whose names, or other words for them, hold what was typed."""
        ontology = self.workspace.ontology
        return [
            {"class_id": one, "name": ontology.name(one), "path": ontology.path(one)}
            for one in search_classes(ontology, text, _MOST_FOUND)
        ]

    def likeness(self, clip_id: str, others: Sequence[str]) -> NDArray[np.float64]:
        """Return how much some clips are like one: the cosine of their mean frames, or scores.

        Frames of embeddings are compared; where there are none, what the teacher says of classes.
        """
        vectors = self._vectors([clip_id, *others])
        lengths = np.linalg.norm(vectors, axis=1)
        return np.asarray(vectors[1:] @ vectors[0] / np.maximum(lengths[1:] * lengths[0], 1e-9))

    def _vectors(self, clip_ids: Sequence[str]) -> NDArray[np.float64]:
        store = self.media.store
        if store is not None and all(name in self._frame_rows for name in clip_ids):
            frames = (store.frames(self._frame_rows[name]) for name in clip_ids)
            return np.stack([each.mean(axis=0, dtype=np.float64) for each in frames])
        rows = [self._score_rows[name] for name in clip_ids]
        return np.asarray(np.nan_to_num(self.scores.logits[rows]), np.float64)

    @cached_property
    def _frame_rows(self) -> dict[str, int]:
        """The row of each clip in the store of embeddings; empty where there is none."""
        store = self.media.store if self.has_embeddings else None
        return {} if store is None else {name: row for row, name in enumerate(store.clip_ids)}

    @cached_property
    def _score_rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.scores.clip_ids)}

    def _example(self, clip_id: str, class_id: str) -> dict[str, Any]:
        name = self.put(digest("example", clip_id, class_id), clip_id)
        return {"id": name, "peak": next(iter(self.peaks.spans(clip_id, class_id)), None)}

    def _made(self, class_id: str) -> Card:
        if class_id not in self._cards_made:
            self._cards_made[class_id] = self._cards.make(class_id)
        return self._cards_made[class_id]

    @cached_property
    def _cards_made(self) -> dict[str, Card]:
        return {}

    @cached_property
    def _positives(self) -> pl.DataFrame:
        return self.workspace.labels.rows().filter("present")

    @cached_property
    def _cards(self) -> Cards:
        labels = scored_labels(self.scores, self.workspace.labels)
        clips = pl.DataFrame({"clip_id": labels.clip_ids}).join(
            self.workspace.clips, on="clip_id", how="left", maintain_order="left"
        )
        ontology: Ontology = self.workspace.ontology
        has_audio = clips["audio"].is_not_null().to_numpy()
        logits = self.scores.logits
        return Cards(labels, logits, ontology, clips["source"], has_audio, self.in_queue)
