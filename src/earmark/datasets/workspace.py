"""A workspace: one folder with the clips, classes and labels of a dataset and all that follows.

The paths of every stage are named here and nowhere else; what lies inside the folder of a store, a
network, scores or a report is the business of the module that writes it. Rows of
``clips.parquet`` give clips their order; every matrix [clip, class] in the workspace refers to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, about, counted, first_few, reading
from earmark.labels import LabelSet, Ontology
from earmark.storage import (
    AudioAccess,
    break_seal,
    digest,
    inside,
    is_finished,
    read_noted,
    read_table,
    refuse_written,
    write_json,
    write_table,
)

CLIP_SCHEMA = pl.Schema(
    {
        "clip_id": pl.String,
        "audio": pl.String,
        "start_seconds": pl.Float64,
        "end_seconds": pl.Float64,
        "split": pl.String,
        "source": pl.String,
    }
)
Split = Literal["train", "tune", "eval"]
SPLITS: tuple[Split, ...] = ("train", "tune", "eval")
HELD_OUT_SPLITS: tuple[Split, ...] = ("tune", "eval")
"""The splits that no teacher is trained on: where students are chosen and measured."""

AUDIO_FOLDER = "audio"
"""Where an import puts sounds that it makes or unpacks: the start of their paths in ``clips``."""


SCANNED_FOLDER = "workspace"
"""Where a scan that was given sounds keeps them, with labels and scores, within its folder."""


class _Place:
    """An attribute that is a path below the workspace's folder."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, workspace: Workspace, owner: type[Workspace]) -> Path:
        return workspace.root.joinpath(self._path)


