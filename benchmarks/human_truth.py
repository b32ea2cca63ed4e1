"""p_missing and totals held against what people heard in AudioSet's eval clips.

8,235 eval clips were labelled exhaustively (AudioSet's strong labels) in 101 classes: that says
which of the labels that nobody was asked about are missing. The teacher is that of the recipe
``audioset-probe``, whose networks never saw these clips. Clips are cut in two by their names: part
A to choose on, part B to report, looked at last. Answers are those people gave, drawn from the
other part: evenly over the logarithm of the rank, or as many from every class and band of scores.
Totals are of the part's clips alone, with answers from them drawn by Neyman's allocation.

Prints tables and writes ``results/human_truth.json``. Ten minutes on one core.

    python benchmarks/human_truth.py --work W --truth FOLDER [--part B] [--draws 10]

W holds AudioSet's features and the teacher's scores (``earmark import audioset-features``, then
``earmark score W --recipe audioset-probe``). FOLDER has ``human_truth_clips.csv`` (YTID),
``human_truth_classes.csv`` (mid) and ``human_truth_labels.csv`` (YTID, mid).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from earmark.config import PAPER_DISCARD_PERCENTS
from earmark.datasets import Workspace, whole_scores
from earmark.flags import (
    Answers,
    PMissing,
    allocate,
    estimate_total,
    find_p_missing,
    sampling_sizes,
)
from earmark.labels import IMPLICIT, LabelSet, Ontology
from earmark.review.candidates import LEAST_P
from earmark.scores import ScoreFolder

RESULTS = Path(__file__).parent / "results" / "human_truth.json"
N_FLAGS = (668, 2_500, 8_276, 21_600)
"""Flags of all judged clips; of a part, as many as its share of the clips."""
MAIN = 8_276
N_ANSWERS = (100, 300, 1_000, 3_000)
FIRST_SHARE = 1e-4  # of all labels: up to that rank they are drawn alike
N_RESAMPLES = 400
LEAST_IN_BIN = 50

BALANCES = (0.0, 0.3, 1.0, 3.0)

Matrix = NDArray[np.floating]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Truth:
    """The judged clips: labels, scores, and which implicit labels [clip, class] are missing."""

    labels: LabelSet
    logits: NDArray[np.float32]
    is_missing: Mask
    is_judged: Mask  # [class]
    in_part_a: Mask  # [clip]
    ontology: Ontology

    @cached_property
    def is_implicit(self) -> Mask:
        """Implicit labels of the judged classes [clip, class]."""
        return np.asarray((self.labels.states() == IMPLICIT) & self.is_judged)

    def judged_alone(self, clips: Mask) -> Truth:
        """Return some of the clips, in the judged classes, as a dataset of their own."""
        rows, columns = np.flatnonzero(clips), np.flatnonzero(self.is_judged)
        class_ids = [self.labels.class_ids[column] for column in columns]
        at = np.ix_(rows, columns)
        return Truth(
            LabelSet.from_dense(self.labels.states()[at], class_ids=class_ids),
            np.ascontiguousarray(self.logits[at]),
            self.is_missing[at],
            np.ones(len(columns), bool),
            self.in_part_a[rows],
            self.ontology,
        )


def open_truth(work: Path, folder: Path) -> Truth:
    """Bring what people heard, the labels as given and the teacher's scores together."""
    workspace = Workspace.open(work)
    scores = whole_scores(workspace, ScoreFolder.open(workspace.scores_folder("teacher")))
    clips = pl.read_csv(folder / "human_truth_clips.csv")["YTID"]
    evaluated = workspace.clips.filter(split="eval").select("clip_id", YTID="source")
    order = pl.DataFrame({"YTID": clips}).join(evaluated, on="YTID", maintain_order="left")
    places = pl.DataFrame({"clip_id": scores.clip_ids}).with_row_index("score_row")
    order = order.join(places, on="clip_id", maintain_order="left")
    known = pl.DataFrame({"clip_id": workspace.labels.clip_ids}).with_row_index("label_row")
    order = order.join(known, on="clip_id", maintain_order="left").with_row_index("row")
    labels = workspace.labels.select(order["label_row"].to_numpy())
    columns = pl.DataFrame({"mid": list(labels.class_ids)}).with_row_index("column")
    heard = pl.read_csv(folder / "human_truth_labels.csv").join(columns, on="mid")
    heard = heard.join(order.select("YTID", "row"), on="YTID")
    there = np.zeros((len(order), labels.n_classes), bool)
    there[heard["row"].to_numpy(), heard["column"].to_numpy()] = True
    asked = pl.read_csv(folder / "human_truth_classes.csv")["mid"]
    is_judged = np.isin(np.array(labels.class_ids), asked.to_numpy())
    in_part_a = [hashlib.sha256(name.encode()).digest()[0] % 2 == 0 for name in order["YTID"]]
    return Truth(
        labels,
        np.asarray(scores.logits[order["score_row"].to_numpy()], np.float32),
        there & (labels.states() == IMPLICIT) & is_judged,
        is_judged,
        np.array(in_part_a),
        workspace.ontology,
    )


