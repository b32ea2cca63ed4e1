"""Scores by a teacher from elsewhere: an ONNX model instead of a network trained here.

What comes out (logits or probabilities) is told from the model's first outputs, and can be said. A
clip's score is the mean output over whatever parts the model hears it in, stored as a logit, as in
:mod:`earmark.networks.clip_scores`. Classes that the model lacks are unscored: NaN, never flagged.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import FrameStore, read_clip
from earmark.datasets import Workspace, readable_clips, write_scores, write_stamp
from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology
from earmark.networks import ForeignModel, open_session, sum_outputs
from earmark.pretrained import ClassMap, map_by_names, read_class_map
from earmark.runs import (
    FOUND,
    HERE,
    SILENT,
    AsOneJob,
    Engine,
    Meter,
    Progress,
    Task,
    digest,
    is_current,
    seal_path,
    write_aside,
)
from earmark.scores import UNLOCATED, Origin, Scale, ScoreFolder, rows_of, scale_of, write_logits

_TRIED_CLIPS = 8
"""Clips whose outputs tell probabilities from logits."""

_MOST_PATCHES_IN_PART = 2
"""Patches under one part of a clip that a model hears, for its best part to tell a place."""

CLIPS_PER_PART = 256
"""Clips scored in one task; finished parts survive an interrupt."""


@dataclass(frozen=True)
class TeacherScores:
    """Scores by a teacher from elsewhere, and what the user should know about them."""

    scores: ScoreFolder
    scale: Scale
    unscored: tuple[str, ...]
    """Classes of the workspace that no output of the model stands for."""
    warnings: tuple[str, ...] = ()


def score_by_teacher(
    workspace: Workspace,
    name: str,
    teacher: ForeignModel,
    class_map: str | Path | None = None,
    *,
    skip_unknown: bool = False,
    scale: Scale | None = None,
    out_of_fold: bool = False,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> TeacherScores:
    """Score all clips that have frames with a model from elsewhere, under the name ``name``.

    ``class_map`` is a file (see :mod:`earmark.pretrained.class_maps`), needed unless the model
    names its classes itself. Nobody but the user knows whether the model was trained on these
    clips: ``out_of_fold`` says that it was not. Parts scored before an interrupt are found again.
    """
    store = FrameStore.open(workspace.frames_folder)
    readable_clips(workspace, store, "train")  # refuses where there is none
    sounds = _sounds(workspace, teacher, store)
    heard = pl.Series([sound.clip_id for sound in sounds])
    labels = workspace.labels.select(rows_of(heard, workspace.labels.clip_ids).to_numpy())
    tried = _outputs(teacher, sounds[:_TRIED_CLIPS])
    n_outputs, ontology = tried[0].shape[1], workspace.ontology
    chosen = _class_map(class_map, teacher, n_outputs, ontology, skip_unknown)
    job = _Job(teacher, sounds, chosen, scale or scale_of(np.concatenate(tried)), labels)
    folder = workspace.scores_folder(name)
    run_digest = digest(job.digest, out_of_fold, workspace.splits_digest)
    warnings: list[str] = []
    if not is_current(folder, run_digest):
        values, best = job.run(folder, engine, progress)
        logits = values.astype(np.float32)
        if job.scale == "probabilities":
            logits, warnings = _to_logits(folder, labels, values)
        write_scores(
            workspace,
            name,
            labels.clip_ids,
            logits,
            best,
            out_of_fold=out_of_fold,
            digest=run_digest,
            origin=Origin.at("model", teacher.path),
        )
    write_stamp(workspace, seal_path(folder), of_frames=store.folder)
    unscored = tuple(chosen.unscored(ontology))
    return TeacherScores(ScoreFolder.open(folder), job.scale, unscored, tuple(warnings))


@dataclass(frozen=True)
class _Sound:
    """What a teacher hears of one clip: its audio, or its patches in a store."""

    clip_id: str
    audio: str | Path | None
    start_seconds: float | None
    end_seconds: float | None
    store: FrameStore
    store_row: int

    @property
    def n_patches(self) -> int:
        return int(self.store.n_patches[self.store_row])

    def read(self, teacher: ForeignModel) -> NDArray[np.float32]:
        """Return a waveform [1, sample] or patches [patch, frame, band]."""
        if teacher.kind == "patches":
            which = np.arange(self.n_patches)
            patches = self.store.patches(np.full(len(which), self.store_row), which)
            return patches.astype(np.float32)
        if self.audio is None:
            raise EarmarkError(
                f"clip {self.clip_id!r} has no audio, and {teacher.path} hears waveforms; give a "
                "model that hears log-mel patches"
            )
        span = (self.start_seconds, self.end_seconds)
        return read_clip(self.audio, teacher.sample_rate_hz, *span)[None]


def _sounds(workspace: Workspace, teacher: ForeignModel, store: FrameStore) -> list[_Sound]:
    if teacher.kind == "patches":
        _check_patches(teacher, store)
    rows = {clip_id: row for row, clip_id in enumerate(store.clip_ids)}
    columns = workspace.clips.select("clip_id", "audio", "start_seconds", "end_seconds")
    return [
        _Sound(clip_id, audio and workspace.audio_place(audio), start, end, store, rows[clip_id])
        for clip_id, audio, start, end in columns.iter_rows()
        if clip_id in rows
    ]


@dataclass(frozen=True)
class _Job:
    """All that the scores depend on."""

    teacher: ForeignModel
    sounds: Sequence[_Sound]
    class_map: ClassMap
    scale: Scale
    labels: LabelSet

    @property
    def digest(self) -> str:
        frames = self.sounds[0].store.digest
        clips = [sound.clip_id for sound in self.sounds]
        mapped = (self.class_map.outputs, self.class_map.columns, self.labels.class_ids)
        return digest(self.teacher.digest, frames, clips, mapped, self.scale)

    def run(
        self, folder: Path, engine: Engine, progress: Progress
    ) -> tuple[NDArray[np.float64], NDArray[np.uint16]]:
        """Score all clips part by part; return scores and best patches [clip, class]."""
        parts = folder / f"parts-{self.digest}"
        starts = range(0, len(self.sounds), CLIPS_PER_PART)
        tasks = [self._task(start, parts / f"{start:08}.npz") for start in starts]
        meter = progress.job("scores", len(self.sounds), "clips")
        engine.map(tasks, AsOneJob(meter))
        values = np.full((len(self.sounds), self.labels.n_classes), np.nan)
        best = np.full(values.shape, UNLOCATED, np.uint16)
        for start in starts:
            chosen = np.ix_(
                range(start, min(start + CLIPS_PER_PART, len(values))), self.class_map.columns
            )
            with np.load(parts / f"{start:08}.npz") as part:
                values[chosen], best[chosen] = part["values"], part["best"]
        for finished in folder.glob("parts-*"):
            shutil.rmtree(finished)
        return values, best

    def _task(self, start: int, path: Path) -> Task:
        sounds = self.sounds[start : start + CLIPS_PER_PART]
        arguments = {
            "teacher": self.teacher,
            "sounds": sounds,
            "outputs": self.class_map.outputs,
            "scale": self.scale,
            "path": path,
        }
        return Task("scores", _score_part, arguments, len(sounds), "clips", stage="score")


def _score_part(
    teacher: ForeignModel,
    sounds: Sequence[_Sound],
    outputs: Sequence[int],
    scale: Scale,
    path: Path,
    meter: Meter,
) -> None:
    """Write the scores and best patches [clip, output] of some clips, unless they are there."""
    if path.exists():
        meter.advance(len(sounds), FOUND)
        return
    session = open_session(teacher.path)
    values = np.empty((len(sounds), len(outputs)))
    best = np.empty(values.shape, np.uint16)
    for place, sound in enumerate(sounds):
        found = teacher.outputs(session, sound.read(teacher))[:, outputs]  # [part, output]
        values[place] = _clip_score(teacher, sound, found, scale)
        best[place] = _best_patches(found, sound.n_patches)
        meter.advance(1)
    with write_aside(path) as aside, aside.open("wb") as file:
        np.savez(file, values=values, best=best)


def _best_patches(found: NDArray[np.float32], n_patches: int) -> NDArray[np.int64]:
    """Return the patch at the middle of the best part [output], given outputs [part, output].

    A model that hears a clip whole, or in long parts, does not say where in them.
    """
    n_parts = len(found)
    if n_parts * _MOST_PATCHES_IN_PART < n_patches:
        return np.full(found.shape[1], UNLOCATED)
    return np.asarray((2 * found.argmax(axis=0) + 1) * n_patches // (2 * n_parts))


def _clip_score(
    teacher: ForeignModel, sound: _Sound, found: NDArray[np.float32], scale: Scale
) -> NDArray[np.float64]:
    """Return the mean output over parts, as it came: a logit, or a probability."""
    if not np.isfinite(found).all():
        raise EarmarkError(f"{teacher.path}: clip {sound.clip_id!r} got NaN or infinite outputs")
    if scale == "logits":
        present, absent = sum_outputs(found)
        return np.asarray((np.log(present) - np.log(absent))[0])
    if found.min() < 0 or found.max() > 1:
        raise EarmarkError(
            f"{teacher.path}: clip {sound.clip_id!r} got an output of "
            f"{found.min() if found.min() < 0 else found.max():g}, which is no probability; if "
            "the outputs are logits, say so with --scale logits"
        )
    return np.asarray(found.mean(axis=0, dtype=np.float64))


def _to_logits(
    folder: Path, labels: LabelSet, probabilities: NDArray[np.float64]
) -> tuple[NDArray[np.float32], list[str]]:
    """Return logits, 0 and 1 moved to finite places, and warnings about ties."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        given, found = Path(place, "probabilities.npy"), Path(place, "logits.npy")
        np.save(given, probabilities)
        warnings = write_logits(given, labels, found)
        return np.load(found), warnings


