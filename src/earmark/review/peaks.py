"""Where to listen: the patches of a clip at which the teacher is surest of a class.

Scores tell the best patch of every clip and class. The next-best ones need the teacher itself: the
very network that scored the clip, which out of fold is the one that never saw it. Where that
network is not at hand (scores from elsewhere, labels changed since), the best patch is all there
is, and so it is of clips that no network was trained on. Where nobody knows the best patch either,
there is no place to name: the whole clip is heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.compute import (
    SILENT,
    Progress,
)
from earmark.config import (
    Recipe,
)
from earmark.datasets import ReadableClips, Workspace, readable_clips
from earmark.scores import UNLOCATED, ScoreFolder
from earmark.storage import (
    break_seal,
    is_current,
    is_finished,
    read_table,
    seal,
    write_table,
)
from earmark.training import networks_behind

_N_PEAKS = 6
"""Peaks of a clip that the page tours through, the best included."""

_APART_SECONDS = 0.96
"""Least time between two peaks: frames of embeddings may be shorter than a sound."""

_CLIPS_PER_PART = 64
"""Clips whose outputs are kept at a time."""

_OUTPUTS = "outputs.parquet"

_PEAK_SCHEMA = pl.Schema(
    {"clip_id": pl.String(), "class_id": pl.String(), "outputs": pl.List(pl.Float32)}
)


PatchTimes = Callable[[str], tuple[float, float] | None]
"""From a clip to the seconds between its patches and the seconds of one; None if nobody knows."""


@dataclass(frozen=True)
class Peaks:
    """Where to listen to clips for classes; ``outputs`` holds what the teacher said of patches.

    ``outputs[clip_id, class_id]`` float32 [patch] are probabilities, or a probe's evidence (see
    :mod:`earmark.models.clip_scores`); labels without an entry have their best patch only. Times
    are in seconds from the clip's start.
    """

    scores: ScoreFolder
    patch_times: PatchTimes
    outputs: Mapping[tuple[str, str], NDArray[np.float32]] = field(default_factory=dict)

    def spans(self, clip_id: str, class_id: str) -> list[tuple[float, float]]:
        """Return start and end of the best patches that do not overlap, the best one first.

        Empty where nobody knows in which part of the clip the class is heard.
        """
        times, ranked = self.patch_times(clip_id), self._ranked(clip_id, class_id)
        if times is None:
            return []
        hop, length = times
        chosen: list[float] = []
        for start in (patch * hop for patch in ranked):
            # Patches that merely touch are other sounds; a rounding error must not merge them.
            if all(abs(start - other) > max(length, _APART_SECONDS) - 1e-6 for other in chosen):
                chosen.append(start)
        return [(round(start, 3), round(start + length, 3)) for start in chosen[:_N_PEAKS]]

    def patches(self, clip_id: str, class_id: str) -> list[dict[str, float]]:
        """Return start, end and output of each patch; empty where they are not known.

        Outputs compare the patches of a clip, and say nothing by themselves; none is below 0.
        """
        times, outputs = self.patch_times(clip_id), self.outputs.get((clip_id, class_id), ())
        if times is None:
            return []
        hop, length = times
        return [
            {"start": patch * hop, "end": patch * hop + length, "output": max(float(output), 0.0)}
            for patch, output in enumerate(outputs)
        ]

    def _ranked(self, clip_id: str, class_id: str) -> list[int]:
        """Return the patches, the best first; the best alone where no more is known, or none."""
        outputs = self.outputs.get((clip_id, class_id))
        if outputs is not None and len(outputs):
            return [int(patch) for patch in np.argsort(-outputs, kind="stable")]
        best = self.scores.best_patch(clip_id, class_id)
        return [] if best is None else [best]


def best_peaks(
    recipe: Recipe,
    scores: ScoreFolder,
    store: FrameStore | None,
    clip_seconds: Callable[[str], float | None],
) -> Peaks:
    """Return the best patch of every label, which scores tell without asking the teacher anew.

    ``clip_seconds`` tells how long a clip is, for frames from elsewhere: nobody knows their hop.
    """
    return Peaks(scores, _patch_times(recipe, store, clip_seconds))


def with_places(
    flags: pl.DataFrame, recipe: Recipe, scores: ScoreFolder, store: FrameStore | None
) -> pl.DataFrame:
    """Add span_start and span_end to flags: their best patch, in seconds from the clip's start.

    Null where the scores do not tell, or nobody knows how long a patch lasts.
    """
    span = ("span_start", "span_end")
    times = _patch_times(recipe, store, lambda _: None)(flags["clip_id"][0]) if len(flags) else None
    if times is None or scores.best_patches is None:
        return flags.with_columns(pl.lit(None, pl.Float64).alias(name) for name in span)
    rows = pl.DataFrame({"clip_id": scores.clip_ids}).with_row_index("row")
    columns = pl.DataFrame({"class_id": scores.class_ids}).with_row_index("column")
    label = flags.select("clip_id", "class_id")
    at = label.join(rows, on="clip_id", how="left", maintain_order="left")
    at = at.join(columns, on="class_id", how="left", maintain_order="left")
    patches = pl.Series(scores.best_patches[at["row"].to_numpy(), at["column"].to_numpy()])
    start = (pl.when(patches != UNLOCATED).then(patches) * times[0]).round(3)
    return flags.with_columns(span_start=start, span_end=(start + times[1]).round(3))


def find_peaks(
    workspace: Workspace,
    recipe: Recipe,
    scores: ScoreFolder,
    store: FrameStore | None,
    wanted: pl.DataFrame,
    clip_seconds: Callable[[str], float | None],
    progress: Progress = SILENT,
) -> Peaks:
    """Find where to listen for the labels ``wanted`` (clip_id, class_id).

    Runs the teacher over their clips once and keeps its outputs in ``review/peaks``, part by part:
    a page that is stopped meanwhile goes on from there, and another queue has what it shares.
    ``clip_seconds`` tells how long a clip is, for frames from elsewhere: nobody knows their hop.
    """
    peaks = best_peaks(recipe, scores, store, clip_seconds)
    if store is None or scores.best_patches is None:
        return peaks
    clips = readable_clips(workspace, store, "train")
    networks = None
    by_network = workspace.scores_folder(recipe.taught.name)
    if is_finished(by_network):
        of_train = ScoreFolder.open(by_network)
        asked = (recipe.taught, recipe.cross_fit, clips, store)
        networks = networks_behind(of_train, workspace, *asked)
    if networks is None:
        return peaks
    folder = workspace.peaks_folder
    found = _known_outputs(folder, scores.digest)
    label = ["clip_id", "class_id"]
    missing = wanted.select(label).unique().sort(label).join(found, on=label, how="anti")
    for part in _run_teacher(networks, clips, store, missing, progress):
        found = pl.concat([found, part])
        write_table(folder / _OUTPUTS, found)
    outputs = {(clip, name): np.array(o, np.float32) for clip, name, o in found.iter_rows()}
    return Peaks(scores, peaks.patch_times, outputs)


def _known_outputs(folder: Path, scores_digest: str) -> pl.DataFrame:
    """Return what the teacher behind some scores said before; begin anew for other scores."""
    if not is_current(folder, scores_digest):
        break_seal(folder)
        write_table(folder / _OUTPUTS, _PEAK_SCHEMA.to_frame())
        seal(folder, {"digest": scores_digest})
    return read_table(folder / _OUTPUTS)


def _patch_times(
    recipe: Recipe, store: FrameStore | None, clip_seconds: Callable[[str], float | None]
) -> PatchTimes:
    """Return the times of patches: those of the frames, or frames spread evenly over the clip."""
    if store is None and recipe.teacher.model.is_probe:
        return lambda _: None
    front_end = recipe.front_end
    known = front_end.patch_seconds if store is None else store.patch_seconds
    if store is None or known is not None:
        return lambda _: known
    n_frames = dict(zip(store.clip_ids, store.n_frames.tolist(), strict=True))

    def spread(clip_id: str) -> tuple[float, float] | None:
        seconds = clip_seconds(clip_id) if clip_id in n_frames else None
        if seconds is None:
            return None
        frame_seconds = seconds / n_frames[clip_id]
        return frame_seconds * store.patch_hop_frames, frame_seconds * store.patch_frames

    return spread


def _run_teacher(
    networks: list[tuple[Path, NDArray[np.int64]]],
    clips: ReadableClips,
    store: FrameStore,
    wanted: pl.DataFrame,
    progress: Progress,
) -> Iterator[pl.DataFrame]:
    """Yield the outputs of patches for the labels wanted, some clips at a time."""
    # heavy: a page whose peaks are known does without torch
    from earmark.models import load_network, patch_outputs

    classes = dict(wanted.group_by("clip_id").agg("class_id").iter_rows())
    columns = {class_id: column for column, class_id in enumerate(clips.labels.class_ids)}
    is_wanted = clips.labels.clip_ids.is_in(list(classes)).to_numpy()
    asked = [(folder, rows[is_wanted[rows]]) for folder, rows in networks]
    meter = progress.job("peaks", sum(len(rows) for _, rows in asked), "clips")
    for folder, rows in asked:
        if not len(rows):
            continue
        network = load_network(folder, store, clips.labels.class_ids)
        for start in range(0, len(rows), _CLIPS_PER_PART):
            part: list[tuple[str, str, list[float]]] = []
            for row in rows[start : start + _CLIPS_PER_PART].tolist():
                clip_id = clips.labels.clip_ids[row]
                outputs = patch_outputs(network, store, int(clips.store_rows[row]))
                part += [(clip_id, c, outputs[:, columns[c]].tolist()) for c in classes[clip_id]]
                meter.advance(1)
            yield pl.DataFrame(part, _PEAK_SCHEMA, orient="row")