def all_log_odds(p_missing: PMissing, truth: Truth) -> NDArray[np.float32]:
    """Return the log-odds [clip, class] of all labels."""
    log_odds = np.empty(truth.logits.shape, np.float32)
    p_missing.fill(log_odds)
    return log_odds


@dataclass(frozen=True)
class Ranked:
    """The implicit labels of a part in the order of some ranking: clip, class, whether missing."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    is_right: Mask
    n_missing: NDArray[np.int64]  # [class]
    n_clips: int

    @classmethod
    def by(cls, ranking: Matrix, truth: Truth, part: Mask) -> Ranked:
        """Rank the labels of a part."""
        rows, columns = np.nonzero(truth.is_implicit & part[:, None])
        order = np.argsort(-ranking[rows, columns], kind="stable")
        rows, columns = rows[order], columns[order]
        n_missing = (truth.is_missing & part[:, None]).sum(axis=0)
        right = truth.is_missing[rows, columns]
        return cls(rows, columns, right, n_missing, int(part.sum()))

    def measured(self, n_flags: int) -> dict[str, float]:
        """Precision, recall, macro recall and classes of the first flags."""
        right, columns = self.is_right[:n_flags], self.columns[:n_flags]
        found = np.bincount(columns, weights=right, minlength=len(self.n_missing))
        has_any = self.n_missing > 0
        return {
            "flags": n_flags,
            "precision": float(right.mean()),
            "recall": float(right.sum() / self.n_missing.sum()),
            "macro_recall": float((found[has_any] / self.n_missing[has_any]).mean()),
            "classes": len(np.unique(columns)),
        }

    def resampled(self, n_flags: int, weights: Matrix) -> Matrix:
        """Return the precision of as many flags [resample] when clips count by weights."""
        found = np.empty(len(weights))
        for place, one in enumerate(weights):
            counts = one[self.rows]
            up_to = int(np.searchsorted(np.cumsum(counts), n_flags))
            found[place] = np.average(self.is_right[:up_to], weights=counts[:up_to])
        return found


def draw_by_rank(
    truth: Truth, part: Mask, ranking: Matrix, n: int, rng: np.random.Generator
) -> Answers:
    """Draw answers evenly over the logarithm of the rank, each label on its own."""
    ranked = Ranked.by(ranking, truth, part)
    probability = 1 / (np.arange(len(ranked.rows)) + FIRST_SHARE * len(ranked.rows))
    probability *= n / probability.sum()
    for _ in range(50):
        probability = np.minimum(probability * n / np.minimum(probability, 1).sum(), 1)
    asked = rng.random(len(probability)) < probability
    present = ranked.is_right[asked].astype(float)
    return Answers(ranked.rows[asked], ranked.columns[asked], present)


def draw_by_cell(truth: Truth, part: Mask, n: int, rng: np.random.Generator) -> Answers:
    """Draw as many answers from every class and band of scores."""
    edges = np.array(PAPER_DISCARD_PERCENTS) / 100
    rows, columns, bands = [], [], []
    for judged in np.flatnonzero(truth.is_judged):
        mine = np.flatnonzero(truth.is_implicit[:, judged] & part)
        mine = mine[np.argsort(-truth.logits[mine, judged], kind="stable")]
        share = (np.arange(len(mine)) + 0.5) / len(mine)
        rows.append(mine)
        columns.append(np.full(len(mine), judged))
        bands.append(np.searchsorted(edges, share))
    row, column, band = map(np.concatenate, (rows, columns, bands))
    cell = column * (len(edges) + 1) + band
    _, cell, size = np.unique(cell, return_inverse=True, return_counts=True)
    probability = np.minimum(n / len(size) / size[cell], 1)
    asked = rng.random(len(row)) < probability
    present = truth.is_missing[row[asked], column[asked]].astype(float)
    return Answers(row[asked], column[asked], present)


def rankings(truth: Truth) -> dict[str, Matrix]:
    """Return the rankings [clip, class] that need no answers: ours and the rivals'."""
    logits, states = truth.logits, truth.labels.states()
    p_missing = find_p_missing(truth.labels, logits, truth.ontology)
    share, above = np.empty_like(logits), np.empty_like(logits)
    for column in range(logits.shape[1]):
        own = logits[:, column]
        implicit = np.sort(own[states[:, column] == IMPLICIT])
        share[:, column] = np.searchsorted(implicit, own, side="left") / len(implicit)
        positives = own[states[:, column] > 0]
        mean = expit(positives).mean() if len(positives) else 1.0
        above[:, column] = expit(own) - mean
    return {
        "earmark": all_log_odds(p_missing, truth),
        "plain logit = cleanlab's ranking": logits,
        "percentile (the paper)": share,
        "above positives' mean (PSLA)": above,
    }


