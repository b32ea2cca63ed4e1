"""OpenMIC-2018: 20,000 clips of music, 20 instruments, and whether people were asked about each.

The release says which labels people were asked about (``Y_mask``) and how likely they make the
instrument (``Y_true``): those are explicit, present from 0.5 on, and the rest is implicit. Its
VGGish features become the frames, ten a clip, so that no audio needs to be decoded.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from earmark.audio import write_store
from earmark.compute import SILENT, Progress
from earmark.datasets.importer import ImportSummary
from earmark.datasets.workspace import write_dataset
from earmark.errors import EarmarkError, quoted, reader, reading
from earmark.labels import IMPLICIT, NOT_PRESENT, PRESENT, LabelSet, Ontology, complete_splits
from earmark.storage import AudioAccess, open_archive, read_json, read_source, writes

_PARTITIONS = {"split01_train.csv": "train", "split01_test.csv": "eval"}
"""The official partition and our splits; a tenth of train becomes tune."""


@writes("import", makes=True)
@reader("OpenMIC")
def import_openmic(
    root: Path,
    work: Path,
    *,
    allow: Sequence[Path] = (),
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from OpenMIC's official folder ``root``, its frame store included.

    The folder holds openmic-2018.npz, class-map.json, partitions/ and, where it was kept, audio/.
    Every clip has its frames, so none counts as missing; clips without a file have a null path.
    Links that lead out of ``root`` are refused, unless it is into one of ``allow``. Another dataset
    in the workspace is refused, unless ``replace`` says so.
    """
    path = root / "openmic-2018.npz"
    if not path.exists():
        raise EarmarkError(f"{path}: no such file; unpack openmic-2018-v1.0.0.tgz")
    expected = "OpenMIC's file with X, Y_true, Y_mask and sample_key"
    with reading(path, expected), open_archive(path) as members:
        features, likely, asked = (members[name].read() for name in ("X", "Y_true", "Y_mask"))
        with members["sample_key"].open() as file:
            keys = read_keys(file.read())
    n_clips = {len(keys), len(features), len(likely), len(asked)}
    if features.ndim != 3 or likely.shape != asked.shape or len(n_clips) > 1:
        shapes = features.shape, likely.shape, asked.shape, len(keys)
        raise EarmarkError(
            f"{path}: X, Y_true, Y_mask and sample_key do not fit together: {shapes}"
        )
    if features.min(initial=0) < 0 or features.max(initial=0) > 255:
        raise EarmarkError(f"{path}: X must hold bytes (0 to 255), got up to {features.max()}")
    if not ((likely >= 0) & (likely <= 1)).all():
        raise EarmarkError(f"{path}: Y_true must hold probabilities between 0 and 1")
    column_of: dict[str, int] = read_json(root / "class-map.json")
    class_ids = sorted(column_of, key=lambda name: int(column_of[name]))
    if sorted(column_of.values()) != list(range(asked.shape[1])):
        raise EarmarkError(f"{root / 'class-map.json'}: expected {asked.shape[1]} instruments")
    answers = np.where(likely >= 0.5, PRESENT, NOT_PRESENT)
    states = np.where(asked.astype(bool), answers, IMPLICIT).astype(np.int8)
    labels = LabelSet.from_dense(states, keys, class_ids)
    tracks = [key.split("_")[0] for key in keys]
    access = AudioAccess(root.resolve(), (root, *allow))
    names = [f"audio/{key[:3]}/{key}.ogg" for key in keys]
    audio = access.find_all(names, lambda row: f"{root}, clip {keys[row]!r}")
    no_times = pl.Series([None] * len(keys), dtype=pl.Float64)
    clips = pl.DataFrame(
        {
            "clip_id": keys,
            "audio": pl.Series(audio, dtype=pl.String),
            "start_seconds": no_times,
            "end_seconds": no_times,
            "split": complete_splits(labels, tracks, _read_splits(root, keys)),
            "source": tracks,
        }
    )
    ontology = Ontology(tuple(class_ids))
    workspace = write_dataset(work, clips, ontology, labels, access=access, replace=replace)
    meter = progress.job("features", len(keys), "clips")
    write_store(workspace.frames_folder, zip(keys, features.astype(np.uint8), strict=True))
    meter.advance(len(keys))
    notes = (
        f"VGGish features are the frames: go on with `earmark score {quoted(work)}`",
        f"{clips['audio'].count():,} of {len(clips):,} sound files are there",
    )
    return ImportSummary(workspace, len(clips), len(clips), 0, notes)


def read_keys(content: bytes) -> list[str]:
    """Read ``sample_key``, which the official file stores as a pickle of texts.

    A pickle is a program. It is not run: its texts are listed from its instructions, in order.
    """
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("sample_key is not of numpy's format 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if not dtype.hasobject:
        return [str(key) for key in np.load(io.BytesIO(content), allow_pickle=False)]
    texts = [text for _, text, _ in pickletools.genops(file) if isinstance(text, str)]
    keys = [text for text in texts if "_" in text and text.replace("_", "").isdigit()]
    if shape != (len(keys),) or len(set(keys)) < len(keys):
        raise ValueError(f"sample_key should hold {shape} different keys, got {len(set(keys))}")
    return keys


def _read_splits(root: Path, keys: list[str]) -> pl.Series:
    split_of: dict[str, str] = {}
    for name, split in _PARTITIONS.items():
        rows = read_source(root / "partitions" / name, header=("sample_key",)).rows
        split_of |= dict.fromkeys(rows["sample_key"].to_list(), split)
    without = [key for key in keys if key not in split_of]
    if without:
        raise EarmarkError(f"{root / 'partitions'}: clip {without[0]!r} is in no partition")
    return pl.Series([split_of[key] for key in keys], dtype=pl.String)