@dataclass(frozen=True)
class Workspace:
    """The folder of one dataset."""

    root: Path

    clips_path = _Place("clips.parquet")
    """The clips and their order."""
    classes_path = _Place("classes.parquet")
    """The classes and their parents."""
    labels_path = _Place("labels.parquet")
    """The explicit labels, as given; written last, as the dataset's seal."""
    frames_folder = _Place("frames")
    """The frame store."""
    embeddings_folder = _Place("embeddings")
    """What a pretrained network hears, as frames: its embeddings."""
    outputs_folder = _Place("outputs")
    """What a pretrained network says by its own classes, as frames: its logits."""
    class_map_path = _Place("class_map.csv")
    """Which class of a pretrained network each class is; may be edited."""
    quarantine_path = _Place("quarantine.parquet")
    """Clips that could not be read, with reasons."""
    truth_path = _Place("truth.parquet")
    """All labels of a simulated dataset: used to judge, never to train."""
    flags_folder = _Place("flags")
    """Thresholds and flags."""
    flags_path = _Place("flags/flags.parquet")
    """The flags of one point, or of one target."""
    chances_path = _Place("flags/chances.npy")
    """Learnt chances that implicit labels are missing: log-odds of the train split's scores."""
    sweep_folder = _Place("sweep")
    """Results of the students of a sweep."""
    random_flags_folder = _Place("sweep/random")
    """Flags that were drawn at random, for the controls."""
    compare_folder = _Place("compare")
    """Results of a comparison of strategies."""
    report_folder = _Place("report")
    """The page, figures and tables."""
    report_page = _Place("report/index.html")
    """The page itself."""
    review_folder = _Place("review")
    """The queue of a review, and the raters' judgements."""
    queue_path = _Place("review/queue.parquet")
    """The items that raters are asked about, in their order."""
    queue_sizes_path = _Place("review/cells.parquet")
    """The sizes of the strata that the queue was drawn from."""
    candidates_path = _Place("review/candidates.npz")
    """Labels that a queue that learns may ask about."""
    drawn_path = _Place("review/drawn.sqlite")
    """The blocks that raters were given."""
    queue_seal_path = _Place("review/queue.json")
    """The digest of the queue, and of what it was drawn from; written last."""
    peaks_folder = _Place("review/peaks")
    """What the teacher says of each patch of the queue's clips: where to listen."""
    precision_path = _Place("review/precision.csv")
    """How many of the flags are right, by class and by band."""
    raters_path = _Place("review/raters.csv")
    """How good each rater is."""
    weighed_path = _Place("review/labels_by_raters.parquet")
    """The chance of every label that was heard, by all raters together."""
    judgements_path = _Place("review/judgements.sqlite")
    """The store of raters' judgements."""
    models_folder = _Place("models")
    """All trained networks, a folder each."""
    audio_access_path = _Place("sound_folders.json")
    """Where sound may be read from, as the import was told."""

    @classmethod
    def open(cls, root: str | Path) -> Workspace:
        """Open a workspace that already holds a dataset; a scan's folder may have one inside."""
        for workspace in (cls(Path(root)), cls(Path(root) / SCANNED_FOLDER)):
            if workspace.has_dataset():
                return workspace
        refuse_written(root)
        if (Path(root) / "wrong_positives.csv").exists():
            raise EarmarkError(
                f"{root}: a scan without sounds, which there is nothing to hear or to correct in; "
                "scan again with --sounds FOLDER"
            )
        raise EarmarkError(
            f"{root}: not a workspace (clips.parquet, classes.parquet and labels.parquet are not "
            "all there); make one with `earmark import`"
        )

    def __reduce__(self) -> tuple[type[Workspace], tuple[Path]]:
        """Send another process the folder's name, not the tables that were read from it."""
        return Workspace, (self.root,)

    def has_dataset(self) -> bool:
        """Tell whether clips, classes and labels are there."""
        return all(path.exists() for path in (self.clips_path, self.classes_path, self.labels_path))

    def has_frames(self) -> bool:
        """Tell whether the store of frames is finished."""
        return is_finished(self.frames_folder)

    def has_sound(self) -> bool:
        """Tell whether any clip has a sound file."""
        return bool(self.clips["audio"].is_not_null().any())

    def sweep_table_path(self, name: str) -> Path:
        """A table of a sweep: results, per_class or summary."""
        return self.sweep_folder / f"{name}.parquet"

    def student_scores_folder(self, name: str) -> Path:
        """Scores [clip, class] of one student, of a sweep or a comparison."""
        return inside(self.sweep_folder / "scores", name)

    def random_scores_path(self, name: str) -> Path:
        """Scores drawn at random, from which such flags are made."""
        return inside(self.random_flags_folder, f"{name}.npy")

    def compare_table_path(self, name: str) -> Path:
        """A table of a comparison: points or choices."""
        return self.compare_folder / f"{name}.parquet"

    def relabelled_folder(self, name: str) -> Path:
        """A label set corrected by judgements."""
        return inside(self.root / "relabelled", name)

    def model_folder(self, name: str) -> Path:
        """A trained network: parameters, weights, history."""
        return inside(self.models_folder, name)

    def scores_folder(self, name: str) -> Path:
        """Scores [clip, class] of one network."""
        return inside(self.root / "scores", name)

    @cached_property
    def clips(self) -> pl.DataFrame:
        """The clips, one row each, in the order that all matrices follow."""
        clips = read_table(self.clips_path, CLIP_SCHEMA)
        if clips["clip_id"].is_duplicated().any():
            raise EarmarkError(f"{self.clips_path}: a clip is listed twice")
        odd = clips.filter(~pl.col("split").is_in(SPLITS))
        if len(odd):
            raise EarmarkError(
                f"{self.clips_path}: clip {odd['clip_id'][0]!r} has split {odd['split'][0]!r}; "
                f"expected one of {', '.join(SPLITS)}"
            )
        return clips

    @cached_property
    def ontology(self) -> Ontology:
        """The classes."""
        with about(self.classes_path), reading(self.classes_path, "the classes of a workspace"):
            return Ontology.from_table(read_table(self.classes_path))

    @cached_property
    def labels(self) -> LabelSet:
        """The explicit labels of all clips, as given."""
        return self._read_labels(self.labels_path)

    @cached_property
    def truth(self) -> LabelSet | None:
        """The complete labels of a simulated dataset, where every implicit label is a true one."""
        return self._read_labels(self.truth_path) if self.truth_path.exists() else None

    def _read_labels(self, path: Path) -> LabelSet:
        return LabelSet.read(path, self.clips["clip_id"], self.ontology.class_ids)

    def rows(self, split: Split) -> NDArray[np.int64]:
        """Return the rows of ``clips`` that belong to a split."""
        return np.flatnonzero((self.clips["split"] == split).to_numpy())

    def has_held_out(self) -> bool:
        """Tell whether clips are in both splits where students are chosen and measured."""
        return set(HELD_OUT_SPLITS) <= set(self.clips["split"].unique())

    @cached_property
    def audio_digest(self) -> str:
        """Identifies the list of clips: their names, files and places."""
        columns = self.clips.select("clip_id", "audio", "start_seconds", "end_seconds")
        return digest(columns.write_csv())

    @cached_property
    def splits_digest(self) -> str:
        """Identifies which clip is in which split."""
        return digest(self.clips.select("clip_id", "split").write_csv())

    def audio_path(self, audio: str) -> Path:
        """Return the place of a clip's file; relative paths start at the workspace."""
        return self.root / audio

    def audio_place(self, audio: str) -> str | Path:
        """Return a clip's file to be opened, a URL or a path; UnreadableAudio if it may not be."""
        return self.audio_access.place(audio)

    @cached_property
    def audio_access(self) -> AudioAccess:
        """The files that clips may name: those in the workspace, and what the import was told."""
        if not self.audio_access_path.exists():
            return AudioAccess(self.root)
        noted = read_noted(self.audio_access_path)
        folders = tuple(Path(str(folder)) for folder in noted["folders"])
        return AudioAccess(self.root, folders, is_remote=noted["remote"] is True)


