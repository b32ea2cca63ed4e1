"""How well the number of missing labels is estimated, on labels whose truth is known.

Simulates classes with priors from 0.1 to 0.0002 and teachers of several strengths whose scores are
normal, skewed, heavy-tailed, or raised by decoys; hides labels with
:mod:`earmark.datasets.synthetic.hiding`, at random or more often where the sound is faint; and
compares estimate / truth and the coverage of the 90 % interval with the confident joint
(cleanlab's count) and the mean of positives (PSLA's threshold). The estimator's constants were
chosen elsewhere: on smaller simulations (2,000 and 20,000 clips, d' 0 to 2.3, the same shapes of
scores among others, recalls of 0.3 to 0.9), on mixtures of recorded sounds, and on half of the
AudioSet clips that people labelled exhaustively. Prints tables and writes
``results/counting.json``. Five minutes on one core.

    python benchmarks/counting.py [--clips 100000] [--repeats 12]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from earmark.datasets import hide
from earmark.flags import count_missing
from earmark.labels import IMPLICIT, PRESENT, LabelSet, Ontology
from earmark.runs import HidingParams

PRIORS = (0.1, 0.01, 0.001, 0.0002)
STRENGTHS = (0.4, 1.2, 2.0, 3.0, 4.5)  # d'; an AUC of 0.61, 0.80, 0.92, 0.98 and 0.999
SHAPES = ("normal", "right_skewed", "heavy_tailed", "decoys")
MISSING_SHARES = (0.3, 0.6)
FAINTNESS = (0.0, 1.0)  # rise in the log-odds of a label with each sd of the sound's score
FAMILY_SIZE = 3  # in the decoys' shape, two siblings raise a class's score where they sound
SCORE_SD = 1.8  # logits of a trained network spread by about this much within a class
FALSE_CANDIDATES_PER_CLASS = 2 / 527  # as in AudioSet: a few explicit negatives
LEVEL_SD_DB = 10.0
DECILES = np.linspace(0, 1, 11)


@dataclass(frozen=True)
class Setting:
    """One kind of class, teacher and labelling."""

    shape: str
    strength: float
    prior: float
    missing_share: float
    faintness: float


@dataclass(frozen=True)
class World:
    """Labels, the teacher's scores and which labels are missing [clip, class]."""

    labels: LabelSet
    logits: NDArray[np.float32]
    is_missing: NDArray[np.bool_]

    @property
    def states(self) -> NDArray[np.int8]:
        """States [clip, class]."""
        return self.labels.states(slice(0, self.labels.n_clips))


