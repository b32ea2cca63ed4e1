"""What a network sees of clips: patches of log-mel frames, or whole clips of embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio import FrameStore, Levels
from earmark.errors import EarmarkError, quoted
from earmark.networks.device import own_device
from earmark.runs import FrontEndParams, ModelParams

_EMBEDDING_LEVELS = Levels(per_one=255 / 4, offset=2)
"""AudioSet's quantised embeddings spread -2..2 over 0..255."""


@dataclass(frozen=True)
class Examples:
    """What a network sees of some clips of a store: here patches, each with its clip's labels."""

    store: FrameStore
    rows: NDArray[np.int64]

    @property
    def per_clip(self) -> NDArray[np.int64]:
        """The number of examples of each clip."""
        return self.store.n_patches[self.rows]

    def gather(self, clips: NDArray[np.int64], which: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """Return patches [example, frame, band], float32 on the CPU."""
        return (_as_float32(self.store.patches(self.rows[clips], which)),)

    def inputs(self, clips: NDArray[np.int64], which: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """Return what a network takes, on the device where it computes (see :meth:`gather`)."""
        return tuple(values.to(own_device()) for values in self.gather(clips, which))

    def names(self, clips: NDArray[np.int64]) -> list[str]:
        """Return the identifiers of the clips in a batch."""
        names: list[str] = self.store.clip_ids.gather(self.rows[np.unique(clips)]).to_list()
        return names


@dataclass(frozen=True)
class ClipExamples(Examples):
    """Whole clips of embeddings, one example each: what a probe sees."""

    @property
    def per_clip(self) -> NDArray[np.int64]:
        """One example for each clip."""
        return np.ones(len(self.rows), np.int64)

    def gather(self, clips: NDArray[np.int64], which: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """Return frames [example, frame, feature], padded, and the number of frames of each."""
        del which
        levels = _EMBEDDING_LEVELS if self.store.meta.dtype == "uint8" else None
        frames, n_frames = self.store.clips(self.rows[clips], levels)
        return _as_float32(frames), torch.from_numpy(n_frames)


def floats(frames: NDArray[Any]) -> Tensor:
    """Return stored frames as numbers that a probe takes, float32 on the CPU."""
    values = frames.astype(np.float32)
    if frames.dtype == np.uint8:
        values /= np.float32(_EMBEDDING_LEVELS.per_one)
        values -= np.float32(_EMBEDDING_LEVELS.offset)
    return torch.from_numpy(values)


def _as_float32(values: NDArray[Any]) -> Tensor:
    """Return a batch as float32; from 16 bits by torch, ten times as fast as by numpy."""
    if values.dtype == np.float16:
        return torch.from_numpy(values).float()
    return torch.from_numpy(values if values.dtype == np.float32 else values.astype(np.float32))


def check_front_end(store: FrameStore, front_end: FrontEndParams) -> None:
    """Refuse frames that were made with other parameters; those from elsewhere have none."""
    if store.meta.front_end is None:
        return
    made_with = FrontEndParams.model_validate(store.meta.front_end)
    if made_with != front_end:
        raise EarmarkError(
            f"{store.folder} was made with front end {made_with.digest()}, the recipe has "
            f"{front_end.digest()}; run `earmark features {quoted(store.folder.parent)}` with "
            "this recipe"
        )


def examples_of(params: ModelParams, store: FrameStore, rows: NDArray[np.int64]) -> Examples:
    """Return the examples that a network sees of some clips of a store."""
    return (ClipExamples if params.is_probe else Examples)(store, rows)