def write_dataset(
    root: str | Path,
    clips: pl.DataFrame,
    ontology: Ontology,
    labels: LabelSet,
    truth: LabelSet | None = None,
    *,
    access: AudioAccess | None = None,
    replace: bool = False,
) -> Workspace:
    """Write a dataset into a workspace folder; ``labels.parquet`` comes last, as its seal.

    ``access`` says where sound outside the workspace may be read from: its folders, and other
    machines. Without it no such sound is read.

    The very dataset that is there is left alone. Another one is refused, unless ``replace``: what
    was made of it then has to be made again (see :mod:`earmark.datasets.stamps`).
    """
    workspace = Workspace(Path(root))
    clips = clips.select(CLIP_SCHEMA.names()).cast(CLIP_SCHEMA)
    if workspace.has_dataset():
        changed = _differences(workspace, clips, ontology, labels, truth)
        if not changed:
            _write_access(workspace, access)
            return Workspace(workspace.root)
        if not replace:
            raise EarmarkError(
                f"{root}: there is a dataset in it already, with other {' and '.join(changed)}; "
                "nothing was changed. Give another folder, or --replace to put this in its place"
            )
        _make_way(workspace, changed)
    elif not workspace.audio_access_path.exists():  # which an import writes first
        refuse_others_files(workspace)
    _write_access(workspace, access)
    write_table(workspace.clips_path, clips)
    write_table(workspace.classes_path, ontology.to_table())
    if truth is not None:
        truth.write(workspace.truth_path)
    labels.write(workspace.labels_path)
    return Workspace(workspace.root)


def refuse_others_files(workspace: Workspace) -> None:
    """Refuse a folder that is no workspace and has files which those of one would replace."""
    paths = (
        workspace.clips_path,
        workspace.classes_path,
        workspace.labels_path,
        workspace.truth_path,
    )
    if names := [path.name for path in paths if os.path.lexists(path)]:
        raise EarmarkError(
            f"{workspace.root}: no import wrote {first_few(names)}, which the workspace would "
            "replace; nothing was changed. Give a new folder"
        )


def _write_access(workspace: Workspace, access: AudioAccess | None) -> None:
    access = access or AudioAccess(workspace.root)
    folders = [str(folder.absolute()) for folder in access.folders]
    noted, path = {"folders": folders, "remote": access.is_remote}, workspace.audio_access_path
    if not path.exists() or read_noted(path) != noted:
        write_json(path, noted)


def _differences(
    workspace: Workspace,
    clips: pl.DataFrame,
    ontology: Ontology,
    labels: LabelSet,
    truth: LabelSet | None,
) -> list[str]:
    """Name what is not the same in the dataset that is there."""
    splits = pl.col("split")
    pairs: dict[str, tuple[Any, Any]] = {
        "clips": (workspace.clips.drop("split"), clips.drop("split")),
        "splits": (workspace.clips.select("clip_id", splits), clips.select("clip_id", splits)),
        "classes": (workspace.ontology.to_table(), ontology.to_table()),
        "labels": (workspace.labels.digest, labels.digest),
        "truth": (workspace.truth and workspace.truth.digest, truth and truth.digest),
    }
    changed = [name for name, (before, now) in pairs.items() if not _is_same(before, now)]
    # Of other clips or classes the rest could not be the same.
    return [name for name in changed if name in ("clips", "classes")] or changed


def _is_same(before: Any, now: Any) -> bool:
    return bool(before.equals(now) if isinstance(before, pl.DataFrame) else before == now)


def _make_way(workspace: Workspace, changed: Sequence[str]) -> None:
    """Take away what would be wrong without a sign of it: other clips' frames, other truth."""
    workspace.labels_path.unlink()  # the seal: an interrupt leaves no mixture of two datasets
    workspace.truth_path.unlink(missing_ok=True)
    if "clips" in changed:
        stores = workspace.frames_folder, workspace.embeddings_folder, workspace.outputs_folder
        for folder in stores:
            break_seal(folder)  # frames that still hold are found again by `earmark features`


@dataclass(frozen=True)
class ImportSummary:
    """The outcome of one import: every listed clip was either found or is missing.

    ``notes`` are whole sentences about whatever a user should know: what was passed over and why,
    how columns were understood, what was written where.
    """

    workspace: Workspace
    n_listed: int
    n_found: int
    n_missing: int
    notes: tuple[str, ...] = ()

    @property
    def split_counts(self) -> dict[str, int]:
        """Listed clips of each split, in the order train, tune, eval; 0 where there are none."""
        counts = self.workspace.clips["split"].value_counts()
        by_split = dict(counts.select(pl.col("split"), pl.col("count")).iter_rows())
        return {split: by_split.get(split, 0) for split in SPLITS}

    def lines(self) -> list[str]:
        """Return the summary as lines to print: the sum, the splits, then each note."""
        splits = ", ".join(f"{split} {n:,}" for split, n in self.split_counts.items())
        listed = f"{counted(self.n_listed, 'clip')} listed"
        return [
            f"{listed} = {self.n_found:,} found + {self.n_missing:,} missing",
            splits,
            *self.notes,
        ]