def noise(shape: str, size: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw numbers of mean 0 and variance 1."""
    if shape == "right_skewed":
        return (rng.gamma(4, size=size) - 4) / 2
    if shape == "heavy_tailed":
        return rng.standard_t(5, size=size) / np.sqrt(5 / 3)
    return rng.standard_normal(size)


def simulate(setting: Setting, n_clips: int, n_classes: int, rng: np.random.Generator) -> World:
    """Draw sounds, scores and labels of several classes of one kind."""
    is_present = rng.random((n_clips, n_classes), np.float32) < setting.prior
    deviation = noise(setting.shape, is_present.shape, rng)
    score = deviation + setting.strength * is_present
    if setting.shape == "decoys":
        score += decoy_effect(is_present, setting.strength, rng)
    truth = LabelSet.from_dense(is_present.astype(np.int8))
    families = {name: (f"family{int(name) // FAMILY_SIZE}",) for name in truth.class_ids}
    params = HidingParams(
        recall_range=(1 - setting.missing_share, 1 - setting.missing_share),
        false_candidates=FALSE_CANDIDATES_PER_CLASS * n_classes,
        seed=int(rng.integers(1 << 31)),
    )
    labels = hide(
        truth,
        Ontology(truth.class_ids, families),
        params,
        level_db=LEVEL_SD_DB * deviation,
        faint_slope_per_db=setting.faintness / LEVEL_SD_DB,
    )
    is_missing = is_present & (labels.states(slice(0, n_clips)) == IMPLICIT)
    logits = SCORE_SD * score + np.log(setting.prior)
    return World(labels, logits.astype(np.float32), is_missing)


def decoy_effect(
    is_present: NDArray[np.bool_], strength: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return what siblings that sound alone add to a class's score [clip, class]: to 0.8 d'."""
    effect = np.zeros(is_present.shape)
    for column, other in itertools.permutations(range(is_present.shape[1]), 2):
        if column // FAMILY_SIZE == other // FAMILY_SIZE:
            is_alone = is_present[:, other] & ~is_present[:, column]
            effect[:, column] += rng.uniform(0, 0.8) * strength * is_alone
    return effect


def confident_joint(positives: NDArray[np.floating], implicit: NDArray[np.floating]) -> int:
    """Count implicit labels at least as probable as the mean positive, and above one half."""
    p = expit(implicit)
    return int(((p >= expit(positives).mean()) & (p > 0.5)).sum())


def mean_of_positives(positives: NDArray[np.floating], implicit: NDArray[np.floating]) -> int:
    """Count implicit labels more probable than the mean positive."""
    return int((expit(implicit) > expit(positives).mean()).sum())


def judge(setting: Setting, world: World) -> tuple[list[dict[str, object]], pl.DataFrame]:
    """Return one row per estimable class, and chances with their truth, summed by decile."""
    counts = count_missing(world.labels, world.logits)
    states = world.states
    rows = []
    for column, row in enumerate(counts.table.to_dicts()):
        truth = int(world.is_missing[:, column].sum())
        if row["n_missing"] is None or not truth:
            continue
        score, state = world.logits[:, column], states[:, column]
        positives, implicit = score[state == PRESENT], score[state == IMPLICIT]
        rows.append(
            {
                **asdict(setting),
                "ours": row["n_missing"] / truth,
                "joint": confident_joint(positives, implicit) / truth,
                "mean": mean_of_positives(positives, implicit) / truth,
                "bound": row["upper_bound"] / truth,
                "width": row["high"] / row["low"],
                "is_told": row["method"] != "expectation",
                "is_covered": row["low"] <= truth <= row["high"],
                "is_too_low": truth > row["high"],
                "is_bounded": truth <= row["upper_bound"],
            }
        )
    clips, columns = np.nonzero(states == IMPLICIT)
    chances = counts.chances.at(clips, columns)
    decile = np.digitize(chances, DECILES[1:-1])
    table = pl.DataFrame(
        {"decile": decile, "chance": chances, "truth": world.is_missing[clips, columns]}
    )
    sums = (
        table.filter(pl.col("chance").is_not_nan())
        .group_by("decile")
        .agg(pl.len().alias("n"), pl.col("chance", "truth").sum().cast(pl.Float64))
    )
    return rows, sums.with_columns(faintness=pl.lit(setting.faintness), prior=setting.prior)


def summarise(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Give the median and spread of estimate / truth, the coverage, and the rivals' medians.

    Also where the scores told the number, rather than that it is an expectation.
    """
    return rows.group_by(keys, maintain_order=True).agg(
        pl.col("ours").median(),
        pl.col("ours").quantile(0.1).alias("ours_10th"),
        pl.col("ours").quantile(0.9).alias("ours_90th"),
        pl.col("is_told").mean().alias("told"),
        pl.col("ours").filter("is_told").median().alias("ours_told"),
        pl.col("is_covered").filter("is_told").mean().alias("coverage_told"),
        pl.col("is_covered").mean().alias("coverage"),
        pl.col("is_too_low").mean().alias("truth_above"),
        pl.col("width").median().alias("high_per_low"),
        pl.col("is_bounded").mean().alias("bounded"),
        pl.col("bound", "joint", "mean").median(),
        *(
            pl.col(name).is_between(0.5, 2).mean().alias(f"{name}_within_2x")
            for name in ("ours", "joint", "mean")
        ),
        n=pl.len(),
    )


def reliability(sums: Iterable[pl.DataFrame], keys: list[str]) -> pl.DataFrame:
    """Compare the mean chance in each decile with the share that is missing."""
    total = pl.concat(sums).group_by(*keys, "decile").agg(pl.col("n", "chance", "truth").sum())
    return total.sort(*keys, "decile").select(
        *keys, "decile", "n", *(pl.col(name) / pl.col("n") for name in ("chance", "truth"))
    )


def settings() -> Iterator[Setting]:
    grid = itertools.product(SHAPES, STRENGTHS, PRIORS, MISSING_SHARES, FAINTNESS)
    return (Setting(*values) for values in grid)


def print_markdown(table: pl.DataFrame) -> None:
    print("\n| " + " | ".join(table.columns) + " |\n|" + "---|" * table.width)
    for row in table.rows():
        print("| " + " | ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=12, help="classes of each kind")
    arguments = parser.parse_args()
    start = time.perf_counter()
    rows: list[dict[str, object]] = []
    sums = []
    for seed, setting in enumerate(settings()):
        n_clips = max(arguments.clips, round(100 / setting.prior))  # a hundred true labels
        world = simulate(setting, n_clips, arguments.repeats, np.random.default_rng(seed))
        found, chances = judge(setting, world)
        rows += found
        sums.append(chances)
    table = pl.DataFrame(rows)
    results: dict[str, object] = {"seconds": time.perf_counter() - start}
    for keys in (
        ["faintness", "prior"],
        ["faintness", "prior", "strength"],
        ["faintness", "prior", "shape"],
        ["faintness", "missing_share", "prior", "strength"],
    ):
        summary = summarise(table, keys).sort(keys, descending=[k == "prior" for k in keys])
        results[" x ".join(keys)] = summary.to_dicts()
        print_markdown(summary)
    for keys in (["faintness"], ["faintness", "prior"]):
        summary = reliability(sums, keys)
        results[f"chance by decile, {' x '.join(keys)}"] = summary.to_dicts()
        print_markdown(summary)
    path = Path(__file__).parent / "results" / "counting.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\n{results['seconds']:.0f} s; wrote {path}")


if __name__ == "__main__":
    main()