def cleanlab_filter(truth: Truth, part: Mask) -> Mask:
    """Return the labels [clip, class] that cleanlab's filter takes for missing."""
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    given = [np.flatnonzero(row).tolist() for row in truth.labels.states() > 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        issues = find_multilabel_issues_per_class(given, expit(truth.logits), n_jobs=1)
    return np.asarray(issues) & truth.is_implicit & part[:, None]


def calibration(ranking: Matrix, truth: Truth, part: Mask) -> Matrix:
    """Return labels, sum of chances and missing ones [3, bin] in ten bins of the chance."""
    chosen = truth.is_implicit & part[:, None]
    chances, missing = expit(ranking[chosen]), truth.is_missing[chosen]
    bins = np.minimum((chances * 10).astype(int), 9)
    weights = (np.ones(len(bins)), chances, missing)
    return np.stack([np.bincount(bins, weights=one, minlength=10) for one in weights])


def largest_error(counts: Matrix) -> float:
    """Return the largest error of the chance over bins that hold enough labels."""
    n, said, true = counts[:, counts[0] >= LEAST_IN_BIN]
    return float((np.abs(said - true) / n).max())


def before_listening(truth: Truth, part: Mask) -> list[dict[str, Any]]:
    """Hold the range that is stated before listening against how many flags are right."""
    p_missing = find_p_missing(truth.labels, truth.logits, truth.ontology)
    ranked = Ranked.by(all_log_odds(p_missing, truth), truth, part)
    results = []
    for n in N_FLAGS:
        first = slice(0, round(n * part.mean()))
        value, low, high = p_missing.count_present(ranked.rows[first], ranked.columns[first])
        right = int(ranked.is_right[first].sum())
        row = {"flags": first.stop, "right": right, "stated": value, "low": low, "high": high}
        results.append(row)
        _show(row)
    return results


def balanced(truth: Truth, part: Mask, n_flags: int) -> list[dict[str, Any]]:
    """Measure what balance buys and costs, without answers."""
    log_odds = all_log_odds(find_p_missing(truth.labels, truth.logits, truth.ontology), truth)
    n_positives = np.maximum(truth.labels.n_positives, 1)
    results = []
    for balance in BALANCES:
        weights = 1 + balance * n_positives.mean() / n_positives
        ranked = Ranked.by(expit(log_odds) * weights, truth, part)
        results.append({"balance": balance, **ranked.measured(n_flags)})
        _show(results[-1])
    return results


def learnt(
    truth: Truth, asked: Mask, part: Mask, n_draws: int, n_flags: int
) -> list[dict[str, Any]]:
    """Measure what answers teach, by how they were drawn and how many there are."""
    before = find_p_missing(truth.labels, truth.logits, truth.ontology)
    features = before.features.of_clips(slice(0, len(truth.logits)), truth.logits)
    prior = before.model.log_odds(features)
    results = []
    for design in ("by rank", "by class and band"):
        for n in N_ANSWERS:
            runs: list[dict[str, float]] = []
            bins, errors = np.zeros((3, 10)), list[float]()
            for seed in range(n_draws):
                rng = np.random.default_rng([seed, n])
                if design == "by rank":
                    answers = draw_by_rank(truth, asked, prior, n, rng)
                else:
                    answers = draw_by_cell(truth, asked, n, rng)
                ranking = before.with_answers(answers).model.log_odds(features)
                runs.append(Ranked.by(ranking, truth, part).measured(n_flags))
                counts = calibration(ranking, truth, part)
                bins, errors = bins + counts, [*errors, largest_error(counts)]
            mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
            spread = float(np.std([run["precision"] for run in runs], ddof=1))
            results.append(
                {
                    "drawn": design, "answers": n, **mean, "precision_sd_over_draws": spread,
                    "largest_error_pooled": largest_error(bins),
                    "largest_error_a_draw": float(np.mean(errors)),
                }
            )  # fmt: skip
            _show(results[-1])
    return results


def totals(part: Truth, n_samples: int = 200) -> list[dict[str, Any]]:
    """Measure totals by the difference estimator: coverage of 90 % intervals and their width."""
    p_missing = find_p_missing(part.labels, part.logits, part.ontology)
    rows, columns = np.nonzero(part.is_implicit)
    present = part.is_missing[rows, columns].astype(float)
    p = expit(p_missing.log_odds_of(rows, columns))
    results = []
    for n in (100, 200, 300, 1_000):
        probability, intervals = allocate(sampling_sizes(p, LEAST_P), n), []
        for seed in range(n_samples):
            at = systematic(probability, np.random.default_rng(seed))
            sample = (p[at], present[at], 1 / probability[at])
            total = estimate_total(float(p.sum()), *sample)
            intervals.append((total.low, total.value, total.high))
        low, estimate, high = np.array(intervals).T / present.sum()
        row = {
            "answers": n,
            "coverage": float(np.mean((low <= 1) & (high >= 1))),
            "give_or_take": float(np.mean(high - low) / 2),
            "mean_estimate": float(estimate.mean()),
        }
        results.append(row)
        _show(row)
    return results


def systematic(probability: Matrix, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw labels with given probabilities, as many as these add up to."""
    order = rng.permutation(len(probability))
    reached = np.cumsum(probability[order])
    return np.asarray(order[np.searchsorted(reached, np.arange(rng.random(), reached[-1]))])


def _show(row: dict[str, Any]) -> None:
    shown = (f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
    print("  " + ", ".join(shown), flush=True)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--part", choices=("A", "B"), default="B")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.work is None or given.truth is None:
        print("skipped: give --work and --truth (see the head of this file)")
        return
    truth = open_truth(given.work, given.truth)
    part = truth.in_part_a if given.part == "A" else ~truth.in_part_a
    share = part.mean()
    print(
        f"part {given.part}: {part.sum():,} clips, {truth.is_missing[part].sum():,} missing labels"
    )
    resamples = np.random.default_rng(0).multinomial(
        part.sum(), np.full(part.sum(), 1 / part.sum()), N_RESAMPLES
    )
    weights = np.zeros((N_RESAMPLES, len(part)))
    weights[:, part] = resamples
    lists: list[dict[str, Any]] = []
    plain = rankings(truth)
    drawn: dict[str, Matrix] = {}
    main_flags = round(MAIN * share)
    for name, ranking in plain.items():
        ranked = Ranked.by(ranking, truth, part)
        drawn[name] = ranked.resampled(main_flags, weights)
        for n in N_FLAGS:
            lists.append({"ranking": name, "of_all": n, **ranked.measured(round(n * share))})
            _show(lists[-1])
    ours = drawn.pop("earmark")
    intervals = {
        name: [float(end) for end in np.quantile(ours - one, (0.025, 0.975))]
        for name, one in drawn.items()
    }
    print("  earmark less others, precision at", main_flags, intervals)
    filtered = None
    if find_spec("cleanlab") is not None:
        own = cleanlab_filter(truth, part)
        at_filter = Ranked.by(plain["earmark"], truth, part).measured(int(own.sum()))
        by_filter = float(truth.is_missing[own].mean())
        filtered = {"flags": int(own.sum()), "filter": by_filter, "earmark": at_filter["precision"]}
    print("  cleanlab's filter", filtered or "is not installed")
    bins = calibration(plain["earmark"], truth, part)
    results = {
        "part": given.part,
        "clips": int(part.sum()),
        "missing": int(truth.is_missing[part].sum()),
        "lists": lists,
        "interval_of_difference": intervals,
        "interval_earmark": [float(end) for end in np.quantile(ours, (0.025, 0.975))],
        "cleanlab_filter": filtered,
        "calibration_without_answers": bins.tolist(),
        "before_listening": before_listening(truth, part),
        "balance": balanced(truth, part, main_flags),
        "answers_of_other_clips": learnt(truth, ~part, part, given.draws, main_flags),
        "totals": totals(truth.judged_alone(part)),
    }
    given.out.write_text(json.dumps(results, indent=1))
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
