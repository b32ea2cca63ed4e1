"""Folders of tones in noise with labels, of which some are missing; a made-up YAMNet knows them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from earmark.models.pretrained import read_yamnet_classes
from made_up_yamnet import made_up_network, teach_head, write_keras

RATE_HZ = 16_000
TONES_HZ = {"Dog": 250, "Siren": 900, "Whistle": 2_800}
NAMES = tuple(TONES_HZ)
OUTPUTS = tuple(read_yamnet_classes().names.index(name) for name in NAMES)
"""The places of these classes among YAMNet's."""


@dataclass(frozen=True)
class ToneFolder:
    """Sounds, the table of their labels, and the truth [clip, class]."""

    sounds: Path
    labels: Path
    present: np.ndarray
    given: np.ndarray


def scene(rng: np.random.Generator, present: np.ndarray, seconds: float = 0.4) -> np.ndarray:
    """Return noise with a tone for each class that is present."""
    time = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    sound = rng.normal(0, 0.01, len(time))
    for hz in np.array(list(TONES_HZ.values()))[present]:
        sound += 0.1 * np.sin(2 * np.pi * (hz * rng.uniform(0.95, 1.05) * time + rng.random()))
    return sound.astype(np.float32)


def tone_folder(
    root: Path,
    n_clips: int = 240,
    *,
    names: tuple[str, ...] = NAMES,
    is_random: bool = False,
    seed: int = 0,
) -> ToneFolder:
    """Write clips of one patch with one tone or more; a third of the labels but one is hidden.

    With ``is_random`` every clip has one label of twelve, which says nothing of its sound.
    """
    rng = np.random.default_rng(seed)
    present = rng.random((n_clips, len(names))) < 0.3
    present[np.arange(n_clips), rng.integers(0, len(names), n_clips)] = True
    given = present & (rng.random(present.shape) < 0.67)
    (root / "sounds").mkdir(parents=True)
    for clip, row in enumerate(present):
        soundfile.write(root / "sounds" / f"clip{clip:03}.wav", scene(rng, row), RATE_HZ)
        if not given[clip].any():
            given[clip, rng.choice(np.flatnonzero(row))] = True
    if is_random:
        names = (*names, *(f"noise {number}" for number in range(12 - len(names))))
        given = np.eye(len(names), dtype=bool)[rng.integers(0, len(names), n_clips)]
    rows = [f"clip{clip:03}.wav,{names[column]}" for clip, column in np.argwhere(given)]
    labels = root / "labels.csv"
    labels.write_text("\n".join(["filename,label", *rows]) + "\n")
    return ToneFolder(root / "sounds", labels, present, given)


def write_knowing_yamnet(path: Path) -> Path:
    """Write a made-up ``yamnet.h5`` whose own classes know the tones, if not too well."""
    network, rng = made_up_network(), np.random.default_rng(7)
    rows = [rng.random(3) < 0.4 for _ in range(60)]
    sounds = [
        (scene(rng, row), [OUTPUTS[column] for column in np.flatnonzero(row)]) for row in rows
    ]
    teach_head(network, sounds, OUTPUTS)
    return write_keras(path, network)
