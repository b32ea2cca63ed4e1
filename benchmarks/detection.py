"""Which policy finds the most planted missing labels, at the same number of flags.

Simulates 50,000 clips x 527 classes with a long tail like AudioSet's and teachers whose scores are
neither normal nor quite calibrated and who take look-alikes for one another; hides labels with
:mod:`earmark.datasets.simulate.hiding`; and lets Earmark's policies and their rivals flag half as
many labels as are missing, as many, and twice as many, and as many as cleanlab's filter does of
its own accord. A teacher's probabilities are roughly those of the sound, or, as those of a network
that was trained on the incomplete labels, of the label. cleanlab's own code runs beside our short
version of its rule. The ceiling ranks by the true chance of each class and score, which nobody
knows. Prints a table for each teacher and writes ``results/detection.json``. Half an hour on one
core.

    python benchmarks/detection.py [--seeds 2] [--clips 50000] [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from earmark.config import HidingParams
from earmark.datasets import hide, recalls
from earmark.flags import flag, n_discarded
from earmark.labels import IMPLICIT, PRESENT, LabelSet, Ontology

N_CLASSES = 527
FAMILY_SIZE = 8  # siblings in the made-up class tree
LARGE_PRIOR, SMALL_PRIOR = 0.01, 0.00325  # the paper's groups
STRENGTHS = {"moderate": (1.0, 3.5), "strong": (2.0, 4.5)}  # d' of the classes
TEACHERS = [(name, of) for of in ("sounds", "labels") for name in STRENGTHS]
CLIP_SD = 0.3  # how much all scores of a clip rise and fall together
BUDGETS = {"half": 0.5, "same": 1.0, "double": 2.0}  # flags per missing label
AT_FILTER = "filter's"  # as many flags as cleanlab's filter chooses
QUANTILES = {"mean": None, "median": 0.5, "25th": 0.25, "5th": 0.05}

Places = NDArray[np.int64]  # clip * n_classes + class
Matrix = NDArray[np.floating]
Keys = tuple[Matrix, ...]  # rankings [clip, class] of which the better counts


@dataclass(frozen=True)
class World:
    """Labels, the teacher's scores [clip, class], and what only the simulator knows."""

    labels: LabelSet
    logits: NDArray[np.float32]
    is_missing: NDArray[np.bool_]
    priors: NDArray[np.float64]

    @cached_property
    def states(self) -> NDArray[np.int8]:
        """States [clip, class]."""
        return self.labels.states(slice(0, self.labels.n_clips))

    @cached_property
    def probabilities(self) -> NDArray[np.float32]:
        """Scores as probabilities [clip, class]."""
        return np.asarray(expit(self.logits))

    @cached_property
    def given(self) -> list[list[int]]:
        """The labels as cleanlab takes them: the positive classes of each clip."""
        return [np.flatnonzero(row == PRESENT).tolist() for row in self.states]

    @cached_property
    def ranks(self) -> NDArray[np.float32]:
        """Ranks from 1 by falling score within each class; explicit labels come last."""
        scores = np.where(self.states == IMPLICIT, self.logits, -np.inf)
        ranks = np.empty(scores.shape, np.float32)
        for column, order in enumerate(np.argsort(-scores, axis=0, kind="stable").T):
            ranks[order, column] = np.arange(1, len(order) + 1)
        return ranks

    @cached_property
    def n_missing(self) -> NDArray[np.int64]:
        """Missing labels [class]."""
        return np.asarray(self.is_missing.sum(axis=0))


def long_tail(n_classes: int) -> NDArray[np.float64]:
    """Return priors such that 14 of 527 classes are large and 474 small, as in AudioSet."""
    ranks = np.arange(1, n_classes + 1)
    priors = 0.01 * (ranks / 15) ** -0.89 * np.exp(-1.5 * (ranks / n_classes) ** 8)
    priors[:2] = 0.3, 0.1
    return priors


