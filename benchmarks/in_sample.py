"""How often the check for in-sample scores finds them, and how often it cries wolf.

Draws datasets of sounds with known truth, hides labels with
:mod:`earmark.datasets.synthetic.hiding`, trains small networks on what is left for a short, a
medium and a long time, and scores the clips with the network that saw them (in-sample) and with
networks that did not (out of fold). Prints how many of each kind two signs give away, beside how
much of the missing labels the scores still show: few implicit labels score above the positives'
median (labels learnt by heart), or missing labels score far lower than positives (tilt); and what
:func:`earmark.flags.flag.in_sample_warning` says. Writes ``results/in_sample.json``. Three minutes
on one core.

    python benchmarks/in_sample.py [--datasets 8]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from earmark.datasets import hide
from earmark.flags import (
    IN_SAMPLE_RATIO,
    MIN_POSITIVES,
    MOST_TILT,
    in_sample_warning,
    score_histograms,
    tilts_of_missing,
)
from earmark.labels import IMPLICIT, PRESENT, LabelSet, Ontology
from earmark.runs import HidingParams

N_CLIPS, N_CLASSES, N_FEATURES, N_HIDDEN = 4_000, 24, 96, 128
N_FOLDS = 3
EPOCHS = {"short": 4, "medium": 20, "long": 60}
RECALL_RANGES = {"many": (0.3, 0.95), "few": (0.8, 0.95)}  # labels missing, as nomination leaves

Matrix = NDArray[np.float32]


def draw(seed: int) -> tuple[Matrix, LabelSet]:
    """Draw features [clip, feature] and the true labels: each class adds a direction of its own."""
    rng = np.random.default_rng(seed)
    is_present = rng.random((N_CLIPS, N_CLASSES)) < rng.uniform(0.02, 0.1, N_CLASSES)
    strengths = rng.uniform(2.5, 5.0, (N_CLASSES, 1))
    directions = strengths * rng.standard_normal((N_CLASSES, N_FEATURES)) / np.sqrt(N_FEATURES)
    features = is_present @ directions + rng.standard_normal((N_CLIPS, N_FEATURES))
    return features.astype(np.float32), LabelSet.from_dense(is_present.astype(np.int8))


def teach(
    features: Matrix, targets: Matrix, epochs: list[int], seed: int, scored: Matrix
) -> list[Matrix]:
    """Train one network and return logits [clip, class] of some clips after several epochs."""
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(N_FEATURES, N_HIDDEN), torch.nn.ReLU())
    network = torch.nn.Sequential(*layers, torch.nn.Linear(N_HIDDEN, N_CLASSES))
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    x, y = torch.from_numpy(features), torch.from_numpy(targets)
    found = []
    for epoch in range(1, max(epochs) + 1):
        for rows in torch.randperm(len(x)).split(64):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(network(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if epoch in epochs:
            with torch.no_grad():
                found.append(network(torch.from_numpy(scored)).numpy())
    return found


def score(features: Matrix, labels: LabelSet, seed: int) -> dict[tuple[str, str], Matrix]:
    """Return scores by (length of training, in-sample or out of fold)."""
    targets = (labels.states(slice(0, N_CLIPS)) == PRESENT).astype(np.float32)
    epochs = list(EPOCHS.values())
    inside = teach(features, targets, epochs, seed, features)
    outside = [np.empty_like(logits) for logits in inside]
    fold_of = np.random.default_rng(seed).permutation(N_CLIPS) % N_FOLDS
    for fold in range(N_FOLDS):
        held = fold_of == fold
        parts = teach(features[~held], targets[~held], epochs, seed, features[held])
        for whole, part in zip(outside, parts, strict=True):
            whole[held] = part
    kinds = (("in-sample", inside), ("out of fold", outside))
    return {
        (length, kind): logits
        for kind, all_logits in kinds
        for length, logits in zip(EPOCHS, all_logits, strict=True)
    }


def judge(labels: LabelSet, truth: LabelSet, logits: Matrix) -> dict[str, object]:
    """Tell which signs are there, and which share of the missing outscores positives' median."""
    histograms = score_histograms(labels, logits)
    ratios = histograms.of(labels.n_positives >= MIN_POSITIVES).implicit_per_positive(0.5)
    states, is_present = (one.states(slice(0, N_CLIPS)) for one in (labels, truth))
    is_missing = (states == IMPLICIT) & (is_present == PRESENT)
    medians = [np.median(logits[states[:, c] == PRESENT, c]) for c in range(N_CLASSES)]
    return {
        "by_heart": bool(np.median(ratios) < IN_SAMPLE_RATIO),
        "tilted": bool(np.median(tilts_of_missing(histograms)) > MOST_TILT),
        "warns": in_sample_warning(labels, histograms) is not None,
        "shown": float((logits > np.array(medians))[is_missing].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows: list[dict[str, object]] = []
    for seed in range(arguments.datasets):
        features, truth = draw(seed)
        for missing, recall_range in RECALL_RANGES.items():
            params = HidingParams(recall_range=recall_range, seed=seed, false_candidates=0.1)
            labels = hide(truth, Ontology(truth.class_ids), params)
            for (length, kind), logits in score(features, labels, seed).items():
                key = {"missing": missing, "kind": kind, "training": length}
                rows.append({**key, **judge(labels, truth, logits)})
    table = pl.DataFrame(rows).group_by("missing", "kind", "training", maintain_order=True)
    signs = ("by_heart", "tilted", "warns")
    summary = table.agg(pl.len().alias("n"), pl.col("shown").mean(), pl.col(*signs).sum())
    print("| labels missing | scores | training | n | missing shown | by heart | tilted | warned |")
    print("|---|---|---|---|---|---|---|---|")
    for r in summary.to_dicts():
        print(
            f"| {r['missing']} | {r['kind']} | {r['training']} | {r['n']} | {r['shown']:.0%} | "
            f"{r['by_heart']} | {r['tilted']} | {r['warns']} |"
        )
    seconds = time.perf_counter() - start
    path = Path(__file__).parent / "results" / "in_sample.json"
    path.write_text(json.dumps({"seconds": seconds, "table": summary.to_dicts()}, indent=1) + "\n")
    print(f"\n{seconds:.0f} s; wrote {path}")


if __name__ == "__main__":
    main()