def _class_map(
    path: str | Path | None,
    teacher: ForeignModel,
    n_outputs: int,
    ontology: Ontology,
    skip_unknown: bool,
) -> ClassMap:
    """Read the class map, or take the names that the model carries."""
    names = teacher.class_ids
    if path is not None:
        return read_class_map(path, ontology, n_outputs, names, skip_unknown=skip_unknown)
    if len(names) != n_outputs:
        raise EarmarkError(
            f"{teacher.path}: the model does not name its {n_outputs:,} outputs; say with "
            "--class-map which class each of them stands for"
        )
    return map_by_names(teacher.path, names, ontology, skip_unknown=skip_unknown)


def _outputs(teacher: ForeignModel, sounds: Sequence[_Sound]) -> list[NDArray[np.float32]]:
    session = open_session(teacher.path)
    return [teacher.outputs(session, sound.read(teacher)) for sound in sounds]


def _check_patches(teacher: ForeignModel, store: FrameStore) -> None:
    stored = (store.patch_frames, store.n_bands)
    asked = teacher.input_shape[-2:]
    if any(n not in (None, ours) for n, ours in zip(asked, stored, strict=True)):
        hint = "; is it the transpose that it wants?" if asked == stored[::-1] else ""
        raise EarmarkError(
            f"{teacher.path}: it hears patches {list(asked)} [frame, band], the workspace has "
            f"{list(stored)}{hint}"
        )
