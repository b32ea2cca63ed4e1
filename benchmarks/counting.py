"""How well the number of missing labels is estimated, on scores whose truth is known.

Simulates one class at a time: priors from 0.1 to 0.0002, teachers of several strengths, shapes of
the negatives' scores that are normal, skewed to either side or heavy-tailed, labels that go
missing at random or more often where the score is low. Prints estimate / truth and the coverage of
the 90 % interval, beside the confident joint (cleanlab's count) and the mean of positives (PSLA's
threshold), and writes ``results/counting.json``. A few minutes on one core.

    python benchmarks/counting.py [--clips 200000] [--repeats 6]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import expit

from earmark.counting import count_missing
from earmark.labels import LabelSet

PRIORS = (0.1, 0.01, 0.001, 0.0002)
STRENGTHS = (2.0, 3.0, 4.5)
SHAPES = ("normal", "right_skewed", "left_skewed", "heavy_tailed")
LABELLINGS = ((0.3, False), (0.6, False), (0.3, True))  # share missing; more where faint
SCORE_SD = 1.8  # logits of a trained network spread by about this much within a class


def noise(shape: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw numbers of mean 0 and variance 1."""
    if shape == "right_skewed":
        return (rng.gamma(4, size=n) - 4) / 2
    if shape == "left_skewed":
        return (4 - rng.gamma(4, size=n)) / 2
    if shape == "heavy_tailed":
        return rng.standard_t(5, size=n) / np.sqrt(5 / 3)
    return rng.standard_normal(n)


@dataclass(frozen=True)
class Setting:
    """One kind of class, teacher and labelling."""

    shape: str
    strength: float
    prior: float
    missing_share: float
    is_faint: bool


def simulate(
    setting: Setting, n_clips: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the states and scores [clip] of one class, and how many labels are missing."""
    n_true = round(setting.prior * n_clips)
    true = rng.standard_normal(n_true) + setting.strength
    scores = np.concatenate([true, noise(setting.shape, n_clips - n_true, rng)])
    chance = np.full(n_true, setting.missing_share)
    if setting.is_faint:  # from twice the share at the lowest score down to none at the highest
        chance = 2 * chance * (1 - true.argsort().argsort() / n_true)
    is_missing = rng.random(n_true) < chance
    states = np.zeros(n_clips, np.int8)
    states[:n_true] = ~is_missing
    logits = SCORE_SD * scores + np.log(setting.prior)
    order = rng.permutation(n_clips)
    return states[order], logits[order].astype(np.float32), int(is_missing.sum())


def confident_joint(positives: np.ndarray, implicit: np.ndarray) -> int:
    """Count implicit labels at least as probable as the mean positive, and above one half."""
    p = expit(implicit)
    return int(((p >= expit(positives).mean()) & (p > 0.5)).sum())


def mean_of_positives(positives: np.ndarray, implicit: np.ndarray) -> int:
    """Count implicit labels more probable than the mean positive."""
    return int((expit(implicit) > expit(positives).mean()).sum())


def judge(setting: Setting, n_clips: int, n_repeats: int, seed: int) -> list[dict[str, object]]:
    """Estimate the same setting several times, each repeat as a class of its own."""
    rng = np.random.default_rng(seed)
    states, scores, n_missing = zip(
        *(simulate(setting, n_clips, rng) for _ in range(n_repeats)), strict=True
    )
    table = count_missing(LabelSet.from_dense(np.stack(states, 1)), np.stack(scores, 1))
    rows = []
    for state, score, truth, row in zip(states, scores, n_missing, table.to_dicts(), strict=True):
        rivals = {
            name: rival(score[state == 1], score[state == 0]) / truth
            for name, rival in (("joint", confident_joint), ("mean", mean_of_positives))
        }
        if row["n_missing"] is not None:
            own = {
                "ours": row["n_missing"] / truth,
                "bound": row["upper_bound"] / truth,
                "is_covered": row["low"] <= truth <= row["high"],
                "is_bounded": truth <= row["upper_bound"],
            }
            rows.append({**asdict(setting), **own, **rivals})
    return rows


def summarise(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Give the median of estimate / truth, the share within a factor of two, and the coverage."""
    ratios = [pl.col(name).median().round(2) for name in ("ours", "joint", "mean", "bound")]
    is_near = [
        pl.col(name).is_between(0.5, 2).mean().round(2).alias(f"{name}_within_2x")
        for name in ("ours", "joint", "mean")
    ]
    coverage = [pl.col(name).mean().round(2) for name in ("is_covered", "is_bounded")]
    return rows.group_by(keys, maintain_order=True).agg(*ratios, *is_near, *coverage, n=pl.len())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=6)
    arguments = parser.parse_args()
    start = time.perf_counter()
    rows: list[dict[str, object]] = []
    grid = itertools.product(SHAPES, STRENGTHS, PRIORS, LABELLINGS)
    # The interval's factors were chosen with other seeds.
    for seed, (shape, strength, prior, labelling) in enumerate(grid, start=10_000):
        n_clips = max(arguments.clips, round(100 / prior))  # at least a hundred true labels
        setting = Setting(shape, strength, prior, *labelling)
        rows += judge(setting, n_clips, arguments.repeats, seed)
    table = pl.DataFrame(rows)
    print(f"estimate / truth (medians), {time.perf_counter() - start:.0f} s")
    results = {}
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, tbl_hide_dataframe_shape=True):
        for keys in (["is_faint", "prior"], ["is_faint", "strength"], ["is_faint", "shape"]):
            summary = summarise(table, keys)
            results[" x ".join(keys)] = summary.to_dicts()
            print(summary)
    path = Path(__file__).parent / "results" / "counting.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
