"""The frame store: the frames of all clips in a few memory-mapped files.

A store is a folder of shards (docs/file-formats.md). A shard is a plain array [frame, band] in
``shard-00000.npy`` with the frames of about 2,000 clips one after another. Its table
``shard-00000.parquet`` is written once the shard is in place and says where each clip lies.
``index.parquet`` and at last ``meta.json`` complete the store. Two processes that write the same
shard write the same bytes, each under its own temporary name, so a task may run twice.

Log-mel frames are float16, at most 0.002 off; embeddings made elsewhere fit at any width and type.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter

from earmark.audio.front_end import n_patches
from earmark.errors import EarmarkError, reader, reading
from earmark.storage import (
    break_seal,
    check_unique,
    digest,
    file_sha256,
    is_finished,
    map_array,
    read_seal,
    read_table,
    seal,
    seal_path,
    write_aside,
    write_table,
)

LAYOUT_VERSION = 1
"""Part of every digest: a store of another layout is made anew."""

_PART_SCHEMA = {
    "clip_id": pl.String,
    "first_frame": pl.Int64,
    "n_frames": pl.Int64,
    "source": pl.String,
    "reason": pl.String,
    "n_bytes": pl.Int64,
    "mtime_ns": pl.Int64,
    "digest": pl.String,
    "sha256": pl.String,
}
_SHARD_FILE = re.compile(
    r"shard-\d{5,}\.(npy|parquet)|\.shard-\d{5,}\.(npy|parquet)\..+\.[0-9a-f]{8}\.partial"
)
"""Names of shards, and of those that are being written."""

INDEX_SCHEMA = {
    "clip_id": pl.String,
    "shard": pl.Int64,
    "first_frame": pl.Int64,
    "n_frames": pl.Int64,
    "source": pl.String,
}
"""The columns of a store's index."""


@dataclass(frozen=True, kw_only=True)
class FrameFormat:
    """What the frames of a store are."""

    n_bands: int
    dtype: str
    patch_frames: int
    patch_hop_frames: int
    front_end: dict[str, Any] | None = None
    """The parameters of log-mel frames; None for frames from elsewhere."""
    network_facts: dict[str, Any] | None = None
    """The facts of the pretrained network that these frames are of; None for others."""


