"""What an hour of listening finds: queues heard by a rater who answers what people heard.

The 8,235 eval clips that AudioSet's strong labels judged exhaustively, in 101 classes; the teacher
is that of the recipe ``audioset-probe``, whose networks never saw these clips. Queues: the one that
learns (``--aim find``), class by class and by whole clips; the random sample (``--aim measure``);
and the plain logit, highest first. The queue that learns is heard with five random samples.
Controls are not counted. How often the intervals hold that are printed on the way is measured by
``printed_intervals.py``.

Prints tables and writes ``results/hour_of_listening.json``.

    python benchmarks/hour_of_listening.py --work W --truth FOLDER

W and FOLDER are those of ``human_truth.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.flags import Chances, count_missing
from earmark.review.queues.candidates import Candidates, find_candidates
from earmark.review.queues.heard import HeardSoFar, learn_from
from earmark.review.queues.live import N_CLIPS, N_OFFERS
from earmark.review.queues.measuring import make_queue
from earmark.review.queues.portions import next_by_class, next_by_clip, turns_due
from earmark.review.queues.queue import CONTROLS
from earmark.runs import ReviewParams
from human_truth import Truth, open_truth

RESULTS = Path(__file__).parent / "results" / "hour_of_listening.json"
N_ANSWERS = (100, 300, 1_000, 3_000, 5_000)
N_WHOLE_CLIPS = (100, 200, 500)
PER_BLOCK, SHARE = 25, ReviewParams().sample_share
SAMPLES = range(5)  # seeds of the random sample


@dataclass
class Sitting:
    """A rater who answers from the truth, and the queue that learns from it."""

    candidates: Candidates
    present: NDArray[np.float64]
    share: float = SHARE

    def __post_init__(self) -> None:
        self.chances = self.candidates.chances(None)
        self.is_open = np.ones(len(self.candidates), bool)
        self.places: list[int] = []
        self.drawn_at: list[float] = []
        self.n_turns, self.n_clips = 0, 0

    def hear_block(self) -> None:
        """Answer a block of single labels."""
        turns = (self.n_turns, turns_due(self.share, len(self.places), PER_BLOCK))
        worth = self.chances * self.candidates.worth[self.candidates.columns]
        self._answer(next_by_class(self.candidates, worth, self.is_open, turns, PER_BLOCK))

    def hear_clips(self) -> None:
        """Answer a block of whole clips."""
        turns = (self.n_turns, self.n_turns + max(round(self.share * N_CLIPS), 1))
        asked = (self.candidates, self.chances, self.is_open, turns)
        self._answer(next_by_clip(*asked, N_CLIPS, N_OFFERS))
        self.n_clips += N_CLIPS

    def _answer(self, portion: Any) -> None:
        self.n_turns = portion.n_turns
        self.is_open[portion.places] = False
        self.places += portion.places.tolist()
        by_chance = np.where(portion.is_sample, np.nan, self.chances[portion.places])
        self.drawn_at += by_chance.tolist()

    def learn(self) -> float:
        """Learn from all answers; return the seconds that it took."""
        start = time.perf_counter()
        self.chances = self.candidates.chances(learn_from(self.candidates, self.heard))
        return time.perf_counter() - start

    @property
    def heard(self) -> HeardSoFar:
        """What was answered so far."""
        places = np.array(self.places)
        passed = self.candidates.sample[: self.n_turns]
        return HeardSoFar(places, self.present[places], np.array(self.drawn_at), passed)

    @property
    def n_found(self) -> int:
        """Missing labels found so far."""
        return int(self.present[self.places].sum())


def found_by_order(is_right: NDArray[np.bool_]) -> dict[str, int]:
    """Return what the first answers find."""
    return {str(n): int(is_right[:n].sum()) for n in N_ANSWERS}


def found_by_measuring(truth: Truth) -> dict[str, int]:
    """Return what the random sample of every class and band finds, block after block."""
    judged = truth.judged_alone(np.ones(len(truth.logits), bool))
    params = ReviewParams(aim="measure")
    queue = make_queue(judged.labels, judged.logits, judged.ontology, params)
    asked = queue.items.filter(~pl.col("kind").is_in(CONTROLS))
    row_of = {name: row for row, name in enumerate(judged.labels.clip_ids)}
    column_of = {name: column for column, name in enumerate(judged.labels.class_ids)}
    at = [
        (row_of[clip], column_of[name]) for clip, name in asked.select("clip_id", "class_id").rows()
    ]
    rows, columns = np.array(at).T
    return found_by_order(judged.is_missing[rows, columns])


def plain_by_clip(truth: Truth, n_clips: int) -> int:
    """Return what clips find by the logit alone, seven labels each."""
    logits = np.where(truth.is_implicit, truth.logits, -np.inf)
    best = np.argsort(-logits, axis=1)[:, :N_OFFERS]
    rows = np.arange(len(logits))[:, None]
    expected = (1 / (1 + np.exp(-logits[rows, best]))).sum(axis=1)
    chosen = np.argsort(-expected, kind="stable")[:n_clips]
    return int(truth.is_missing[chosen[:, None], best[chosen]].sum())


def find_by_class(
    candidates: Candidates, present: NDArray[np.float64]
) -> tuple[dict[str, int], float]:
    """Return what the queue that learns finds, and the median seconds of learning."""
    sitting, found, seconds = Sitting(candidates, present), {}, []
    while len(sitting.places) < max(N_ANSWERS):
        sitting.hear_block()
        seconds.append(sitting.learn())
        if len(sitting.places) in N_ANSWERS:
            found[str(len(sitting.places))] = sitting.n_found
    return found, float(np.median(seconds))


def find_by_clip(candidates: Candidates, present: NDArray[np.float64]) -> dict[str, int]:
    """Return what whole clips find by the queue that learns."""
    sitting, found = Sitting(candidates, present), {}
    while sitting.n_clips < max(N_WHOLE_CLIPS):
        sitting.hear_clips()
        sitting.learn()
        if sitting.n_clips in N_WHOLE_CLIPS:
            found[str(sitting.n_clips)] = sitting.n_found
    return found


def five_samples(drawn: Callable[[int], tuple[Candidates, NDArray[np.float64]]]) -> dict[str, Any]:
    """Return what the queue that learns finds with other random samples: mean, least and most."""
    found = [(find_by_class(*drawn(seed))[0], find_by_clip(*drawn(seed))) for seed in SAMPLES]
    return {
        name: {
            n: [float(np.mean(own)), min(own), max(own)]
            for n in found[0][place]
            for own in [[one[place][n] for one in found]]
        }
        for place, name in enumerate(("find", "clips"))
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.work is None or args.truth is None:
        print("skipped: give --work and --truth (see the head of this file)")
        return
    truth = open_truth(args.work, args.truth)
    chances: Chances = count_missing(truth.labels, truth.logits, ontology=truth.ontology).chances
    columns, worth = np.flatnonzero(truth.is_judged), np.ones(truth.labels.n_classes)
    n_missing = int(truth.is_missing.sum())

    def drawn(seed: int) -> tuple[Candidates, NDArray[np.float64]]:
        found = find_candidates(truth.labels, chances, columns, worth, seed)
        return found, truth.is_missing[found.rows, found.columns].astype(float)

    rows, own = np.nonzero(truth.is_implicit)
    by_logit = np.argsort(-truth.logits[rows, own], kind="stable")
    results: dict[str, Any] = {"n_missing": n_missing, "n_labels": len(rows)}
    results["logit"] = found_by_order(truth.is_missing[rows, own][by_logit])
    results["measure"] = found_by_measuring(truth)
    results["find"], results["seconds_to_learn"] = find_by_class(*drawn(0))
    results["clips_by_logit"] = {str(n): plain_by_clip(truth, n) for n in N_WHOLE_CLIPS}
    results["clips"] = find_by_clip(*drawn(0))
    for name in ("measure", "logit", "find", "clips_by_logit", "clips"):
        print(f"{name:15s}", results[name], flush=True)
    print(f"learning from answers: {results['seconds_to_learn']:.2f} s (median)", flush=True)
    results["five_samples"] = five_samples(drawn)
    print("five samples", json.dumps(results["five_samples"]), flush=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
