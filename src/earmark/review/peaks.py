"""Where to listen: the patches of a clip at which the teacher is surest of a class.

Scores tell the best patch of every clip and class. The next-best ones need the teacher itself: the
very network that scored the clip, which out of fold is the one that never saw it. Where that
network is not at hand (scores from elsewhere, labels changed since), the best patch is all there
is (of clips that no network was trained on, too), and the clip's start without patches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from earmark.audio import FrameStore
from earmark.datasets import ReadableClips, Workspace, readable_clips
from earmark.runs import (
    SILENT,
    FrontEndParams,
    NetworkParams,
    Progress,
    Recipe,
    break_seal,
    digest,
    is_current,
    read_table,
    seal,
    write_table,
)
from earmark.scores import ScoreFolder
from earmark.training import networks_behind

_N_PEAKS = 6
"""Peaks of a clip that the page tours through, the best included."""

_PEAK_SCHEMA = pl.Schema(
    {"clip_id": pl.String(), "class_id": pl.String(), "outputs": pl.List(pl.Float32)}
)


@dataclass(frozen=True)
class Peaks:
    """Where to listen to clips for classes; ``outputs`` holds what the teacher said of patches.

    ``outputs[clip_id, class_id]`` float32 [patch] are probabilities; labels without an entry have
    their best patch only. Times are in seconds from the clip's start.
    """

    scores: ScoreFolder
    hop_seconds: float
    patch_seconds: float
    outputs: Mapping[tuple[str, str], NDArray[np.float32]] = field(default_factory=dict)

    def times(self, clip_id: str, class_id: str) -> list[float]:
        """Return the starts of the best patches that do not overlap, the best one first."""
        outputs = self.outputs.get((clip_id, class_id))
        if outputs is None or not len(outputs):
            return [round(self._best_patch(clip_id, class_id) * self.hop_seconds, 3)]
        chosen: list[float] = []
        for patch in np.argsort(-outputs, kind="stable"):
            start = float(patch) * self.hop_seconds
            # Patches that merely touch are other sounds; a rounding error must not merge them.
            if all(abs(start - other) > self.patch_seconds - 1e-6 for other in chosen):
                chosen.append(round(start, 3))
        return chosen[:_N_PEAKS]

    def patches(self, clip_id: str, class_id: str) -> list[dict[str, float]]:
        """Return start, end and chance of each patch; empty where they are not known."""
        outputs = self.outputs.get((clip_id, class_id), ())
        return [
            {
                "start": patch * self.hop_seconds,
                "end": patch * self.hop_seconds + self.patch_seconds,
                "chance": float(output),
            }
            for patch, output in enumerate(outputs)
        ]

    def _best_patch(self, clip_id: str, class_id: str) -> int:
        row, best = self.scores.clip_ids.index_of(clip_id), self.scores.best_patches
        if best is None or row is None or class_id not in self.scores.class_ids:
            return 0
        return int(best[row, self.scores.class_ids.index(class_id)])


def find_peaks(
    workspace: Workspace,
    recipe: Recipe,
    scores: ScoreFolder,
    store: FrameStore | None,
    wanted: pl.DataFrame,
    progress: Progress = SILENT,
) -> Peaks:
    """Find where to listen for the labels ``wanted`` (clip_id, class_id).

    Runs the teacher over their clips once and keeps its outputs in ``review/peaks``.
    """
    front_end = recipe.front_end
    if store is not None and store.meta.front_end is not None:
        front_end = FrontEndParams.model_validate(store.meta.front_end)
    hop = front_end.patch_hop_samples / front_end.sample_rate_hz
    length = front_end.patch_frames * front_end.hop_seconds
    peaks = Peaks(scores, hop, length)
    if store is None or recipe.teacher.model.is_probe:
        return peaks
    clips = readable_clips(workspace, store, "train")
    of_train = ScoreFolder.open(workspace.scores_folder(recipe.teacher.name))
    networks = networks_behind(of_train, workspace, recipe.teacher, recipe.cross_fit, clips, store)
    if networks is None:
        return peaks
    wanted = wanted.select("clip_id", "class_id").unique().sort("clip_id", "class_id")
    folder = workspace.peaks_folder
    run_digest = digest(scores.digest, wanted.write_csv())
    if not is_current(folder, run_digest):
        rows = _run_teacher(networks, clips, store, recipe.teacher, wanted, progress)
        break_seal(folder)
        write_table(folder / "outputs.parquet", pl.DataFrame(rows, _PEAK_SCHEMA, orient="row"))
        seal(folder, {"digest": run_digest})
    found = read_table(folder / "outputs.parquet")
    outputs = {(clip, label): np.array(o, np.float32) for clip, label, o in found.iter_rows()}
    return Peaks(scores, hop, length, outputs)


def _run_teacher(
    networks: list[tuple[Path, NDArray[np.int64]]],
    clips: ReadableClips,
    store: FrameStore,
    teacher: NetworkParams,
    wanted: pl.DataFrame,
    progress: Progress,
) -> Iterator[tuple[str, str, list[float]]]:
    """Yield clip_id, class_id and the outputs of its patches for the labels wanted."""
    import torch  # heavy: a page whose peaks are known does without it

    from earmark.networks import examples_of, load_network

    classes = dict(wanted.group_by("clip_id").agg("class_id").iter_rows())
    columns = {class_id: column for column, class_id in enumerate(clips.labels.class_ids)}
    meter = progress.job("peaks", len(classes), "clips")
    for folder, rows in networks:
        network = load_network(folder, store, clips.labels.class_ids)
        examples = examples_of(teacher.model, store, clips.store_rows[rows])
        for place, row in enumerate(rows):
            clip_id = clips.labels.clip_ids[int(row)]
            if clip_id not in classes:
                continue
            which = np.arange(examples.per_clip[place])
            with torch.inference_mode():
                logits = network(*examples.inputs(np.full_like(which, place), which))
            outputs = expit(logits.float().cpu().numpy())  # [patch, class]
            for class_id in classes[clip_id]:
                yield clip_id, class_id, outputs[:, columns[class_id]].tolist()
            meter.advance(1)
