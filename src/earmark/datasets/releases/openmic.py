"""OpenMIC-2018: 20,000 clips of music, 20 instruments, and whether people were asked about each.

The release says which labels people were asked about (``Y_mask``) and how likely they make the
instrument (``Y_true``): those are explicit, present from 0.5 on, and the rest is implicit. Its
VGGish features become the frames, ten a clip, so that no audio needs to be decoded.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import write_store
from earmark.datasets.importer import ImportSummary
from earmark.datasets.workspace import write_dataset
from earmark.errors import EarmarkError, quoted, reader, reading
from earmark.labels import IMPLICIT, NOT_PRESENT, PRESENT, LabelSet, Ontology, complete_splits
from earmark.runs import SILENT, Progress, open_archive, read_json, read_source, writes

_PARTITIONS = {"split01_train.csv": "train", "split01_test.csv": "eval"}
"""The official partition and our splits; a tenth of train becomes tune."""

_PRESENT_FROM = 0.5
"""The probability from which people are taken to have heard the instrument."""


@dataclass(frozen=True)
class OpenMic:
    """The arrays of openmic-2018.npz.

    ``features`` uint8 [clip, frame, 128], ``probabilities`` float [clip, class], ``was_asked``
    bool [clip, class] and the ``sample_keys`` [clip], such as 000046_3840.
    """

    features: NDArray[np.uint8]
    probabilities: NDArray[np.float64]
    was_asked: NDArray[np.bool_]
    sample_keys: list[str]

    @property
    def states(self) -> NDArray[np.int8]:
        """The labels' states [clip, class]."""
        answers = np.where(self.probabilities >= _PRESENT_FROM, PRESENT, NOT_PRESENT)
        return np.where(self.was_asked, answers, IMPLICIT).astype(np.int8)


@writes("import", makes=True)
@reader("OpenMIC")
def import_openmic(
    root: Path, work: Path, *, replace: bool = False, progress: Progress = SILENT
) -> ImportSummary:
    """Write a workspace from OpenMIC's official folder ``root``, its frame store included.

    The folder holds openmic-2018.npz, class-map.json, partitions/ and, where it was kept, audio/.
    Every clip has its frames, so none counts as missing; clips without a file have a null path.
    Another dataset in the workspace is refused, unless ``replace`` says so.
    """
    data = read_npz(root / "openmic-2018.npz")
    class_ids = _class_ids(root / "class-map.json", data.was_asked.shape[1])
    labels = LabelSet.from_dense(data.states, data.sample_keys, class_ids)
    tracks = [key.split("_")[0] for key in data.sample_keys]
    split = complete_splits(labels, tracks, _official_splits(root, data.sample_keys))
    audio = [_audio_path(root, key) for key in data.sample_keys]
    times = pl.Series([None] * len(audio), dtype=pl.Float64)
    clips = pl.DataFrame(
        {
            "clip_id": data.sample_keys,
            "audio": pl.Series(audio, dtype=pl.String),
            "start_seconds": times,
            "end_seconds": times,
            "split": split,
            "source": tracks,
        }
    )
    workspace = write_dataset(work, clips, Ontology(class_ids), labels, replace=replace)
    write_store(workspace.frames_folder, _frames(data, progress))
    n_files = clips["audio"].count()
    notes = (
        f"VGGish features are the frames: go on with `earmark score {quoted(work)}`",
        f"{n_files:,} of {len(clips):,} sound files are there",
    )
    return ImportSummary(workspace, len(clips), len(clips), 0, notes)


def read_npz(path: Path) -> OpenMic:
    """Read the arrays and check that they belong together; nothing in the file is executed."""
    if not path.exists():
        raise EarmarkError(f"{path}: no such file; unpack openmic-2018-v1.0.0.tgz")
    with reading(path, "OpenMIC's file with X, Y_true, Y_mask and sample_key"):
        with open_archive(path) as members:
            features, said, mask = (members[name].read() for name in ("X", "Y_true", "Y_mask"))
            with members["sample_key"].open() as file:
                keys = _read_keys(io.BytesIO(file.read()))
        return _checked(path, features, said, mask, keys)


