"""Training examples: patches of log-mel frames, or whole clips of embeddings.

:class:`Examples` and :class:`ClipExamples` feed Earmark's own training and scoring.
:class:`ClipDataset` is a workspace's clips as a dataset of torch, for your own training loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from earmark.audio import FrameStore, read_clip
from earmark.config import FrontEndParams, ModelParams
from earmark.datasets import Split, Workspace, any_frames, readable_clips
from earmark.errors import EarmarkError, nearest, quoted
from earmark.models.architectures import own_device

_BYTES_PER_ONE, _BYTE_OFFSET = 255 / 4, 2
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
        frames, n_frames = self.store.clips(self.rows[clips])
        values = floats(frames) if frames.dtype == np.uint8 else _as_float32(frames)
        return values, torch.from_numpy(n_frames)


def floats(frames: NDArray[Any]) -> Tensor:
    """Return stored frames as numbers that a probe takes, float32 on the CPU."""
    values = frames.astype(np.float32)
    if frames.dtype == np.uint8:
        values /= np.float32(_BYTES_PER_ONE)
        values -= np.float32(_BYTE_OFFSET)
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


InputsOf = Literal["patches", "frames", "embeddings", "waveforms"]
"""What a network is shown of clips."""

_Sound = tuple[str | Path, float | None, float | None]


class ClipDataset(Dataset[tuple[Tensor, int]]):
    """The clips of a split: every item is ``(inputs, row)``, the row naming the clip.

    ``inputs`` chooses what is shown, always float32: ``patches`` [frame, band] of log-mel frames,
    several items of a clip with one row; ``frames`` [frame, band] of a whole clip; ``embeddings``
    [frame, feature], which a pretrained network gave; or ``waveforms`` [sample] at
    ``sample_rate_hz``, cut or filled up with silence to ``seconds`` where these are given. Clips
    that could not be read have no row. Rows count from 0 within the split, as those of ``labels``
    and of ``Supervision.from_workspace`` do.

    It can be sent to the workers of a ``DataLoader``. Where lengths differ, the loader needs
    :meth:`collate`.
    """

    def __init__(
        self,
        work: str | Path | Workspace,
        split: Split = "train",
        inputs: InputsOf = "patches",
        *,
        sample_rate_hz: int = 16_000,
        seconds: float | None = None,
    ) -> None:
        if inputs not in get_args(InputsOf):
            raise EarmarkError(f"no inputs {inputs!r}{nearest(inputs, get_args(InputsOf))}")
        self.workspace = work if isinstance(work, Workspace) else Workspace.open(work)
        self.split, self.inputs = split, inputs
        self.sample_rate_hz, self.seconds = sample_rate_hz, seconds
        store = self._open_store()
        clips = None if store is None else readable_clips(self.workspace, store, split)
        if store is None or clips is None:
            self.labels = self.workspace.labels.select(self.workspace.rows(split))
        else:
            self.labels = clips.labels
        self._examples: Examples | None = None
        self._sounds: list[_Sound] = []
        per_clip = np.ones(self.labels.n_clips, np.int64)
        if store is None or clips is None or inputs == "waveforms":
            self._sounds = self._find_sounds()
        else:
            kind = Examples if inputs == "patches" else ClipExamples
            self._examples = kind(store, clips.store_rows)
            per_clip = self._examples.per_clip
            self._examples.gather(np.array([0]), np.array([0]))  # tables are read before a fork
        self._ends = np.cumsum(per_clip)

    def __repr__(self) -> str:
        return (
            f"ClipDataset({str(self.workspace.root)!r}, {self.split!r}, {self.inputs!r}: "
            f"{len(self):,} items of {self.labels.n_clips:,} clips)"
        )

    @property
    def clip_ids(self) -> list[str]:
        """The names of the clips, by row."""
        names: list[str] = self.labels.clip_ids.to_list()
        return names

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        place = index % len(self)
        row = int(np.searchsorted(self._ends, place, side="right"))
        if self._examples is None:
            return self._waveform(row), row
        which = place - (int(self._ends[row - 1]) if row else 0)
        shown, *_ = self._examples.gather(np.array([row]), np.array([which]))
        return shown[0], row

    @staticmethod
    def collate(items: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs filled up with zeros to the longest, their lengths, and rows.

        >>> inputs, lengths, rows = ClipDataset.collate([(torch.ones(2), 7), (torch.ones(1), 4)])
        >>> inputs.tolist(), lengths.tolist(), rows.tolist()
        ([[1.0, 1.0], [1.0, 0.0]], [2, 1], [7, 4])
        """
        inputs = [shown for shown, _ in items]
        lengths = torch.tensor([len(shown) for shown in inputs])
        return pad_sequence(inputs, batch_first=True), lengths, torch.tensor([r for _, r in items])

    def _open_store(self) -> FrameStore | None:
        """Open the frames to be shown, or those that tell which sounds could be read, if any."""
        if self.inputs == "waveforms":
            return any_frames(self.workspace)
        is_heard = self.inputs == "embeddings"
        folders = (self.workspace.frames_folder, self.workspace.embeddings_folder)
        return FrameStore.open(folders[is_heard])

    def _find_sounds(self) -> list[_Sound]:
        """Return file, start and end of every clip, as plain values that need no table."""
        own = pl.DataFrame({"clip_id": self.labels.clip_ids})
        clips = own.join(self.workspace.clips, on="clip_id", maintain_order="left")
        without = clips.filter(clips["audio"].is_null())
        if len(without):
            raise EarmarkError(
                f"{self.workspace.clips_path}: clip {without['clip_id'][0]!r} names no sound file, "
                "so there is no waveform; take inputs='frames' or 'embeddings'"
            )
        places = clips.select("audio", "start_seconds", "end_seconds").iter_rows()
        return [(self.workspace.audio_place(audio), start, end) for audio, start, end in places]

    def _waveform(self, row: int) -> Tensor:
        place, start, end = self._sounds[row]
        waveform = torch.from_numpy(read_clip(place, self.sample_rate_hz, start, end))
        if self.seconds is None:
            return waveform
        n_samples = round(self.seconds * self.sample_rate_hz)
        return torch.nn.functional.pad(waveform, (0, max(n_samples - len(waveform), 0)))[:n_samples]
