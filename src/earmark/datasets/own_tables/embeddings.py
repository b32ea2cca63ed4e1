"""Embeddings made elsewhere, brought into the frame store.

Either a folder with one ``CLIPID.npy`` per clip, [frame, dim] or [dim], or one ``.npy`` for all
clips in their order, [clip, dim] or [clip, frame, dim]. Clips that have none are quarantined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import FrameStore, write_store
from earmark.datasets.quarantine import write_quarantine
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError, told_briefly
from earmark.runs import AUDIO_SUFFIXES, SILENT, Meter, Progress, refuse_long_header


def write_embeddings(
    workspace: Workspace, embeddings: Path, progress: Progress = SILENT
) -> FrameStore:
    """Write a workspace's frames from a folder of arrays or from one array of all clips.

    A patch is one frame. float64 is stored as float32, any other type of numbers as it is. Clips
    whose array is missing, damaged, not finite or of another width go to the quarantine.
    """
    clips = workspace.clips
    if not embeddings.exists():
        raise EarmarkError(f"{embeddings}: no such file or folder of embeddings")
    reasons: dict[str, str] = {}
    meter = progress.job("embeddings", len(clips), "clips")
    usable = _usable(_all_frames(embeddings, clips["clip_id"]), reasons, meter)
    try:
        store = write_store(workspace.frames_folder, usable)
    except EarmarkError:
        if not reasons:
            raise
        clip_id, reason = next(iter(reasons.items()))
        raise EarmarkError(
            f"{embeddings}: not one of the {len(reasons):,} clips has a usable embedding; the "
            f"first is {clip_id!r}: {reason}"
        ) from None
    said = pl.col("clip_id").replace_strict(reasons, default=None, return_dtype=pl.String)
    write_quarantine(workspace, clips.with_columns(reason=said).drop_nulls("reason"))
    return store


def _usable(
    clips: Iterable[tuple[str, NDArray[Any] | str]], reasons: dict[str, str], meter: Meter
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the clips that fit the first of them; note in ``reasons`` why others do not."""
    expected: tuple[int, np.dtype[Any]] | None = None
    for clip_id, frames in clips:
        meter.advance(1)
        reason = frames if isinstance(frames, str) else _fault(frames, expected)
        if reason or isinstance(frames, str):
            reasons[clip_id] = reason
            continue
        expected = frames.shape[1], frames.dtype
        yield clip_id, frames


def _all_frames(embeddings: Path, clip_ids: pl.Series) -> Iterator[tuple[str, NDArray[Any] | str]]:
    """Yield each clip and its frames [frame, dim], or the reason why there are none."""
    if embeddings.is_dir():
        for clip_id in clip_ids.to_list():
            frames = _read_array(_array_path(embeddings, clip_id))
            yield clip_id, frames if isinstance(frames, str) else _as_frames(frames)
        return
    array = _read_array(embeddings)
    if isinstance(array, str):
        raise EarmarkError(f"{embeddings}: {array}")
    if len(array) != len(clip_ids):
        raise EarmarkError(
            f"{embeddings} has embeddings of {len(array):,} clips, the dataset {len(clip_ids):,}; "
            "expected [clip, dim] or [clip, frame, dim] in the order of the clips"
        )
    for clip_id, frames in zip(clip_ids.to_list(), array, strict=True):
        yield clip_id, _as_frames(frames)


def _array_path(folder: Path, clip_id: str) -> Path:
    """Return CLIPID.npy; a clip called ``a.wav`` may also have its embedding in ``a.npy``."""
    path = folder / f"{clip_id}.npy"
    has_ending = Path(clip_id).suffix.lower() in AUDIO_SUFFIXES
    return path if path.exists() or not has_ending else (folder / clip_id).with_suffix(".npy")


def _read_array(path: Path) -> NDArray[Any] | str:
    """Read an array without ever unpickling; a string says why it cannot be read."""
    try:
        refuse_long_header(path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        return f"no embedding file {path.name}"
    except Exception as error:  # numpy's reader of headers raises all kinds
        return f"not an .npy file of numbers ({told_briefly(error)})"
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu" or array.ndim == 0:
        return "not an .npy file of numbers"
    return array


def _as_frames(array: NDArray[Any]) -> NDArray[Any]:
    """Return [frame, dim] of [dim], and float32 of float64."""
    frames = np.asarray(array[None] if array.ndim == 1 else array)
    return frames.astype(np.float32) if frames.dtype == np.float64 else frames


def _fault(frames: NDArray[Any], expected: tuple[int, np.dtype[Any]] | None) -> str:
    """Say why frames cannot be stored beside the others; empty where they can."""
    if frames.ndim != 2 or frames.size == 0:
        return f"expected an array [frame, dim], got {list(frames.shape)}"
    if expected is not None and (frames.shape[1], frames.dtype) != expected:
        return (
            f"{frames.dtype} [frame, {frames.shape[1]}] where the first clip has "
            f"{expected[1]} [frame, {expected[0]}]"
        )
    if frames.dtype.kind == "f" and not np.isfinite(frames).all():
        return "the embedding holds NaN or infinity"
    return ""
