"""The frame store: the frames of all clips in a few memory-mapped files.

A store is a folder of ``shard-00000.npy`` files, plain arrays [frame, band] with the frames of
about 2,000 clips one after another; ``index.parquet`` says where each clip lies, and ``meta.json``,
written last, seals the whole (docs/file-formats.md). Log-mel frames are float16, at most 0.002
off; embeddings made elsewhere fit as well, at any width and type.

A shard is one task: written aside, renamed, and sealed by a table of its own. Whatever ends the
work, the same call goes on with the shards that are missing, and the bytes in the end depend only
on the clips and the parameters.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.artefacts import (
    is_current,
    read_json,
    read_table,
    write_aside,
    write_json,
    write_table,
)
from earmark.audio import UnreadableAudio, read_clip
from earmark.engine import LOCAL, Engine, Task
from earmark.errors import EarmarkError
from earmark.features import YAMNET, log_mel, n_patches
from earmark.params import FrontEndParams, digest
from earmark.progress import SILENT, Meter, Progress
from earmark.workspace import Workspace

CLIPS_PER_SHARD = 2_000
"""Clips in a shard of a large store: about 260 MB for clips of 10 s."""

MIN_SHARDS, MIN_CLIPS_PER_SHARD = 32, 16
"""Smaller sets get smaller shards, so that all cores have work; never by the number of cores."""

LAYOUT_VERSION = 1
"""Part of every digest: a store of another layout is made anew."""

SOURCE_EDGE_BYTES = 1 << 16
"""A source file is known by its size and this many of its first and last bytes."""

PART_SCHEMA = {
    "clip_id": pl.String,
    "first_frame": pl.Int64,
    "n_frames": pl.Int64,
    "source": pl.String,
    "reason": pl.String,
    "digest": pl.String,
}
INDEX_COLUMNS = ("clip_id", "shard", "first_frame", "n_frames", "source")


@dataclass(frozen=True, kw_only=True)
class FrameFormat:
    """What the frames of a store are."""

    n_bands: int
    dtype: str
    patch_frames: int
    patch_hop_frames: int
    front_end: dict[str, Any] | None = None
    """The parameters of log-mel frames; None for frames from elsewhere."""


@dataclass(frozen=True, kw_only=True)
class StoreMeta(FrameFormat):
    """What ``meta.json`` says of a store: its format, its size and its digest."""

    n_clips: int
    n_frames: int
    n_shards: int
    digest: str


@dataclass(frozen=True, eq=False)
class FrameStore:
    """The frames of many clips on disk; ``index`` has a row for each clip that could be read.

    Rows of the index number the clips everywhere here. Open it with :meth:`open`; sending it to
    another process sends the folder's name only.
    """

    folder: Path
    meta: StoreMeta
    index: pl.DataFrame

    @classmethod
    def open(cls, folder: str | Path) -> FrameStore:
        """Open a finished store and check that its files are as long as the index says."""
        folder = Path(folder)
        if not (folder / "meta.json").exists():
            raise EarmarkError(
                f"{folder}: no finished frame store; make it with `earmark features`"
            )
        try:
            meta = StoreMeta(**read_json(folder / "meta.json"))
        except TypeError as error:
            raise EarmarkError(f"{folder / 'meta.json'}: not of a frame store ({error})") from None
        index = read_table(folder / "index.parquet")
        lengths = index.group_by("shard").agg(pl.col("n_frames").sum()).sort("shard")
        for number, n_frames in lengths.iter_rows():
            damage = _damage(_shard_path(folder, number), n_frames, meta)
            if damage:
                raise EarmarkError(f"{damage}; run `earmark features` to make it again")
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
        return self._shards[self._shard[clip]][first : first + self.n_frames[clip]]

    def patches(self, clips: ArrayLike, patch_indices: ArrayLike) -> NDArray[Any]:
        """Gather a batch of patches [batch, frame, band] in the stored type.

        ``clips`` [batch] are rows of the index, ``patch_indices`` [batch] count from 0 within
        each clip. They are read in the order of their places on the disk.
        """
        clips, patch_indices = np.asarray(clips, np.int64), np.asarray(patch_indices, np.int64)
        self._check_rows(clips)
        self._check_patches(clips, patch_indices)
        first = self._first_frame[clips] + patch_indices * self.patch_hop_frames
        shard = self._shard[clips]
        order = np.lexsort((first, shard))
        places = zip(order.tolist(), shard[order].tolist(), first[order].tolist(), strict=True)
        batch = np.empty((len(clips), self.patch_frames, self.n_bands), self.meta.dtype)
        for place, number, start in places:
            batch[place] = self._shards[number][start : start + self.patch_frames]
        return batch

    def clips(self, clips: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Gather whole clips [batch, frame, band] in the stored type, and their lengths [batch].

        Shorter clips are padded with zeros at the end up to the longest of the batch.
        """
        clips = np.asarray(clips, np.int64)
        self._check_rows(clips)
        lengths = self.n_frames[clips]
        shape = (len(clips), int(lengths.max(initial=0)), self.n_bands)
        batch = np.zeros(shape, self.meta.dtype)
        for place, clip in enumerate(clips.tolist()):
            batch[place, : lengths[place]] = self.frames(clip)
        return batch, lengths

    @cached_property
    def _first_frame(self) -> NDArray[np.int64]:
        return self.index["first_frame"].to_numpy()

    @cached_property
    def _shard(self) -> NDArray[np.int64]:
        return self.index["shard"].to_numpy()

    @cached_property
    def _shards(self) -> _MappedShards:
        return _MappedShards(self.folder)

    def _check_rows(self, clips: NDArray[np.int64]) -> None:
        is_outside = (clips < 0) | (clips >= len(self.index))
        if is_outside.any():
            raise EarmarkError(
                f"{self.folder}: clip row {clips[is_outside][0]} asked of a store of "
                f"{len(self.index)} clips; a row of -1 means that the clip could not be read"
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
    """Shards by number, each mapped into memory when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, number: int) -> NDArray[Any]:
        mapped = np.load(_shard_path(self._folder, number), mmap_mode="r")
        # A plain array over the same memory: slicing a np.memmap costs ten times as much.
        self[number] = np.asarray(mapped)
        return self[number]


def extract_frames(
    workspace: Workspace,
    params: FrontEndParams = YAMNET,
    *,
    clips_per_shard: int = CLIPS_PER_SHARD,
    engine: Engine = LOCAL,
    progress: Progress = SILENT,
) -> FrameStore:
    """Write the log-mel frames of a workspace's clips, and the quarantine of unreadable ones.

    Shards that are there already are kept, unless a file that could not be read has changed since;
    a store that is complete is just opened, and so is one of frames from elsewhere (embeddings
    that an import brought). Raises EarmarkError where not one clip can be read.
    """
    folder = workspace.frames_folder
    if _is_from_elsewhere(folder):
        return FrameStore.open(folder)
    shards = _plan(workspace, params, clips_per_shard)
    pending = [shard for shard in shards if not _is_done(shard)]
    if pending:
        (folder / "meta.json").unlink(missing_ok=True)
        meter = progress.job("features", len(workspace.clips), "clips")
        meter.advance(len(workspace.clips) - sum(len(shard.clips) for shard in pending))
        tasks = [
            Task("features", _extract_shard, {"shard": shard}, len(shard.clips), "clips")
            for shard in pending
        ]
        engine.map(tasks, _AsOneJob(meter))
    parts, frame_format = _read_parts(folder, len(shards)), _log_mel_format(params)
    store_digest = _content_digest(parts, frame_format, workspace.audio_digest)
    if not is_current(folder, store_digest):
        _write_quarantine(workspace, parts)
        _seal(folder, parts, frame_format, store_digest)
    return FrameStore.open(folder)


def _is_from_elsewhere(folder: Path) -> bool:
    """Tell whether a finished store holds frames that were not made from audio here."""
    meta = folder / "meta.json"
    return meta.exists() and read_json(meta).get("front_end") is None


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
    (folder / "meta.json").unlink(missing_ok=True)
    frame_format = FrameFormat(
        n_bands=first[1].shape[-1],
        dtype=first[1].dtype.name,
        patch_frames=patch_frames,
        patch_hop_frames=patch_hop_frames,
    )
    remaining = itertools.chain([first], clips)
    n_shards = 0
    while batch := list(itertools.islice(remaining, clips_per_shard)):
        rows = (_Row(clip_id, array, _fingerprint(array.tobytes())) for clip_id, array in batch)
        _write_shard(folder, n_shards, "", rows, frame_format)
        n_shards += 1
    parts = _read_parts(folder, n_shards)
    _check_unique(folder, parts["clip_id"])
    _seal(folder, parts, frame_format, _content_digest(parts, frame_format))
    return FrameStore.open(folder)


@dataclass(frozen=True)
class _Shard:
    """One task of the extraction: the frames of some clips."""

    folder: Path
    number: int
    clips: pl.DataFrame
    root: Path
    params: FrontEndParams

    @cached_property
    def digest(self) -> str:
        """Identifies the parameters and the clips of this shard alone."""
        return digest(LAYOUT_VERSION, self.params, self.clips.write_csv())


@dataclass(frozen=True)
class _Row:
    """A clip of a shard: its frames [frame, band], or the reason why there are none."""

    clip_id: str
    frames: NDArray[Any] | None
    source: str | None
    reason: str | None = None


@dataclass(frozen=True)
class _AsOneJob:
    """Shows the progress of all shards as one job."""

    meter: Meter

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        del label, n_total, unit
        return self.meter


def _plan(workspace: Workspace, params: FrontEndParams, clips_per_shard: int) -> list[_Shard]:
    """Cut the clips into shards; the cut depends on nothing but their number."""
    clips = workspace.clips.select("clip_id", "audio", "start_seconds", "end_seconds")
    if len(clips) == 0:
        raise EarmarkError(f"{workspace.root}: the workspace has no clips to extract frames from")
    _check_unique(workspace.root, clips["clip_id"])
    n_clips = max(-(-len(clips) // MIN_SHARDS), MIN_CLIPS_PER_SHARD)
    n_clips = min(n_clips, clips_per_shard)
    return [
        _Shard(workspace.frames_folder, number, part, workspace.root, params)
        for number, part in enumerate(clips.iter_slices(n_clips))
    ]


def _is_done(shard: _Shard) -> bool:
    """Tell whether a shard is there, whole, of these clips, and its unreadable files as they were.

    A drive that was not mounted, or a file that was fetched again, is thus tried once more.
    """
    part_path = _part_path(shard.folder, shard.number)
    if not part_path.exists():
        return False
    part = read_table(part_path)
    if not (part["digest"] == shard.digest).all():
        return False
    path, n_frames = _shard_path(shard.folder, shard.number), int(part["n_frames"].sum())
    if _damage(path, n_frames, _log_mel_format(shard.params)):
        return False
    unread = part.select("source", "reason").with_columns(shard.clips["audio"])
    unread = unread.filter(pl.col("reason").is_not_null() & pl.col("audio").is_not_null())
    return all(
        _file_fingerprint(shard.root / audio) == source
        for audio, source in unread.select("audio", "source").iter_rows()
    )


def _extract_shard(shard: _Shard, meter: Meter) -> None:
    """Decode and transform the clips of one shard: the task of a worker."""
    rows, frame_format = _extracted(shard, meter), _log_mel_format(shard.params)
    _write_shard(shard.folder, shard.number, shard.digest, rows, frame_format)


def _extracted(shard: _Shard, meter: Meter) -> Iterator[_Row]:
    for clip_id, audio, start, end in shard.clips.iter_rows():
        yield _extract(shard, clip_id, audio, start, end)
        meter.advance(1)


def _extract(
    shard: _Shard, clip_id: str, audio: str | None, start: float | None, end: float | None
) -> _Row:
    if audio is None:
        return _Row(clip_id, None, None, "no audio file given")
    path = shard.root / audio
    source = _file_fingerprint(path)
    try:
        waveform = read_clip(path, shard.params.sample_rate_hz, start, end)
    except UnreadableAudio as error:
        return _Row(clip_id, None, source, error.reason)
    return _Row(clip_id, log_mel(waveform, shard.params).astype(np.float16), source)


def _write_shard(
    folder: Path, number: int, shard_digest: str, rows: Iterable[_Row], frame_format: FrameFormat
) -> None:
    """Write a shard and then its part of the index, which seals it."""
    part_path = _part_path(folder, number)
    # An older seal must not stand beside newer frames, not even between two renames.
    part_path.unlink(missing_ok=True)
    records: list[tuple[Any, ...]] = []
    with write_aside(_shard_path(folder, number)) as aside, open(aside, "wb") as file:
        n_written = 0
        _write_header(file, n_written, frame_format)
        for row in rows:
            n_frames = _write_frames(file, row, frame_format)
            records.append((row.clip_id, n_written, n_frames, row.source, row.reason, shard_digest))
            n_written += n_frames
        file.seek(0)
        # numpy leaves room in the header for the first axis to grow: its length is the same.
        _write_header(file, n_written, frame_format)
    write_table(part_path, pl.DataFrame(records, PART_SCHEMA, orient="row"))


def _write_header(file: BinaryIO, n_frames: int, frame_format: FrameFormat) -> None:
    descr = np.lib.format.dtype_to_descr(np.dtype(frame_format.dtype))
    shape = (n_frames, frame_format.n_bands)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _write_frames(file: BinaryIO, row: _Row, frame_format: FrameFormat) -> int:
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


def _read_parts(folder: Path, n_shards: int) -> pl.DataFrame:
    """Return the seals of all shards as one table, with the shard's number."""
    return pl.concat(
        read_table(_part_path(folder, number)).with_columns(pl.lit(number, pl.Int64).alias("shard"))
        for number in range(n_shards)
    )


def _write_quarantine(workspace: Workspace, parts: pl.DataFrame) -> None:
    """List the clips without frames; refuse to go on where that is all of them."""
    audio = workspace.clips["audio"].cast(pl.String)
    unread = parts.with_columns(audio).filter(pl.col("reason").is_not_null())
    write_table(workspace.quarantine_path, unread.select("clip_id", "audio", "reason"))
    if len(unread) == len(parts):
        raise EarmarkError(
            f"none of the {len(parts):,} clips of {workspace.root} could be read; the first is "
            f"{unread['audio'][0]}: {unread['reason'][0]}. Is the audio where clips.parquet says? "
            f"All reasons are in {workspace.quarantine_path}"
        )


def _content_digest(parts: pl.DataFrame, frame_format: FrameFormat, clips_digest: str = "") -> str:
    """Identify the frames of a store, however they are spread over shards."""
    content = parts.select("clip_id", "n_frames", "source", "reason").write_csv()
    return digest(LAYOUT_VERSION, asdict(frame_format), clips_digest, content)


def _seal(folder: Path, parts: pl.DataFrame, frame_format: FrameFormat, store_digest: str) -> None:
    """Write the index and, when all else is in place, ``meta.json``."""
    index = parts.filter(pl.col("reason").is_null()).select(INDEX_COLUMNS)
    meta = StoreMeta(
        **asdict(frame_format),
        n_clips=len(index),
        n_frames=int(index["n_frames"].sum()),
        n_shards=parts["shard"].n_unique(),
        digest=store_digest,
    )
    _remove_leftovers(folder, meta.n_shards)
    write_table(folder / "index.parquet", index.rechunk())
    write_json(folder / "meta.json", asdict(meta))


def _remove_leftovers(folder: Path, n_shards: int) -> None:
    """Remove what an interrupted run or an earlier, larger store left behind."""
    numbers = range(n_shards)
    wanted = {path(folder, number) for path in (_shard_path, _part_path) for number in numbers}
    for pattern in ("shard-*.npy", "shard-*.parquet", ".*.partial"):
        for path in set(folder.glob(pattern)) - wanted:
            path.unlink()


def _damage(path: Path, n_frames: int, frame_format: FrameFormat) -> str | None:
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


def _check_unique(place: Path, clip_ids: pl.Series) -> None:
    repeated = clip_ids.filter(clip_ids.is_duplicated())
    if len(repeated):
        raise EarmarkError(f"{place}: clip {repeated[0]!r} is listed more than once")


def _log_mel_format(params: FrontEndParams) -> FrameFormat:
    return FrameFormat(
        n_bands=params.n_bands,
        dtype="float16",
        patch_frames=params.patch_frames,
        patch_hop_frames=params.patch_hop_frames,
        front_end=params.model_dump(),
    )


def _file_fingerprint(path: Path) -> str | None:
    """Identify a file by its size and its two ends; None where it cannot be read.

    Times are left out, so that a copy is the same file; the middle is left out, so that an hour
    cut into hundreds of clips is not read hundreds of times.
    """
    try:
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            n_bytes = os.fstat(file.fileno()).st_size
            head = file.read(SOURCE_EDGE_BYTES)
            file.seek(max(n_bytes - SOURCE_EDGE_BYTES, 0))
            return _fingerprint(str(n_bytes).encode(), head, file.read(SOURCE_EDGE_BYTES))
    except OSError:
        return None


def _fingerprint(*pieces: bytes) -> str:
    return hashlib.blake2b(b"|".join(pieces), digest_size=8).hexdigest()


def _shard_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05d}.npy"


def _part_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05d}.parquet"
