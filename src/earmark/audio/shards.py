"""The files of a frame store: how a shard, its seal and the whole are written.

A shard is a plain array [frame, band] in ``shard-00000.npy`` with the frames of its clips one after
another; ``shard-00000.parquet``, written when the shard is in place, is its seal and says where
each clip lies. ``index.parquet`` and at last ``meta.json`` seal the store (docs/file-formats.md).
Two processes that write the same shard write the same bytes, each to a name of its own, so a task
that runs twice does no harm.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import TypeAdapter

from earmark.errors import EarmarkError
from earmark.runs import digest, file_sha256, read_table, seal, write_aside, write_table

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
    heard_by: dict[str, Any] | None = None
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
        float((meta.heard_by or {}).get(name) or 0)
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


class ShardWriter:
    """Writes a shard row by row and, at the end of its context, its part of the index, the seal.

    An older seal is the caller's to remove: it must not stand beside newer frames. Where the
    context ends by an error, nothing is left.
    """

    def __init__(
        self, folder: Path, number: int, shard_digest: str, frame_format: FrameFormat
    ) -> None:
        self._part, self._digest, self._format = (
            part_path(folder, number),
            shard_digest,
            frame_format,
        )
        self._aside = write_aside(shard_path(folder, number))
        self._records: list[tuple[Any, ...]] = []
        self._n_written = 0

    def __enter__(self) -> ShardWriter:
        self._written = self._aside.__enter__()
        self._file = open(self._written, "wb")
        _write_header(self._file, self._n_written, self._format)
        return self

    def add(self, row: Row) -> None:
        """Append a clip."""
        n_frames = _write_frames(self._file, row, self._format)
        record = (row.clip_id, self._n_written, n_frames, row.source, row.reason, *row.file)
        self._records.append(record)
        self._n_written += n_frames

    def __exit__(self, *error: Any) -> None:
        with self._file:
            self._file.seek(0)
            # numpy leaves room in the header for the first axis to grow: its length is the same.
            _write_header(self._file, self._n_written, self._format)
        sha256 = "" if error[0] else file_sha256(self._written)
        self._aside.__exit__(*error)
        if error[0] is None:
            records = [(*record, self._digest, sha256) for record in self._records]
            write_table(self._part, pl.DataFrame(records, _PART_SCHEMA, orient="row"))


def write_shard(
    folder: Path, number: int, shard_digest: str, rows: Iterable[Row], frame_format: FrameFormat
) -> None:
    """Write a shard and then its part of the index, which seals it (see :class:`ShardWriter`)."""
    with ShardWriter(folder, number, shard_digest, frame_format) as writer:
        for row in rows:
            writer.add(row)


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


def read_parts(folder: Path, n_shards: int) -> pl.DataFrame:
    """Return the seals of all shards as one table, with the shard's number."""
    parts = [pl.DataFrame(schema=_PART_SCHEMA)]
    for number in range(n_shards):
        part = read_part(folder, number)
        parts.append(part.with_columns(pl.lit(number, pl.Int64).alias("shard")))
    return pl.concat(parts, how="diagonal")


def read_part(folder: Path, number: int) -> pl.DataFrame:
    """Return the seal of a shard; what was not kept when it was made is null in it."""
    part = read_table(part_path(folder, number))
    return pl.concat([pl.DataFrame(schema=_PART_SCHEMA), part], how="diagonal")


def content_digest(parts: pl.DataFrame, frame_format: FrameFormat, clips_digest: str = "") -> str:
    """Identify the frames of a store, however they are spread over shards."""
    content = parts.select("clip_id", "n_frames", "source", "reason").write_csv()
    return digest(LAYOUT_VERSION, asdict(frame_format), clips_digest, content)


def seal_store(
    folder: Path, parts: pl.DataFrame, frame_format: FrameFormat, store_digest: str
) -> None:
    """Write the index and, when all else is in place, ``meta.json``."""
    index = parts.filter(pl.col("reason").is_null()).select(*INDEX_SCHEMA)
    meta = StoreMeta(
        **asdict(frame_format),
        n_clips=len(index),
        n_frames=int(index["n_frames"].sum()),
        n_shards=parts["shard"].n_unique(),
        digest=store_digest,
        files=_sha256_of_shards(parts),
    )
    _remove_leftovers(folder, meta.n_shards)
    write_table(folder / "index.parquet", index.rechunk())
    seal(folder, asdict(meta))


def _sha256_of_shards(parts: pl.DataFrame) -> dict[str, str]:
    known = parts.select("shard", "sha256").unique(maintain_order=True).drop_nulls()
    return {shard_path(Path(), number).name: sha256 for number, sha256 in known.iter_rows()}


def _remove_leftovers(folder: Path, n_shards: int) -> None:
    """Remove what an interrupted run or an earlier, larger store left behind."""
    numbers = range(n_shards)
    wanted = {path(folder, number) for path in (shard_path, part_path) for number in numbers}
    for pattern in ("shard-*.npy", "shard-*.parquet", ".*.partial"):
        for path in set(folder.glob(pattern)) - wanted:
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
