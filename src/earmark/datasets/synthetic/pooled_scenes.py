"""Scenes as vectors: what a linear probe sees of each, made together with its sound.

A part of the scenes is one task and one file, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.audio import log_mel, pooled
from earmark.datasets.synthetic.scenes import claim_scenes, scene, write_sound
from earmark.runs import (
    HERE,
    SILENT,
    AsOneJob,
    Engine,
    Meter,
    Progress,
    SceneParams,
    Task,
    write_array,
)

_SCENES_IN_A_PART = 100


def pooled_scenes(
    root: Path, params: SceneParams, *, engine: Engine = HERE, progress: Progress = SILENT
) -> NDArray[np.float32]:
    """Write the sound of all scenes into a folder; return their pooled log-mel [clip, feature].

    Clips are in the order of :func:`write_scenes`, which then finds their sound there. Scenes of
    other parameters are refused.
    """
    claim_scenes(root, params)
    n_clips = params.n_train + params.n_tune + params.n_eval
    starts = range(0, n_clips, _SCENES_IN_A_PART)
    parts = [range(start, min(start + _SCENES_IN_A_PART, n_clips)) for start in starts]
    waiting = [part for part in parts if not _part_path(root, part).exists()]
    meter = progress.job("scenes", sum(map(len, waiting)), "clips") if waiting else None
    tasks = [
        Task("scenes", _write_part, {"root": root, "params": params, "part": part}, len(part))
        for part in waiting
    ]
    engine.map(tasks, SILENT if meter is None else AsOneJob(meter))
    return np.concatenate([np.load(_part_path(root, part)) for part in parts])


def _write_part(root: Path, params: SceneParams, part: range, meter: Meter) -> None:
    features = []
    for index in part:
        waveform = scene(params, index)[0]
        write_sound(root, index, waveform)
        features.append(pooled(log_mel(waveform)))
        meter.advance(1)
    write_array(_part_path(root, part), np.array(features))


def _part_path(root: Path, part: range) -> Path:
    return root / "pooled" / f"{part.start:06d}-{part.stop:06d}.npy"
