"""What listening finds in an hour, and whether the 90 % intervals hold that it prints.

A scripted rater answers what people heard in the eval clips that AudioSet's strong labels judged
exhaustively; the teacher is that of the recipe ``audioset-probe``, whose networks never saw them.
Controls are not counted.

By default: the missing labels that are found by the queue that learns (``--aim find``), class by
class and by whole clips, with five random samples; by the random sample (``--aim measure``); and by
the plain logit, highest first. Writes ``results/hour_of_listening.json``.

``--intervals``: over many random samples, of the queues that learn (``find``, ``train``, whole
clips) the missing labels in all, the share of right ones among the flags that are left (flags are
the likeliest before anyone has listened, as many as clips), and the forecast; of the random sample
(``measure``) the precision of flags, of all labels, and of the flags of one class, in the cells
that were heard. p_missing is learnt after every eighth block. Clips are those of part B, unless
part A is asked for, on which settings were chosen. Writes ``results/printed_intervals.json``. Half
an hour on one core; finished samples are found again in ``--folder``.

    python benchmarks/hour_of_listening.py --work W --truth FOLDER
    python benchmarks/hour_of_listening.py --work W --truth FOLDER --intervals [--part B]

W and FOLDER are those of ``human_truth.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.config import Aim, ReviewParams
from earmark.flags import find_p_missing
from earmark.metrics import Interval
from earmark.review import (
    CELL,
    CONTROLS,
    N_CLIPS,
    N_OFFERS,
    Candidates,
    JudgedLabels,
    Population,
    find_candidates,
    find_gains,
    find_population,
    learn_from,
    make_queue,
    next_by_class,
    next_by_clip,
    precision_table,
    turns_due,
)
from earmark.storage import write_json
from human_truth import Truth, open_truth
from machine import RESULTS, write_results

N_ANSWERS = (100, 300, 1_000, 3_000, 5_000)
N_WHOLE_CLIPS = (100, 200, 500)
PER_BLOCK, SHARE = 25, ReviewParams().sample_share
SAMPLES = range(5)  # seeds of the random sample
AFTER_ANSWERS, AFTER_CLIPS = (100, 300, 1_000), (50, 200)
LEARN_EVERY = 8  # blocks
LEVEL = 0.9

Row = dict[str, Any]
Present = NDArray[np.float64]


@dataclass
class Sitting:
    """A rater who answers from the truth, and the queue that learns from it."""

    candidates: Candidates
    present: Present
    share: float = SHARE

    def __post_init__(self) -> None:
        self.model = self.candidates.given.model
        self.p_missing = self.candidates.p_missing(self.model)
        self.is_open = np.ones(len(self.candidates), bool)
        self.places: list[int] = []
        self.drawn_at: list[float] = []
        self.n_turns, self.n_clips = 0, 0

    def hear_block(self) -> None:
        """Answer a block of single labels."""
        turns = (self.n_turns, turns_due(self.share, len(self.places), PER_BLOCK))
        worth = self.p_missing * self.candidates.worth[self.candidates.columns]
        self._answer(next_by_class(self.candidates, worth, self.is_open, turns, PER_BLOCK))

    def hear_clips(self) -> None:
        """Answer a block of whole clips."""
        turns = (self.n_turns, self.n_turns + max(round(self.share * N_CLIPS), 1))
        asked = (self.candidates, self.p_missing, self.is_open, turns)
        self._answer(next_by_clip(*asked, N_CLIPS, N_OFFERS))
        self.n_clips += N_CLIPS

    def _answer(self, selection: Any) -> None:
        self.n_turns = selection.n_turns
        self.is_open[selection.places] = False
        self.places += selection.places.tolist()
        drawn_at = np.where(selection.is_sample, np.nan, self.p_missing[selection.places])
        self.drawn_at += drawn_at.tolist()

    def learn(self) -> float:
        """Learn from all answers; return the seconds that it took."""
        start = time.perf_counter()
        self.model = learn_from(self.candidates, self.judged)
        self.p_missing = self.candidates.p_missing(self.model)
        return time.perf_counter() - start

    @property
    def judged(self) -> JudgedLabels:
        """What was answered so far."""
        places, own = np.array(self.places), self.candidates
        stands_for, turns = np.full(len(own), np.nan), own.sample[: self.n_turns]
        stands_for[turns] = own.weights[turns] / own.probabilities(self.n_turns)[turns]
        drawn_at = np.array(self.drawn_at)
        return JudgedLabels(places, self.present[places], drawn_at, stands_for[places])

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


def find_by_class(candidates: Candidates, present: Present) -> tuple[dict[str, int], float]:
    """Return what the queue that learns finds, and the median seconds of learning."""
    sitting, found, seconds = Sitting(candidates, present), {}, []
    while len(sitting.places) < max(N_ANSWERS):
        sitting.hear_block()
        seconds.append(sitting.learn())
        if len(sitting.places) in N_ANSWERS:
            found[str(len(sitting.places))] = sitting.n_found
    return found, float(np.median(seconds))


def find_by_clip(candidates: Candidates, present: Present) -> dict[str, int]:
    """Return what whole clips find by the queue that learns."""
    sitting, found = Sitting(candidates, present), {}
    while sitting.n_clips < max(N_WHOLE_CLIPS):
        sitting.hear_clips()
        sitting.learn()
        if sitting.n_clips in N_WHOLE_CLIPS:
            found[str(sitting.n_clips)] = sitting.n_found
    return found


def five_samples(drawn: Callable[[int], tuple[Candidates, Present]]) -> dict[str, Any]:
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


def say(population: Population, present: Present, *, by_clip: bool) -> list[Row]:
    """Listen; return what is said on the way, and what is true."""
    sitting, number, said = Sitting(population.candidates, present), 0, []
    steps = AFTER_CLIPS if by_clip else AFTER_ANSWERS
    ends = [*steps, *(() if by_clip else (n + 100 for n in steps))]
    finds = {}
    while (n_done := sitting.n_clips if by_clip else len(sitting.places)) < max(ends):
        _hear(sitting, by_clip=by_clip)
        number += 1
        n_done = sitting.n_clips if by_clip else len(sitting.places)
        finds[n_done] = sitting.n_found
        if number % LEARN_EVERY == 0 or n_done in steps:
            sitting.learn()
        if n_done in steps:
            gains = find_gains(population, sitting.judged, sitting.model, SHARE)
            known, left = gains.estimates, np.setdiff1d(population.flags, sitting.places)
            row: Row = {"answers": len(sitting.places), "clips": sitting.n_clips or None}
            row |= {"missing": _ends(known.total), "missing_true": int(present.sum())}
            row |= {"right_left": _ends(known.precision_left)}
            row |= {"right_left_true": float(present[left].mean())}
            said.append({**row, "at": n_done, "next": gains.n_next_found})
    for row in said:
        row["next_true"] = finds.get(row["at"] + 100, finds[row["at"]]) - finds[row["at"]]
    return said


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.value, interval.high]


def _hear(sitting: Sitting, *, by_clip: bool) -> None:
    if by_clip:
        sitting.hear_clips()
    else:
        sitting.hear_block()


def measured(truth: Truth, seed: int) -> list[Row]:
    """Return what the random sample of every class and band says, and what is true of it."""
    params = ReviewParams(aim="measure", seed=seed)
    queue = make_queue(truth.labels, truth.logits, truth.ontology, params)
    asked = queue.items.filter(~pl.col("kind").is_in(CONTROLS))
    asked = asked.select("item", "clip_id", "class_id").head(max(AFTER_ANSWERS))
    rows = {name: row for row, name in enumerate(truth.labels.clip_ids)}
    columns = {name: column for column, name in enumerate(truth.labels.class_ids)}
    pairs = zip(asked["clip_id"], asked["class_id"], strict=True)
    present = [bool(truth.is_missing[rows[clip], columns[name]]) for clip, name in pairs]
    answered = asked.with_columns(
        id=pl.int_range(pl.len()).cast(pl.String),
        at=pl.lit(datetime(2026, 1, 1, tzinfo=UTC)),
        rater=pl.lit("script"),
        answer=pl.Series(np.where(present, "present", "not_present")),
        whole_clip=pl.lit(value=True),
    )
    cells, found = _cells(truth, queue.sizes), []
    for n in AFTER_ANSWERS:
        table = precision_table(queue, answered.head(n), level=LEVEL)
        table = table.filter(pl.col("n_judged") > 0)
        true = table.filter(scope="cell").join(cells, on=CELL)
        for scope, own in (("flags", true.filter("is_flagged")), ("all", true)):
            row = table.filter(pl.col("class_id").is_null(), scope=scope).row(0, named=True)
            found.append({"answers": n, "scope": scope, **_said(row, own)})
        by_class = table.filter(pl.col("class_id").is_not_null(), scope="flags")
        for row in by_class.iter_rows(named=True):
            own = true.filter("is_flagged").filter(class_id=row["class_id"])
            found.append({"answers": n, "scope": "flags of a class", **_said(row, own)})
    return found


def _said(row: Row, cells: pl.DataFrame) -> Row:
    true = int(cells["n_missing"].sum()) / int(cells["n_labels"].sum())
    return {"precision": [row["low"], row["precision_low"], row["high"]], "precision_true": true}


def _cells(truth: Truth, sizes: pl.DataFrame) -> pl.DataFrame:
    """Return the missing labels of every cell: class_id, band_low, band_high, n_missing."""
    parts = []
    for (name,), cells in sizes.group_by("class_id", maintain_order=True):
        column = truth.labels.class_ids.index(str(name))
        own = np.flatnonzero(truth.is_implicit[:, column])
        own = own[np.argsort(-truth.logits[own, column], kind="stable")]
        ends = np.cumsum(cells["n_labels"].to_numpy())[:-1]
        missing = [int(part.sum()) for part in np.split(truth.is_missing[own, column], ends)]
        parts.append(cells.select(*CELL, "is_flagged").with_columns(n_missing=pl.Series(missing)))
    return pl.concat(parts)


def _held(name: str, said: list[Row]) -> Row:
    """Return how many intervals were told, how many hold, and their usual ends."""
    told = [(*row[name], row[f"{name}_true"]) for row in said if row[name] is not None]
    if not told:
        return {f"{name}_told": 0}
    low, middle, high, true = np.array(told, float).T
    return {
        f"{name}_told": len(told),
        f"{name}_coverage": float(((low <= true) & (true <= high)).mean()),
        f"{name}_true": float(true.mean()),
        f"{name}_mean_of_middles": float(middle.mean()),
        f"{name}_median_low": float(np.median(low)),
        f"{name}_median_high": float(np.median(high)),
        f"{name}_half_width": float(np.median(high - low) / 2),
    }


def summarised(aim: str, said: list[list[Row]]) -> list[Row]:
    """Return a row for each number of answers (and scope)."""
    table: dict[tuple[Any, ...], list[Row]] = {}
    for said_row in (row for rows in said for row in rows):
        n = None if said_row.get("clips") else said_row["answers"]
        table.setdefault((n, said_row.get("clips"), said_row.get("scope")), []).append(said_row)
    rows = []
    for (_, clips, scope), own in table.items():
        answers = int(np.mean([one["answers"] for one in own]))
        row: Row = {"aim": aim, "answers": answers, "samples": len(said)}
        row |= {"scope": scope} if scope else {}
        row |= {"clips": clips} if clips else {}
        for name in ("missing", "right_left", "precision"):
            row |= _held(name, own) if name in own[0] else {}
        if aim in ("find", "train"):
            errors = [one["next"] - one["next_true"] for one in own]
            row["forecast_error"] = float(np.sqrt(np.mean(np.square(errors))))
        rows.append(row)
    return rows


def kept(path: Path, n_samples: int, say_one: Callable[[int], list[Row]]) -> list[list[Row]]:
    """Return what is said with each random sample; those of before are found again."""
    said: list[list[Row]] = json.loads(path.read_text()) if path.exists() else []
    while len(said) < n_samples:
        said.append(say_one(1 + len(said)))
        write_json(path, said)
    return said[:n_samples]


def measure_finds(args: argparse.Namespace) -> None:
    """Measure what every queue finds, print and write."""
    truth = open_truth(args.work, args.truth)
    p_missing = find_p_missing(truth.labels, truth.logits, truth.ontology)
    columns, worth = np.flatnonzero(truth.is_judged), np.ones(truth.labels.n_classes)
    n_missing = int(truth.is_missing.sum())

    def drawn(seed: int) -> tuple[Candidates, Present]:
        found = find_candidates(truth.labels, p_missing, columns, worth, seed)
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
    write_results(RESULTS / "hour_of_listening.json", results)


def measure_intervals(args: argparse.Namespace) -> None:
    """Measure how often intervals hold, print and write."""
    every = open_truth(args.work, args.truth)
    truth = every.judged_alone(every.in_part_a if args.part == "A" else ~every.in_part_a)

    def drawn(seed: int, aim: Aim) -> tuple[Population, Present]:
        params = ReviewParams(aim=aim, seed=seed)
        found = find_population(truth.labels, truth.logits, truth.ontology, params)
        flags = np.arange(len(truth.logits))  # candidates are in the order of p_missing
        found = replace(found, flags=flags, n_flags=len(flags))
        own = found.candidates
        return found, truth.is_missing[own.rows, own.columns].astype(float)

    args.folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for aim in args.aims:

        def say_one(seed: int, aim: str = aim) -> list[Row]:
            if aim == "measure":
                return measured(truth, seed)
            return say(*drawn(seed, "train" if aim == "train" else "find"), by_clip=aim == "clips")

        said = kept(args.folder / f"{args.part}-{aim}.json", args.samples, say_one)
        rows += summarised(aim, said)
        print(*map(json.dumps, summarised(aim, said)), sep="\n", flush=True)
    facts = {"part": args.part, "clips": len(truth.logits), "missing": int(truth.is_missing.sum())}
    write_results(RESULTS / "printed_intervals.json", {**facts, "rows": rows})


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--intervals", action="store_true")
    parser.add_argument("--part", choices=("A", "B"), default="B")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--aims", nargs="+", default=["find", "train", "clips", "measure"])
    default = Path(tempfile.gettempdir(), "earmark-printed-intervals")
    parser.add_argument("--folder", type=Path, default=default)
    args = parser.parse_args()
    if args.work is None or args.truth is None:
        print("skipped: give --work and --truth (see the head of this file)")
    elif args.intervals:
        measure_intervals(args)
    else:
        measure_finds(args)


if __name__ == "__main__":
    main()
