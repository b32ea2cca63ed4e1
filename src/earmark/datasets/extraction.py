"""Extract frames from sound files into frame stores, one task for each shard.

A :class:`FeatureExtractor` turns a waveform into frames: the front end gives log-mel frames, a
pretrained network embeddings and outputs, one store each. A shard is written to a temporary file,
renamed, and completed by a table of its digests. An interrupted call resumes with the shards that
are missing; the bytes depend only on the clips and the extractor.

The quarantine lists the clips without frames and the reasons. Extraction and every importer of
embeddings rewrite it with the store; an empty list means that every clip has frames.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import (
    CLIPS_PER_SHARD,
    LAYOUT_VERSION,
    YAMNET,
    FrameFormat,
    FrameStore,
    Row,
    UnreadableAudio,
    content_digest,
    damage,
    file_fingerprint,
    log_mel,
    open_shard,
    part_path,
    read_clip,
    read_part,
    seal_store,
    shard_path,
    size_and_time,
    source_of,
    suspect_files,
    write_part,
)
from earmark.compute import FOUND, HERE, SILENT, AsOneJob, Engine, Meter, Progress, Task
from earmark.config import FrontEndParams
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError, EarmarkWarning, counted, first_few
from earmark.storage import (
    AudioAccess,
    break_seal,
    check_unique,
    digest,
    is_current,
    is_finished,
    local_copy,
    read_seal,
    read_table,
    write_table,
)


class FeatureExtractor(Protocol):
    """Turns waveforms into frames. It is sent to worker processes, so it loads models lazily."""

    @property
    def digest(self) -> str:
        """Identifies the extractor and its parameters."""

    @property
    def sample_rate_hz(self) -> int:
        """Of the waveforms that it takes."""

    @property
    def formats(self) -> tuple[FrameFormat, ...]:
        """What it makes: a kind of frames for each store."""

    def frames(self, waveform: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
        """Return the frames [frame, band] of a waveform [sample], one array for each format."""


@dataclass(frozen=True)
class LogMelExtractor:
    """The log-mel front end."""

    params: FrontEndParams

    @property
    def digest(self) -> str:
        """Identifies the parameters."""
        return self.params.digest()

    @property
    def sample_rate_hz(self) -> int:
        """Of the waveforms that it takes."""
        return self.params.sample_rate_hz

    @property
    def formats(self) -> tuple[FrameFormat, ...]:
        """Log-mel frames as float16."""
        return (
            FrameFormat(
                n_bands=self.params.n_bands,
                dtype="float16",
                patch_frames=self.params.patch_frames,
                patch_hop_frames=self.params.patch_hop_frames,
                front_end=self.params.model_dump(),
            ),
        )

    def frames(self, waveform: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
        """Return log-mel frames."""
        return (log_mel(waveform, self.params).astype(np.float16),)


def extract_frames(
    workspace: Workspace,
    params: FrontEndParams = YAMNET,
    *,
    clips_per_shard: int = CLIPS_PER_SHARD,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> FrameStore:
    """Write the log-mel frames of a workspace's clips, and the quarantine of unreadable ones.

    A store of frames from elsewhere (embeddings that an import brought) is just opened.
    """
    folder = workspace.frames_folder
    if is_finished(folder) and read_seal(folder).get("front_end") is None:
        return FrameStore.open(folder)
    (store,) = write_frames(
        workspace,
        LogMelExtractor(params),
        (folder,),
        label="features",
        clips_per_shard=clips_per_shard,
        engine=engine,
        progress=progress,
    )
    return store


def write_frames(
    workspace: Workspace,
    extractor: FeatureExtractor,
    folders: tuple[Path, ...],
    *,
    label: str,
    clips_per_shard: int = CLIPS_PER_SHARD,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> tuple[FrameStore, ...]:
    """Write an extractor's frames of a workspace's clips, one store for each of its formats.

    Shards that are there already are kept, unless a file of theirs has changed since; stores that
    are complete are just opened. Clips that cannot be read are quarantined. Raises EarmarkError
    where not one clip can be read.
    """
    shards = _plan(workspace, extractor, folders, clips_per_shard)
    finished = [_check_shard(shard) for shard in shards]
    pending = [shard for shard, found in zip(shards, finished, strict=True) if not found.parts]
    if pending:
        _warn_replaced([file for found in finished for file in found.replaced_files])
        meter = progress.job(label, len(workspace.clips), "clips")
        meter.advance(len(workspace.clips) - sum(len(shard.clips) for shard in pending), FOUND)
        _extract_shards(label, pending, engine, AsOneJob(meter))
    for at, (folder, frame_format) in enumerate(zip(folders, extractor.formats, strict=True)):
        parts = pl.concat(
            [
                found.parts[at] if found.parts else read_part(folder, shard.number)
                for shard, found in zip(shards, finished, strict=True)
            ]
        )
        store_digest = content_digest(parts, frame_format, workspace.audio_digest)
        if not is_current(folder, store_digest):
            _quarantine(workspace, parts)
            seal_store(folder, parts, frame_format, store_digest)
    return tuple(FrameStore.open(folder) for folder in folders)


def _warn_replaced(places: Sequence[str | Path]) -> None:
    if places:
        n_files = counted(len(places), "sound file")
        message = f"{n_files} changed since frames were made of them, which is done anew"
        warnings.warn(f"{message}: {first_few(map(str, places))}", EarmarkWarning, stacklevel=4)


def _extract_shards(
    label: str, shards: Sequence[_Shard], engine: Engine, progress: Progress
) -> None:
    # An older seal must not stand beside newer frames. It goes here and not in the tasks, so that
    # a task which runs twice takes away nothing that its twin has finished.
    for folder in shards[0].folders:
        break_seal(folder)
        for shard in shards:
            part_path(folder, shard.number).unlink(missing_ok=True)
    engine.map(
        [
            Task(
                f"{label}, shard {shard.number}",
                _extract_shard,
                {"shard": shard},
                len(shard.clips),
                "clips",
                stage="features",
            )
            for shard in shards
        ],
        progress,
    )


@dataclass(frozen=True)
class _Shard:
    """One task of the extraction: the frames of some clips, in each of the stores."""

    folders: tuple[Path, ...]
    number: int
    clips: pl.DataFrame
    access: AudioAccess
    extractor: FeatureExtractor

    @cached_property
    def digest(self) -> str:
        """Identifies the extractor and the clips of this shard."""
        return digest(LAYOUT_VERSION, self.extractor.digest, self.clips.write_csv())


def _plan(
    workspace: Workspace,
    extractor: FeatureExtractor,
    folders: tuple[Path, ...],
    clips_per_shard: int,
) -> list[_Shard]:
    """Cut the clips into shards; the cut depends on nothing but their number."""
    clips = workspace.clips.select("clip_id", "audio", "start_seconds", "end_seconds")
    if len(clips) == 0:
        raise EarmarkError(f"{workspace.root}: the workspace has no clips to extract frames from")
    check_unique(clips["clip_id"], f"{workspace.root}: clip")
    n_clips = max(-(-len(clips) // _MIN_SHARDS), _MIN_CLIPS_PER_SHARD)
    n_clips = min(n_clips, clips_per_shard)
    return [
        _Shard(folders, number, part, workspace.audio_access, extractor)
        for number, part in enumerate(clips.iter_slices(n_clips))
    ]


@dataclass(frozen=True)
class _Check:
    """What is on disk of a shard: its tables, one per store, none where it must be extracted."""

    parts: tuple[pl.DataFrame, ...] = ()
    replaced_files: tuple[str | Path, ...] = ()


def _check_shard(shard: _Shard) -> _Check:
    """Check that a shard is complete, of these clips, and its files the same as when it was made.

    A file that could not be read is looked at again: a drive may not have been mounted.
    """
    checks = [
        _check_part(shard, folder, frame_format)
        for folder, frame_format in zip(shard.folders, shard.extractor.formats, strict=True)
    ]
    parts = tuple(part for check in checks for part in check.parts)
    return _Check(parts if len(parts) == len(checks) else (), checks[0].replaced_files)


def _check_part(shard: _Shard, folder: Path, frame_format: FrameFormat) -> _Check:
    if not part_path(folder, shard.number).exists():
        return _Check()
    part = read_part(folder, shard.number)
    if not (part["digest"] == shard.digest).all():
        return _Check()
    suspects = suspect_files(shard.access.base, part, shard.clips)
    seen = [(suspect, size_and_time(suspect.place)) for suspect in suspects]
    replaced = [suspect for suspect in suspects if suspect.is_other()]
    if replaced:
        return _Check(replaced_files=tuple(suspect.place for suspect in replaced))
    n_frames = int(part["n_frames"].sum())
    if damage(shard_path(folder, shard.number), n_frames, frame_format):
        return _Check()
    unread = part.with_columns(shard.clips["audio"]).filter(pl.col("reason").is_not_null())
    unread = unread.drop_nulls("audio").unique("audio").select("audio", "source")
    if any(source_of(shard.access, audio) != source for audio, source in unread.iter_rows()):
        return _Check()
    if seen:  # moved or copied: note size and time, so that they are not read again
        files = [(suspect.audio, *now) for suspect, now in seen]
        columns = {"audio": pl.String, "n_bytes": pl.Int64, "mtime_ns": pl.Int64}
        part = part.with_columns(shard.clips["audio"])
        part = part.update(pl.DataFrame(files, columns, orient="row"), on="audio").drop("audio")
        with suppress(OSError):  # a read-only folder
            write_part(folder, part)
    return _Check((part,))


def _extract_shard(shard: _Shard, meter: Meter) -> None:
    """Decode and transform the clips of one shard: the task of a worker.

    A shard that is there is left alone: a task is started again when only its answer was lost.
    """
    if _check_shard(shard).parts:
        meter.advance(len(shard.clips), FOUND)
        return
    formats = shard.extractor.formats
    with ExitStack() as stack:
        adders = [
            stack.enter_context(open_shard(folder, shard.number, shard.digest, frame_format))
            for folder, frame_format in zip(shard.folders, formats, strict=True)
        ]
        for rows in _extracted(shard, meter):
            for add, row in zip(adders, rows, strict=True):
                add(row)


def _extracted(shard: _Shard, meter: Meter) -> Iterator[list[Row]]:
    """Yield the rows of one clip after the other, one for each store."""
    for audio, clips in itertools.groupby(shard.clips.iter_rows(), key=lambda clip: clip[1]):
        for rows in _extract_file(shard, audio, [(name, *span) for name, _, *span in clips], meter):
            yield rows
            meter.advance(1)


def _extract_file(
    shard: _Shard, audio: str | None, clips: Sequence[tuple[Any, ...]], meter: Meter
) -> Iterator[list[Row]]:
    """Extract clips (identifier, start, end) of one file, which is fetched once."""
    n_stores = len(shard.folders)
    if audio is None:
        reason = "no audio file given"
        yield from ([Row(clip_id, None, None, reason)] * n_stores for clip_id, *_ in clips)
        return
    try:
        place = shard.access.place(audio)
        file = size_and_time(place)
        with local_copy(place) as path:
            source = file_fingerprint(path)
            for clip_id, *span in clips:
                meter.advance(0, f"clip {clip_id}")  # the last word, should it end the process
                rows = _extract(path, source, shard.extractor, clip_id, *span)
                yield [replace(row, file=file) for row in rows]
    except UnreadableAudio as error:  # not even the file could be fetched
        yield from ([Row(clip_id, None, None, error.reason)] * n_stores for clip_id, *_ in clips)


def _extract(
    path: Path,
    source: str | None,
    extractor: FeatureExtractor,
    clip_id: str,
    start_seconds: float | None,
    end_seconds: float | None,
) -> list[Row]:
    try:
        waveform = read_clip(path, extractor.sample_rate_hz, start_seconds, end_seconds)
    except UnreadableAudio as error:
        return [Row(clip_id, None, source, error.reason)] * len(extractor.formats)
    try:
        found = extractor.frames(waveform)
    except EarmarkError as error:
        raise EarmarkError(f"clip {clip_id!r}: {error}") from None
    return [Row(clip_id, frames, source) for frames in found]


def _quarantine(workspace: Workspace, parts: pl.DataFrame) -> None:
    """List the clips without frames; refuse to go on where that is all of them."""
    audio = workspace.clips["audio"].cast(pl.String)
    unread = parts.with_columns(audio).filter(pl.col("reason").is_not_null())
    write_quarantine(workspace, unread)
    if len(unread) == len(parts):
        raise EarmarkError(
            f"none of the {len(parts):,} clips of {workspace.root} could be read; the first is "
            f"{unread['audio'][0]}: {unread['reason'][0]}. Is the audio where clips.parquet says? "
            f"All reasons are in {workspace.quarantine_path}"
        )


_N_REASONS = 4
"""Reasons that are told before the file is named."""

QUARANTINE_SCHEMA = pl.Schema({"clip_id": pl.String(), "audio": pl.String(), "reason": pl.String()})
"""``audio`` is null where no file was found; the others never are."""


def write_quarantine(workspace: Workspace, unread: pl.DataFrame) -> None:
    """Write the clips that have no frames: the columns of QUARANTINE_SCHEMA, others left out."""
    rows = unread.select(QUARANTINE_SCHEMA.names()).cast(QUARANTINE_SCHEMA)
    write_table(workspace.quarantine_path, rows)


def quarantine_told(workspace: Workspace) -> list[str]:
    """Say why clips have no frames: a line for each of the commonest reasons, and the file."""
    unread = read_quarantine(workspace)
    if unread.is_empty():
        return []
    reasons = unread.group_by("reason").agg("clip_id", n=-pl.len().cast(pl.Int64))
    lines = [
        f"  {-n:,} x {reason}: {first_few(clips)}"
        for reason, clips, n in reasons.sort("n", "reason").head(_N_REASONS).iter_rows()
    ]
    n_more = len(reasons) - _N_REASONS
    rest = f"{n_more:,} more reasons, and all clips" if n_more > 0 else "all of them"
    return [*lines, f"  {rest}: {workspace.quarantine_path}"]


def read_quarantine(workspace: Workspace) -> pl.DataFrame:
    """Read the clips that have no frames; none where no frames were ever made."""
    if not workspace.quarantine_path.exists():
        return pl.DataFrame(schema=QUARANTINE_SCHEMA)
    return read_table(workspace.quarantine_path)


_MIN_SHARDS, _MIN_CLIPS_PER_SHARD = 32, 16
"""Smaller sets get smaller shards, so that all cores have work; never by the number of cores."""
