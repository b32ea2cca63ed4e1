"""The frame store: the frames of all clips in a few memory-mapped files.

A store is a folder of shards, plain arrays [frame, band] with the frames of about 2,000 clips one
after another, and an index that says where each clip lies (docs/file-formats.md). Log-mel frames
are float16, at most 0.002 off; embeddings made elsewhere fit as well, at any width and type.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.audio.front_end import n_patches
from earmark.audio.shards import (
    INDEX_SCHEMA,
    FrameFormat,
    Row,
    StoreMeta,
    checked_meta,
    content_digest,
    damage,
    fingerprint,
    part_path,
    read_parts,
    seal_store,
    shard_path,
    write_shard,
)
from earmark.audio.spectra import gather_frames
from earmark.errors import EarmarkError, reader, reading
from earmark.runs import (
    break_seal,
    check_unique,
    is_finished,
    map_array,
    read_seal,
    read_table,
    seal_path,
)

CLIPS_PER_SHARD = 2_000
"""Clips in a shard of a large store: about 260 MB for clips of 10 s."""


class Levels(NamedTuple):
    """Numbers that are stored as bytes: byte / per_one - offset."""

    per_one: float
    offset: float


@dataclass(frozen=True, eq=False)
class FrameStore:
    """The frames of many clips on disk; ``index`` has a row for each clip that could be read.

    Rows of the index number the clips everywhere here. Open it with :meth:`open`; sending it to
    another process sends the folder's name only.
    """

    folder: Path
    meta: StoreMeta
    index: pl.DataFrame

    def __repr__(self) -> str:
        return f"FrameStore({str(self.folder)!r}, {len(self.index):,} clips)"

    @classmethod
    @reader("a frame store", "make it again with `earmark features`", at=1)
    def open(cls, folder: str | Path) -> FrameStore:
        """Open a finished store and check that its files are as long as the index says."""
        folder = Path(folder)
        if not is_finished(folder):
            raise EarmarkError(
                f"{folder}: no finished frame store; make it with `earmark features`"
            )
        with reading(seal_path(folder), "the description of a frame store"):
            meta = checked_meta(read_seal(folder))
        index = read_table(folder / "index.parquet", INDEX_SCHEMA)
        lengths = index.group_by("shard").agg(pl.col("n_frames").sum()).sort("shard")
        for number, n_frames in lengths.iter_rows():
            trouble = damage(shard_path(folder, number), n_frames, meta)
            if trouble:
                raise EarmarkError(f"{trouble}; run `earmark features` to make it again")
        _check_places(index, lengths)
        return cls(folder, meta, index)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameStore.open, (self.folder,)

    @property
    def digest(self) -> str:
        """Identifies the frames: parameters, clips, and the files that they were made from."""
        return self.meta.digest

    @property
    def n_bands(self) -> int:
        """Numbers in one frame."""
        return self.meta.n_bands

    @property
    def patch_frames(self) -> int:
        """Frames in one patch."""
        return self.meta.patch_frames

    @property
    def patch_hop_frames(self) -> int:
        """Frames from the start of one patch to the start of the next."""
        return self.meta.patch_hop_frames

    @property
    def patch_seconds(self) -> tuple[float, float] | None:
        """Seconds from the start of one patch to the next, and of one patch; None: nobody knows.

        Of frames from elsewhere only those that a pretrained network gave have a time.
        """
        if self.meta.front_end is not None:
            hop = float(self.meta.front_end["hop_seconds"])
            return self.patch_hop_frames * hop, self.patch_frames * hop
        heard = self.meta.heard_by or {}
        known = heard.get("hop_seconds"), heard.get("frame_seconds")
        return None if None in known else (float(known[0] or 0), float(known[1] or 0))

    @property
    def clip_ids(self) -> pl.Series:
        """The clips, in the order of the workspace."""
        return self.index["clip_id"]

    @cached_property
    def n_frames(self) -> NDArray[np.int64]:
        """Frames of each clip [clip]."""
        return self.index["n_frames"].to_numpy()

    @cached_property
    def n_patches(self) -> NDArray[np.int64]:
        """Patches of each clip [clip]; 0 where a clip is shorter than one patch."""
        return n_patches(self.n_frames, self)

    def rows_of(self, clip_ids: Iterable[str]) -> NDArray[np.int64]:
        """Return the row of each clip in this store, -1 for clips that it does not hold."""
        wanted = pl.Series("clip_id", clip_ids, pl.String)
        rows = wanted.replace_strict(
            self.clip_ids, np.arange(len(self.index)), default=-1, return_dtype=pl.Int64
        )
        return rows.to_numpy()

    def frames(self, clip: int) -> NDArray[Any]:
        """Return the frames of one clip [frame, band]: a read-only view of the file."""
        self._check_rows(np.array([clip]))
        first = self._first_frame[clip]
        shard = self._shards.map(int(self._shard[clip]))
        return shard[first : first + self.n_frames[clip]]

    def patches(self, clips: ArrayLike, patch_indices: ArrayLike) -> NDArray[Any]:
        """Gather a batch of patches [batch, frame, band] in the stored type.

        ``clips`` [batch] are rows of the index, ``patch_indices`` [batch] count from 0 within
        each clip. The disk is asked for them in the order of their places there.
        """
        clips, patch_indices = np.asarray(clips, np.int64), np.asarray(patch_indices, np.int64)
        self._check_rows(clips)
        self._check_patches(clips, patch_indices)
        places = self._places[clips]
        places[:, 1] += patch_indices * self.patch_hop_frames
        places[:, 2] = self.patch_frames
        return self._gather(places, np.arange(len(clips)), self.patch_frames)

    def clips(
        self, clips: ArrayLike, levels: Levels | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Gather whole clips [batch, frame, band] in the stored type, and their lengths [batch].

        Shorter clips are padded with zeros at the end up to the longest of the batch, no clips to
        one frame. The disk is asked for them in the order of their places there. With ``levels``
        stored bytes become the numbers that they stand for, zeros at the end included.
        """
        clips = np.asarray(clips, np.int64)
        self._check_rows(clips)
        lengths = self.n_frames[clips]
        longest = int(np.maximum.reduce(lengths, initial=1))
        return self._gather(self._places, clips, longest, levels), lengths

    def _gather(
        self,
        places: NDArray[np.int64],
        rows: NDArray[np.int64],
        longest: int,
        levels: Levels | None = None,
    ) -> NDArray[Any]:
        """Copy the frames at some rows of places [row, 3] in one go."""
        self._shards.need(places, rows)
        dtype = self.meta.dtype if levels is None else np.float32
        batch = np.empty((len(rows), longest, self.n_bands), dtype)
        rows = np.ascontiguousarray(rows)
        gather_frames(self._shards, places, rows, batch, *(levels or (0, 0)))
        return batch

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The shard, the first frame and the number of frames of each clip [clip, 3]."""
        return np.stack([self._shard, self._first_frame, self.n_frames], axis=1)

    @cached_property
    def _first_frame(self) -> NDArray[np.int64]:
        return self.index["first_frame"].to_numpy()

    @cached_property
    def _shard(self) -> NDArray[np.int64]:
        return self.index["shard"].to_numpy()

    @cached_property
    def _shards(self) -> _MappedShards:
        return _MappedShards(self.folder, self.meta, int(self._shard.max(initial=-1)) + 1)

    def _check_rows(self, clips: NDArray[np.int64]) -> None:
        n_clips = len(self.n_frames)
        if not clips.size or np.maximum.reduce(clips.view(np.uint64)) < n_clips:
            return  # a number below 0 is a very large one among those without a sign
        is_outside = (clips < 0) | (clips >= n_clips)
        raise EarmarkError(
            f"{self.folder}: clip row {clips[is_outside][0]} asked of a store of {n_clips} clips; "
            "a row of -1 means that the clip could not be read"
        )

    def _check_patches(self, clips: NDArray[np.int64], patch_indices: NDArray[np.int64]) -> None:
        is_outside = (patch_indices < 0) | (patch_indices >= self.n_patches[clips])
        if is_outside.any():
            clip = clips[is_outside][0]
            raise EarmarkError(
                f"{self.folder}: patch {patch_indices[is_outside][0]} asked of clip "
                f"{self.clip_ids[int(clip)]!r}, which has {self.n_patches[clip]}"
            )


class _MappedShards(list[NDArray[Any] | None]):
    """Shards by number, each mapped into memory when it is first asked for; None before."""

    def __init__(self, folder: Path, meta: StoreMeta, n_shards: int) -> None:
        super().__init__([None] * n_shards)
        self._folder, self._meta, self._n_missing = folder, meta, n_shards

    def need(self, places: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Map the shards of some rows of places that are not mapped yet."""
        if self._n_missing:
            for number in set(places[rows, 0].tolist()):
                self.map(number)

    def map(self, number: int) -> NDArray[Any]:
        """Return a shard [frame, band]: a plain array, because slicing a np.memmap takes longer."""
        known = self[number]
        if known is not None:
            return known
        path, meta = shard_path(self._folder, number), self._meta
        mapped = np.asarray(map_array(path))
        if mapped.shape[1:] != (meta.n_bands,) or mapped.dtype != meta.dtype:
            raise EarmarkError(
                f"{path}: expected frames of {meta.n_bands} {meta.dtype}, got {mapped.dtype} "
                f"{mapped.shape}; run `earmark features` to make it again"
            )
        self[number] = mapped
        self._n_missing = sum(one is None for one in self)
        return mapped


