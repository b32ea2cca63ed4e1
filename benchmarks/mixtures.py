"""Clips of real sound whose truth is known: mixtures of ESC-50's recordings, with labels hidden.

A clip sums one to four recordings of different classes of one ESC fold (the folds take turns), so
no recording is in clips of two folds. Each recording is brought to the same level, measured over
what is not silent in it, and then turned down by 0 to 12 dB. Then labels are hidden: every class
has a recall, spread evenly over the classes, and a true label is given with that chance; two absent
classes of each clip become explicit negatives, so every clip is listed. A set is a function of the
recordings, the folds and the seed; a longer one begins with the clips and labels of a shorter one.
Writes ``clips/NNNNN.flac``, ``labels.csv`` (clip_id, class_id, present), ``truth.csv`` (clip_id,
class_id) and ``sources.csv`` (clip_id, fold). 1,200 clips take about 10 s.

    python benchmarks/mixtures.py ESC50 OUT [--clips 1200] [--folds 1 2 3] [--seed 0]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import soundfile
from numpy.typing import NDArray

from earmark.audio import read_clip

SAMPLE_RATE_HZ = 16_000
CLIP_SAMPLES = 5 * SAMPLE_RATE_HZ
MAX_SOUNDS = 4
MAX_CUT_DB = 12.0
RECALL_RANGE = (0.3, 0.9)
N_NEGATIVES = 2
LEVEL, PEAK = 0.1, 0.95
"""Root mean square of each recording before it is turned down, and the highest sample of a clip."""

_BLOCK_SAMPLES, _SILENCE = 400, 0.01
"""A block of 25 ms counts as silent below this share (-40 dB) of the loudest block's level."""


@dataclass(frozen=True)
class Recipe:
    """What one clip is made of."""

    clip_id: str
    fold: int
    recordings: tuple[Path, ...]
    gains_db: tuple[float, ...]
    classes: tuple[str, ...]


def make_mixtures(
    esc50: Path, out: Path, n_clips: int, folds: Sequence[int] = (1, 2, 3), seed: int = 0
) -> None:
    """Write clips, labels, truth and sources into a folder (see the module's docstring)."""
    table = pl.read_csv(esc50 / "esc50.csv").filter(pl.col("fold").is_in(list(folds)))
    table = table.sort("filename")
    for_recalls, for_recipes, for_labels = np.random.default_rng(seed).spawn(3)
    recall = draw_recalls(table["category"].unique().sort().to_list(), for_recalls)
    recipes = draw_recipes(esc50 / "audio", table, n_clips, folds, for_recipes)
    labels = draw_labels(recipes, recall, for_labels)
    (out / "clips").mkdir(parents=True, exist_ok=True)
    for recipe in recipes:
        soundfile.write(out / "clips" / recipe.clip_id, mix(recipe), SAMPLE_RATE_HZ, "PCM_16")
    labels.write_csv(out / "labels.csv")
    truth = [(recipe.clip_id, name) for recipe in recipes for name in sorted(recipe.classes)]
    _table(truth, "clip_id", "class_id").write_csv(out / "truth.csv")
    sources = [(recipe.clip_id, recipe.fold) for recipe in recipes]
    _table(sources, "clip_id", "fold").write_csv(out / "sources.csv")


def draw_recalls(classes: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """Return the chance that a present sound of each class is labelled, evenly spread."""
    shuffled = rng.permutation(np.linspace(*RECALL_RANGE, len(classes)))
    return dict(zip(classes, shuffled.tolist(), strict=True))


def draw_recipes(
    audio: Path, table: pl.DataFrame, n_clips: int, folds: Sequence[int], rng: np.random.Generator
) -> list[Recipe]:
    """Draw what every clip is made of; ``table`` has filename, fold and category."""
    files = table.group_by("fold", "category").agg(pl.col("filename").sort()).sort("category")
    by_fold = {
        fold: {name: own for _, name, own in files.filter(fold=fold).iter_rows()} for fold in folds
    }
    recipes = []
    for number in range(n_clips):
        fold = folds[number % len(folds)]
        n_sounds = int(rng.integers(1, MAX_SOUNDS + 1))
        classes = rng.choice(list(by_fold[fold]), n_sounds, replace=False).tolist()
        recordings = tuple(audio / rng.choice(by_fold[fold][name]).item() for name in classes)
        gains_db = tuple(rng.uniform(-MAX_CUT_DB, 0, n_sounds).tolist())
        recipes.append(Recipe(f"{number:05}.flac", fold, recordings, gains_db, tuple(classes)))
    return recipes


def draw_labels(
    recipes: Sequence[Recipe], recall: Mapping[str, float], rng: np.random.Generator
) -> pl.DataFrame:
    """Return the labels that are given: clip_id, class_id, present (1 or 0)."""
    rows = []
    for recipe in recipes:
        given = [name for name in sorted(recipe.classes) if rng.random() < recall[name]]
        absent = [name for name in recall if name not in recipe.classes]
        denied = rng.choice(absent, N_NEGATIVES, replace=False).tolist()
        rows += [(recipe.clip_id, name, 1) for name in given]
        rows += [(recipe.clip_id, name, 0) for name in denied]
    return _table(rows, "clip_id", "class_id", "present")


def mix(recipe: Recipe) -> NDArray[np.float32]:
    """Sum the recordings of a clip [sample]; turn all of it down where it would clip."""
    gains = np.power(10, np.array(recipe.gains_db) / 20)
    sounds = np.stack([read_recording(path) for path in recipe.recordings])  # [sound, sample]
    mixed = gains @ sounds
    mixed *= min(1.0, PEAK / max(np.abs(mixed).max(), PEAK))
    return mixed.astype(np.float32)


@cache
def read_recording(path: Path) -> NDArray[np.float32]:
    """Read a recording at the common level [sample], cut or filled with zeros to 5 s."""
    sound = read_clip(path, SAMPLE_RATE_HZ)[:CLIP_SAMPLES]
    sound = np.pad(sound, (0, CLIP_SAMPLES - len(sound)))
    power = np.square(sound.reshape(-1, _BLOCK_SAMPLES)).mean(axis=1)  # [block]
    heard = power[power > _SILENCE**2 * power.max()]
    return sound * np.float32(LEVEL / np.sqrt(heard.mean())) if len(heard) else sound


def _table(rows: Sequence[tuple[object, ...]], *columns: str) -> pl.DataFrame:
    return pl.DataFrame(rows, list(columns), orient="row")


def main() -> None:
    """Make a set of mixtures as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("esc50", type=Path, nargs="?", help="folder with esc50.csv and audio/")
    parser.add_argument("out", type=Path, nargs="?", help="folder to write into")
    parser.add_argument("--clips", type=int, default=1_200)
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.out is None:
        print("name ESC-50's folder and one to write into; nothing is made without them")
        return
    make_mixtures(args.esc50, args.out, args.clips, args.folds, args.seed)
    print(f"wrote {args.clips:,} clips to {args.out}")


if __name__ == "__main__":
    main()