@dataclass(frozen=True, kw_only=True)
class StoreMeta(FrameFormat):
    """What ``meta.json`` says of a store: its format, its size and its digest."""

    n_clips: int
    n_frames: int
    n_shards: int
    digest: str
    files: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of each shard as it was written; not of those from before it was kept."""


def checked_meta(noted: Mapping[str, Any]) -> StoreMeta:
    """Return what ``meta.json`` says of a store; an error of any kind where that cannot be."""
    meta = TypeAdapter(StoreMeta).validate_python(noted)
    counts = (meta.n_bands, meta.patch_frames, meta.patch_hop_frames)
    if not 1 <= min(counts) <= max(counts) < 2**31:
        raise ValueError("bands, frames of a patch and its hop are counted from 1")
    np.dtype(meta.dtype)
    if meta.front_end is not None:
        float(meta.front_end["hop_seconds"])
    for name in ("hop_seconds", "frame_seconds"):
        float((meta.network_facts or {}).get(name) or 0)
    return meta


@dataclass(frozen=True)
class Row:
    """A clip of a shard: its frames [frame, band], or the reason why there are none."""

    clip_id: str
    frames: NDArray[Any] | None
    source: str | None
    reason: str | None = None
    file: tuple[int | None, int | None] = (None, None)
    """Bytes and time of change, in nanoseconds, of the file when it was read, if it is here."""


@contextmanager
def open_shard(
    folder: Path, number: int, shard_digest: str, frame_format: FrameFormat
) -> Iterator[Callable[[Row], None]]:
    """Yield a function that appends a clip to a shard; at the end write its table, which seals it.

    An older seal is the caller's to remove: it must not stand beside newer frames. Where the
    context ends by an error, nothing is left.
    """
    records: list[tuple[Any, ...]] = []
    n_written = 0

    def add(row: Row) -> None:
        nonlocal n_written
        n_frames = _write_frames(file, row, frame_format)
        records.append((row.clip_id, n_written, n_frames, row.source, row.reason, *row.file))
        n_written += n_frames

    with write_aside(shard_path(folder, number)) as aside:
        with open(aside, "wb") as file:
            _write_header(file, n_written, frame_format)
            yield add
            file.seek(0)
            # numpy leaves room in the header for the first axis to grow: its length is the same.
            _write_header(file, n_written, frame_format)
        sha256 = file_sha256(aside)
    rows = [(*record, shard_digest, sha256) for record in records]
    write_table(part_path(folder, number), pl.DataFrame(rows, _PART_SCHEMA, orient="row"))


def _write_header(file: BinaryIO, n_frames: int, frame_format: FrameFormat) -> None:
    descr = np.lib.format.dtype_to_descr(np.dtype(frame_format.dtype))
    shape = (n_frames, frame_format.n_bands)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _write_frames(file: BinaryIO, row: Row, frame_format: FrameFormat) -> int:
    """Append the frames of one clip and return their number."""
    frames = row.frames
    if frames is None:
        return 0
    wanted = (2, frame_format.n_bands, frame_format.dtype)
    if (frames.ndim, frames.shape[-1], frames.dtype.name) != wanted:
        raise EarmarkError(
            f"frames of clip {row.clip_id!r} are {frames.dtype} {list(frames.shape)}; "
            f"expected {frame_format.dtype} [frame, {frame_format.n_bands}] like the first clip's"
        )
    file.write(frames.tobytes())
    return len(frames)


def read_part(folder: Path, number: int) -> pl.DataFrame:
    """Return the table of a shard, with its number."""
    part = read_table(part_path(folder, number), _PART_SCHEMA)
    return part.with_columns(shard=pl.lit(number, pl.Int64))


def write_part(folder: Path, part: pl.DataFrame) -> None:
    """Write the table of a shard, as :func:`read_part` returned it."""
    write_table(part_path(folder, int(part["shard"][0])), part.drop("shard"))


def content_digest(parts: pl.DataFrame, frame_format: FrameFormat, clips_digest: str = "") -> str:
    """Identify the frames of a store, however they are spread over shards."""
    content = parts.select("clip_id", "n_frames", "source", "reason").write_csv()
    return digest(LAYOUT_VERSION, asdict(frame_format), clips_digest, content)


def seal_store(
    folder: Path, parts: pl.DataFrame, frame_format: FrameFormat, store_digest: str
) -> None:
    """Write the index and, when all else is in place, ``meta.json``."""
    index = parts.filter(pl.col("reason").is_null()).select(*INDEX_SCHEMA)
    shards = parts.select("shard", "sha256").unique(maintain_order=True).drop_nulls()
    meta = StoreMeta(
        **asdict(frame_format),
        n_clips=len(index),
        n_frames=int(index["n_frames"].sum()),
        n_shards=parts["shard"].n_unique(),
        digest=store_digest,
        files={shard_path(Path(), number).name: sha256 for number, sha256 in shards.iter_rows()},
    )
    _remove_leftovers(folder, meta.n_shards)
    write_table(folder / "index.parquet", index.rechunk())
    seal(folder, asdict(meta))


def _remove_leftovers(folder: Path, n_shards: int) -> None:
    """Remove shards of an earlier, larger store, and unfinished ones that a kill left."""
    numbers = range(n_shards)
    wanted = {path(folder, number) for path in (shard_path, part_path) for number in numbers}
    for path in {*folder.glob("shard-*"), *folder.glob(".shard-*.partial")} - wanted:
        if _SHARD_FILE.fullmatch(path.name):
            path.unlink(missing_ok=True)


def damage(path: Path, n_frames: int, frame_format: FrameFormat) -> str | None:
    """Compare a shard with what it should be and say what is wrong, if anything."""
    if not path.exists():
        return f"{path}: the shard is missing"
    header = io.BytesIO()
    _write_header(header, n_frames, frame_format)
    n_data = n_frames * frame_format.n_bands * np.dtype(frame_format.dtype).itemsize
    n_expected, n_actual = len(header.getvalue()) + n_data, path.stat().st_size
    if n_actual == n_expected:
        return None
    return f"{path}: the shard has {n_actual:,} bytes where the index expects {n_expected:,}"


def fingerprint(*pieces: bytes) -> str:
    """Return 16 hexadecimal digits that identify some bytes."""
    return hashlib.blake2b(b"|".join(pieces), digest_size=8).hexdigest()


def shard_path(folder: Path, number: int) -> Path:
    """Return the place of a shard's frames."""
    return folder / f"shard-{number:05d}.npy"