def _checked(
    path: Path,
    features: NDArray[Any],
    probabilities: NDArray[Any],
    mask: NDArray[Any],
    keys: list[str],
) -> OpenMic:
    """Refuse arrays that do not belong together, or hold what they cannot."""
    n_clips, shapes = len(keys), (features.shape, probabilities.shape, mask.shape)
    if (
        features.ndim != 3
        or mask.shape != probabilities.shape
        or {s[0] for s in shapes} != {n_clips}
    ):
        raise EarmarkError(
            f"{path}: X [clip, frame, 128], Y_true and Y_mask [clip, class] and sample_key [clip] "
            f"do not fit together: {shapes}, {n_clips}"
        )
    if features.min(initial=0) < 0 or features.max(initial=0) > 255:
        raise EarmarkError(f"{path}: X must hold bytes (0 to 255), got up to {features.max()}")
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise EarmarkError(f"{path}: Y_true must hold probabilities between 0 and 1")
    return OpenMic(features.astype(np.uint8), probabilities, mask.astype(bool), keys)


def _read_keys(content: io.BytesIO) -> list[str]:
    """Read ``sample_key``, which the official file stores as a pickle of texts.

    A pickle is a program. It is not run: its texts are listed from its instructions, in order.
    """
    version = np.lib.format.read_magic(content)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read_header:
        raise ValueError(f"sample_key is of numpy's format {version}")
    shape, _, dtype = read_header[version](content)
    if not dtype.hasobject:
        content.seek(0)
        return [str(key) for key in np.load(content, allow_pickle=False)]
    texts = [
        argument
        for _, argument, _ in pickletools.genops(content)
        if isinstance(argument, str) and _is_key(argument)
    ]
    if shape != (len(texts),) or len(set(texts)) < len(texts):
        raise ValueError(f"sample_key should hold {shape} different keys, got {len(set(texts))}")
    return texts


def _is_key(text: str) -> bool:
    """Tell a track and a start, such as 000046_3840, from the names in a pickle's instructions."""
    return text.replace("_", "").isdigit() and "_" in text


def _class_ids(path: Path, n_classes: int) -> tuple[str, ...]:
    if not path.exists():
        raise EarmarkError(f"{path}: no such file; it names OpenMIC's instruments")
    column_of: Any = read_json(path)
    if not isinstance(column_of, dict) or sorted(column_of.values()) != list(range(n_classes)):
        raise EarmarkError(
            f"{path}: expected {n_classes} instruments with their columns 0 to {n_classes - 1}"
        )
    return tuple(sorted(column_of, key=lambda name: int(column_of[name])))


def _official_splits(root: Path, keys: list[str]) -> pl.Series:
    split_of: dict[str, str] = {}
    for name, split in _PARTITIONS.items():
        table = read_source(root / "partitions" / name, header=("sample_key",))
        for key in table.rows["sample_key"].to_list():
            if split_of.setdefault(key, split) != split:
                raise EarmarkError(f"{table.path}: clip {key!r} is in both partitions")
    without = [key for key in keys if key not in split_of]
    if without:
        raise EarmarkError(
            f"{root / 'partitions'}: {len(without):,} clips are in no partition, such as "
            f"{without[0]!r}; expected {' and '.join(_PARTITIONS)}"
        )
    return pl.Series([split_of[key] for key in keys], dtype=pl.String)


def _audio_path(root: Path, key: str) -> str | None:
    path = root / "audio" / key[:3] / f"{key}.ogg"
    return str(path.resolve()) if path.is_file() else None


def _frames(data: OpenMic, progress: Progress) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    meter = progress.job("features", len(data.sample_keys), "clips")
    for key, frames in zip(data.sample_keys, data.features, strict=True):
        yield key, frames
        meter.advance(1)