def _check_places(index: pl.DataFrame, lengths: pl.DataFrame) -> None:
    """Refuse clips that do not lie within their shards."""
    if sum(index.null_count().row(0)[:4]):  # of all but the source
        raise ValueError("the index has gaps")
    n_held = dict(lengths.iter_rows())
    ends = index["first_frame"] + index["n_frames"]
    room = index["shard"].replace_strict(n_held, return_dtype=pl.Int64)
    if not ((index["first_frame"] >= 0) & (index["n_frames"] >= 0) & (ends <= room)).all():
        raise ValueError("a clip does not lie within its shard")


def write_store(
    folder: str | Path,
    clips: Iterable[tuple[str, NDArray[Any]]],
    *,
    patch_frames: int = 1,
    patch_hop_frames: int = 1,
    clips_per_shard: int = CLIPS_PER_SHARD,
) -> FrameStore:
    """Write frames from elsewhere, such as embeddings, given as (clip_id, array [frame, band]).

    The first array sets the type and the width of all. A store that is there is replaced.
    """
    folder = Path(folder)
    clips = iter(clips)
    first = next(clips, None)
    if first is None:
        raise EarmarkError(f"{folder}: no clips were given, so there is nothing to store")
    break_seal(folder)
    frame_format = FrameFormat(
        n_bands=first[1].shape[-1],
        dtype=first[1].dtype.name,
        patch_frames=patch_frames,
        patch_hop_frames=patch_hop_frames,
    )
    remaining = itertools.chain([first], clips)
    n_shards = 0
    while batch := list(itertools.islice(remaining, clips_per_shard)):
        rows = (Row(clip_id, array, fingerprint(array.tobytes())) for clip_id, array in batch)
        part_path(folder, n_shards).unlink(missing_ok=True)
        write_shard(folder, n_shards, "", rows, frame_format)
        n_shards += 1
    parts = read_parts(folder, n_shards)
    check_unique(parts["clip_id"], f"{folder}: clip")
    seal_store(folder, parts, frame_format, content_digest(parts, frame_format))
    return FrameStore.open(folder)