def part_path(folder: Path, number: int) -> Path:
    """Return the place of a shard's seal, its part of the index."""
    return folder / f"shard-{number:05d}.parquet"


CLIPS_PER_SHARD = 2_000
"""Clips in a shard of a large store: about 260 MB for clips of 10 s."""


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
        heard = self.meta.network_facts or {}
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
        shard = self._shards[int(self._shard[clip])]
        return shard[first : first + self.n_frames[clip]]

    def patches(self, clips: ArrayLike, patch_indices: ArrayLike) -> NDArray[Any]:
        """Gather a batch of patches [batch, frame, band] in the stored type.

        ``clips`` [batch] are rows of the index, ``patch_indices`` [batch] count from 0 within
        each clip. The disk is asked for them in the order of their places there.
        """
        clips, patch_indices = np.asarray(clips, np.int64), np.asarray(patch_indices, np.int64)
        self._check_rows(clips)
        self._check_patches(clips, patch_indices)
        firsts = self._first_frame[clips] + patch_indices * self.patch_hop_frames
        lengths = np.full(len(clips), self.patch_frames)
        return self._gather(self._shard[clips], firsts, lengths, self.patch_frames)

    def clips(self, clips: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Gather whole clips [batch, frame, band] in the stored type, and their lengths [batch].

        Shorter clips are padded with zeros at the end up to the longest of the batch, no clips to
        one frame. The disk is asked for them in the order of their places there.
        """
        clips = np.asarray(clips, np.int64)
        self._check_rows(clips)
        lengths = self.n_frames[clips]
        longest = int(lengths.max(initial=1))
        return self._gather(self._shard[clips], self._first_frame[clips], lengths, longest), lengths

    def _gather(
        self,
        shards: NDArray[np.int64],
        firsts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        longest: int,
    ) -> NDArray[Any]:
        """Copy frames into a batch [example, frame, band], in the order of the disk."""
        is_full = len(lengths) and lengths.min() == longest
        shape = (len(lengths), longest, self.n_bands)
        batch = np.empty(shape, self.meta.dtype) if is_full else np.zeros(shape, self.meta.dtype)
        numbers, starts, ends = shards.tolist(), firsts.tolist(), (firsts + lengths).tolist()
        for example in np.lexsort((firsts, shards)).tolist():
            start, end = starts[example], ends[example]
            frames = self._shards[numbers[example]][start:end]
            batch[example, : end - start] = frames
        return batch

    @cached_property
    def _first_frame(self) -> NDArray[np.int64]:
        return self.index["first_frame"].to_numpy()

    @cached_property
    def _shard(self) -> NDArray[np.int64]:
        return self.index["shard"].to_numpy()

    @cached_property
    def _shards(self) -> _MappedShards:
        return _MappedShards(self.folder, self.meta)

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


class _MappedShards(dict[int, NDArray[Any]]):
    """Shards [frame, band] by number, each mapped into memory when it is first asked for."""

    def __init__(self, folder: Path, meta: StoreMeta) -> None:
        super().__init__()
        self._folder, self._meta = folder, meta

    def __missing__(self, number: int) -> NDArray[Any]:
        path, meta = shard_path(self._folder, number), self._meta
        mapped = np.asarray(map_array(path))  # slicing a np.memmap takes longer
        if mapped.shape[1:] != (meta.n_bands,) or mapped.dtype != meta.dtype:
            raise EarmarkError(
                f"{path}: expected frames of {meta.n_bands} {meta.dtype}, got {mapped.dtype} "
                f"{mapped.shape}; run `earmark features` to make it again"
            )
        self[number] = mapped
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
        part_path(folder, n_shards).unlink(missing_ok=True)
        with open_shard(folder, n_shards, "", frame_format) as add:
            for clip_id, array in batch:
                add(Row(clip_id, array, fingerprint(array.tobytes())))
        n_shards += 1
    parts = pl.concat(read_part(folder, number) for number in range(n_shards))
    check_unique(parts["clip_id"], f"{folder}: clip")
    seal_store(folder, parts, frame_format, content_digest(parts, frame_format))
    return FrameStore.open(folder)