def simulate(seed: int, n_clips: int, strength: str, of: str = "sounds") -> World:
    """Draw sounds, a class tree, a teacher's scores and the labels that people gave.

    The teacher's probabilities are ``of`` sounds, or of labels: times the class's recall.
    """
    rng = np.random.default_rng(seed)
    priors = long_tail(N_CLASSES)
    families = rng.permutation(N_CLASSES) // FAMILY_SIZE
    is_present = rng.random((n_clips, N_CLASSES), np.float32) < priors.astype(np.float32)
    logits = teach(is_present, priors, families, STRENGTHS[strength], rng)
    class_ids = tuple(f"class{column:03d}" for column in range(N_CLASSES))
    parents = {name: (f"family{f:02d}",) for name, f in zip(class_ids, families, strict=True)}
    truth = LabelSet.from_dense(is_present.astype(np.int8), class_ids=class_ids)
    params = HidingParams(seed=seed)
    labels = hide(truth, Ontology(class_ids, parents), params)
    if of == "labels":
        logits = times(logits, recalls(class_ids, params).astype(np.float32))
    is_missing = is_present & (labels.states(slice(0, n_clips)) == IMPLICIT)
    return World(labels, logits, is_missing, priors)


def times(logits: NDArray[np.float32], recall: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logits of probabilities times a class's recall, exact near 0 and 1 too."""
    nats = np.logaddexp(0, -logits) - np.log(recall)  # -log(recall * p)
    return np.asarray(-nats - np.log1p(-np.exp(-nats)))


def teach(
    is_present: NDArray[np.bool_],
    priors: NDArray[np.float64],
    families: NDArray[np.int64],
    strengths: tuple[float, float],
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Return logits [clip, class] of a teacher with a d' of its own for each class.

    Two siblings of each class are its decoys: where they sound alone, its score rises by up to
    0.8 d'. Slopes are off by up to 30 % and offsets by about 0.5 from calibrated logits.
    """
    d_primes = rng.uniform(*strengths, len(priors))
    slopes = d_primes * rng.uniform(0.7, 1.3, len(priors))
    offsets = logit(priors) - d_primes * slopes / 2 + rng.normal(0, 0.5, len(priors))
    clip_effect = CLIP_SD * rng.standard_normal(len(is_present))
    logits = np.empty(is_present.shape, np.float32)
    for column, d_prime in enumerate(d_primes):
        here = is_present[:, column]
        score = noise(len(here), rng)
        siblings = np.flatnonzero(families == families[column])
        for decoy in rng.choice(siblings[siblings != column], 2, replace=False):
            score += rng.uniform(0, 0.8) * d_prime * is_present[:, decoy]
        score[here] = d_prime + noise(int(here.sum()), rng)
        logits[:, column] = slopes[column] * (score + clip_effect) + offsets[column]
    return logits


def noise(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw numbers that vary by 1 with the clip's effect: normal, skewed or heavy-tailed."""
    shapes = (
        lambda: rng.standard_normal(n),
        lambda: (rng.gamma(4, size=n) - 4) / 2,
        lambda: (4 - rng.gamma(4, size=n)) / 2,
        lambda: rng.standard_t(5, size=n) / np.sqrt(5 / 3),
    )
    drawn: NDArray[np.float64] = shapes[rng.integers(len(shapes))]()
    return drawn * float(np.sqrt(1 - CLIP_SD**2))


def best(world: World, keys: Keys, n_flags: int) -> Places:
    """Return the implicit labels with the highest finite keys, by the key that finds most."""
    picks = []
    for key in keys:
        flat = np.where(world.states == IMPLICIT, key, -np.inf).ravel()
        places = np.argpartition(-flat, n_flags)[:n_flags]
        picks.append(places[np.isfinite(flat[places])])
    return max(picks, key=lambda places: int(world.is_missing.ravel()[places].sum()))


def places_of(world: World, flags: pl.DataFrame) -> Places:
    columns = {class_id: column for column, class_id in enumerate(world.labels.class_ids)}
    column = flags["class_id"].replace_strict(columns, return_dtype=pl.Int64)
    return (flags["clip_id"].cast(pl.Int64) * N_CLASSES + column).to_numpy()


def run_policy(world: World, policy: str, **options: Any) -> Places:
    return places_of(world, flag(world.labels, world.logits, policy, **options))


def percentile(world: World, n_flags: int) -> Places:
    """Flag the highest per cent of each class, the largest that gives no more than ``n_flags``."""
    low, high = 0, 1_000_000  # in 0.0001 %
    while high - low > 1:
        middle = (low + high) // 2
        is_few = n_discarded(world.labels.n_implicit, [middle / 1e4]).sum() <= n_flags
        low, high = (middle, high) if is_few else (low, middle)
    return run_policy(world, "percentile", with_chance=False, discard_percent=low / 1e4)


def budget(world: World, n_flags: int, balance: float = 0.0) -> Places:
    return run_policy(world, "budget", n_flags=n_flags, balance=balance)


def precision(world: World, n_flags: int) -> Places:
    """Flag with the target that the budget's last flag reaches."""
    chances = flag(world.labels, world.logits, "budget", n_flags=n_flags)["chance"]
    target = float(np.clip(chances.to_numpy().min(), 1e-6, 1 - 1e-6))
    return run_policy(world, "precision", target=target)


def positives_level(world: World, name: str) -> NDArray[np.float64]:
    """Return the logit [class] of the positives' mean probability, or a quantile of theirs."""
    q = QUANTILES[name]
    levels = np.full(N_CLASSES, np.inf)
    for column in range(N_CLASSES):
        scores = world.logits[world.states[:, column] == PRESENT, column]
        if len(scores):
            levels[column] = logit(expit(scores).mean()) if q is None else np.quantile(scores, q)
    return levels


def above_positives(world: World, name: str) -> Keys:
    """Rank by the margin over a level of the positives, in logits and in probability."""
    level = positives_level(world, name)
    return world.logits - level, world.probabilities - expit(level)


def confident(world: World) -> Keys:
    """Rank probable labels by the margin over the mean of positives: the confident joint's rule."""
    margin = world.logits - positives_level(world, "mean")
    return (np.where(world.probabilities > 0.5, margin, -np.inf),)


def cleanlab_ranking(world: World, is_adjusted: bool) -> Keys:
    """Rank by cleanlab's label quality; unadjusted, that is one probability for all classes."""
    quality = get_label_quality_scores_per_class(
        world.given, world.probabilities, adjust_pred_probs=is_adjusted
    )
    return (-np.asarray(quality),)


def cleanlab_filter(world: World) -> Places:
    """Return what cleanlab's filter finds missing; what it says about explicit labels is dropped.

    Its ``find_label_issues`` reports the clips in which this finds any class.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes without positives
        issues = find_multilabel_issues_per_class(world.given, world.probabilities, n_jobs=1)
    return np.flatnonzero(np.asarray(issues) & (world.states == IMPLICIT))


def ceiling(world: World) -> Keys:
    """Rank by the true share of missing labels around each score: isotonic, a little too good."""
    key = np.full(world.logits.shape, -np.inf)
    for column in range(N_CLASSES):
        rows = np.flatnonzero(world.states[:, column] == IMPLICIT)
        rows = rows[np.argsort(world.logits[rows, column])]
        places = np.arange(len(rows))
        share = IsotonicRegression().fit_transform(places, world.is_missing[rows, column])
        key[rows, column] = share + 1e-9 * places
    return (key,)


POLICIES: dict[str, Callable[[World, int], Places]] = {
    "earmark percentile": percentile,
    "earmark precision": precision,
    "earmark budget": budget,
    "earmark budget, balance 1": partial(budget, balance=1),
    "earmark budget, balance 3": partial(budget, balance=3),
    "earmark budget, balance 6": partial(budget, balance=6),
}
RANKINGS: dict[str, Callable[[World], Keys]] = {
    **{f"positives' {name}": partial(above_positives, name=name) for name in QUANTILES},
    "global threshold": lambda world: (world.logits,),
    "confident": confident,
    "cleanlab ranking": partial(cleanlab_ranking, is_adjusted=False),
    "cleanlab ranking, adjusted": partial(cleanlab_ranking, is_adjusted=True),
    "(ceiling)": ceiling,
}
"""Rules that order all implicit labels; cut at any number of flags."""


def judge(world: World, places: Places) -> dict[str, float]:
    """Return recall, precision, and the mean recall over the classes of each size."""
    is_hit = world.is_missing.ravel()[places]
    hits = np.bincount(places[is_hit] % N_CLASSES, minlength=N_CLASSES)
    found = hits / np.maximum(world.n_missing, 1)
    groups = {
        "large": world.priors > LARGE_PRIOR,
        "medium": (world.priors <= LARGE_PRIOR) & (world.priors >= SMALL_PRIOR),
        "small": world.priors < SMALL_PRIOR,
    }
    macro = {
        name: float(found[group & (world.n_missing > 0)].mean()) for name, group in groups.items()
    }
    recall = hits.sum() / world.n_missing.sum()
    share = is_hit.mean() if len(is_hit) else np.nan
    return {"flags": len(places), "recall": float(recall), "precision": float(share), **macro}


def compare(world: World) -> list[dict[str, object]]:
    """Judge every policy at every number of flags, cleanlab's own among them."""
    numbers = {name: int(share * world.n_missing.sum()) for name, share in BUDGETS.items()}
    found = timed(world, partial(cleanlab_filter, world))
    numbers[AT_FILTER] = int(found["flags"])
    rows: list[dict[str, object]] = [{"at": AT_FILTER, "policy": "cleanlab filter", **found}]
    for policy, pick in POLICIES.items():
        for at, n_flags in numbers.items():
            rows.append({"at": at, "policy": policy, **timed(world, partial(pick, world, n_flags))})
    for policy, rank in RANKINGS.items():
        keys = rank(world)
        for at, n_flags in numbers.items():
            rows.append({"at": at, "policy": policy, **judge(world, best(world, keys, n_flags))})
    return rows


def timed(world: World, pick: Callable[[], Places]) -> dict[str, float]:
    start = time.process_time()
    places = pick()
    return {"cpu_s": time.process_time() - start, **judge(world, places)}


def summarise(rows: pl.DataFrame) -> pl.DataFrame:
    """Give the mean over seeds of every figure, and the spread (highest - lowest) of recalls."""
    figures = ("flags", "recall", "precision", "large", "medium", "small", "cpu_s")
    spreads = [
        (pl.col(name).max() - pl.col(name).min()).alias(f"{name}_spread")
        for name in ("recall", "small")
    ]
    return rows.group_by("teacher", "at", "policy", maintain_order=True).agg(
        *(pl.col(name).mean() for name in figures), *spreads
    )


def print_table(summary: pl.DataFrame) -> None:
    """Print Markdown: means over seeds, with [highest - lowest] of two recalls."""
    print("| policy | flags | recall | precision | large | medium | small | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for r in summary.to_dicts():
        seconds = "" if r["cpu_s"] is None else f"{r['cpu_s']:.1f}"
        print(
            f"| {r['policy']} | {r['flags']:,.0f} | {r['recall']:.1%} [{r['recall_spread']:.1%}] | "
            f"{r['precision']:.1%} | {r['large']:.1%} | {r['medium']:.1%} | "
            f"{r['small']:.1%} [{r['small_spread']:.1%}] | {seconds} |"
        )


def report(rows: list[dict[str, object]], run: dict[str, object], path: Path) -> pl.DataFrame:
    """Write what has been judged so far, and return it by teacher and number of flags."""
    order = [AT_FILTER, *BUDGETS]
    summary = summarise(pl.DataFrame(rows)).sort(
        "teacher", pl.col("at").replace_strict(order, range(len(order))), maintain_order=True
    )
    path.write_text(json.dumps({**run, "table": summary.to_dicts()}, indent=1) + "\n")
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=2)
    default = Path(__file__).parent / "results" / "detection.json"
    parser.add_argument("--json", type=Path, default=default)
    parser.add_argument("--quick", action="store_true", help="few clips, a teacher")
    arguments = parser.parse_args()
    teachers = TEACHERS
    if arguments.quick:
        arguments.clips, arguments.seeds, teachers = 1_500, 1, TEACHERS[:1]
        arguments.json = Path(os.devnull)
    start = time.perf_counter()
    rows: list[dict[str, object]] = []
    n_missing = []
    for seed, (strength, of) in itertools.product(range(arguments.seeds), teachers):
        world = simulate(seed, arguments.clips, strength, of)
        n_missing.append(int(world.n_missing.sum()))
        rows += [{"teacher": f"{strength}, of {of}", "seed": seed, **r} for r in compare(world)]
        run = {
            "n_clips": arguments.clips,
            "n_missing": n_missing,
            "seconds": time.perf_counter() - start,
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        }
        summary = report(rows, run, arguments.json)
    for (teacher, name), part in summary.group_by("teacher", "at", maintain_order=True):
        print(f"\n{teacher} teacher, number of flags: {name}\n")
        print_table(part)
    print(f"\n{run}\nwrote {arguments.json}")


if __name__ == "__main__":
    main()
