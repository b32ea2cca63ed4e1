"""How often the 90 % intervals hold that raters are shown while they listen, under every aim.

A scripted rater answers what people heard in AudioSet's judged clips (``human_truth.py``; part B,
unless part A is asked for, on which settings were chosen), over many random samples. Of the queues
that learn (``find``, ``train``, whole clips): the missing labels in all, the share of right ones
among the flags that are left (flags are the likeliest before anyone has listened, as many as
clips), and the forecast. Of the random sample of every class and band (``measure``): the precision
of flags, of all labels, and of the flags of one class, in the cells that were heard.
Chances are learnt after every eighth block, and are kept of a quarter of the labels; in the others
the sample alone counts. Controls are not counted.

Prints rows and writes ``results/printed_intervals.json``. Half an hour on one core.

    python benchmarks/printed_intervals.py --work W --truth FOLDER [--part B] [--samples 40]

W and FOLDER are those of ``human_truth.py``. Finished samples are found again in ``--folder``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.flags import Chances, count_missing
from earmark.review.flag_precision import CELL, precision_table
from earmark.review.queues.candidates import Candidates, find_candidates
from earmark.review.queues.gains import find_gains
from earmark.review.queues.measuring import make_queue
from earmark.review.queues.population import RARE_POWER
from earmark.review.queues.queue import CONTROLS
from earmark.runs import ReviewParams, write_json
from hour_of_listening import SHARE, Sitting
from human_truth import Truth, open_truth

RESULTS = Path(__file__).parent / "results" / "printed_intervals.json"
AFTER_ANSWERS, AFTER_CLIPS = (100, 300, 1_000), (50, 200)
LEARN_EVERY = 8  # blocks
N_CANDIDATES = 100_000
LEVEL = 0.9

Row = dict[str, Any]
Present = NDArray[np.float64]


def say(
    candidates: Candidates, present: Present, n_flags: int, n_missing: int, *, by_clip: bool
) -> list[Row]:
    """Listen; return what is said on the way, and what is true."""
    sitting, number, said = Sitting(candidates, present), 0, []
    steps = AFTER_CLIPS if by_clip else AFTER_ANSWERS
    ends = [*steps, *(() if by_clip else (n + 100 for n in steps))]
    flags, finds = np.arange(n_flags), {}
    while (n_done := sitting.n_clips if by_clip else len(sitting.places)) < max(ends):
        _hear(sitting, by_clip=by_clip)
        number += 1
        n_done = sitting.n_clips if by_clip else len(sitting.places)
        finds[n_done] = sitting.n_found
        if number % LEARN_EVERY == 0 or n_done in steps:
            sitting.learn()
        if n_done in steps:
            gains = find_gains(candidates, sitting.heard, sitting.chances, flags, SHARE)
            left = np.setdiff1d(flags, sitting.places)
            row = {"answers": len(sitting.places), "clips": sitting.n_clips or None}
            row |= {"missing": gains.missing, "missing_true": n_missing}
            row |= {"right_left": gains.right_left, "right_left_true": float(present[left].mean())}
            said.append({**row, "at": n_done, "next": gains.n_next_found})
    for row in said:
        row["next_true"] = finds.get(row["at"] + 100, finds[row["at"]]) - finds[row["at"]]
    return said


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
    true = cells["n_missing"].sum() / cells["n_labels"].sum()
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
    for row in (row for one in said for row in one):
        n = None if row.get("clips") else row["answers"]
        table.setdefault((n, row.get("clips"), row.get("scope")), []).append(row)
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


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--part", choices=("A", "B"), default="B")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--aims", nargs="+", default=["find", "train", "clips", "measure"])
    default = Path(tempfile.gettempdir(), "earmark-printed-intervals")
    parser.add_argument("--folder", type=Path, default=default)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.work is None or args.truth is None:
        print("skipped: give --work and --truth (see the head of this file)")
        return
    every = open_truth(args.work, args.truth)
    truth = every.judged_alone(every.in_part_a if args.part == "A" else ~every.in_part_a)
    chances: Chances = count_missing(truth.labels, truth.logits, ontology=truth.ontology).chances
    columns = np.arange(truth.labels.n_classes)
    rare = (truth.labels.n_positives + 1.0) ** -RARE_POWER

    def drawn(seed: int, aim: str) -> tuple[Candidates, Present]:
        worth = rare if aim == "train" else np.ones(len(columns))
        found = find_candidates(truth.labels, chances, columns, worth, seed, n_most=N_CANDIDATES)
        return found, truth.is_missing[found.rows, found.columns].astype(float)

    args.folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for aim in args.aims:

        def say_one(seed: int, aim: str = aim) -> list[Row]:
            if aim == "measure":
                return measured(truth, seed)
            counts = len(truth.logits), int(truth.is_missing.sum())
            return say(*drawn(seed, aim), *counts, by_clip=aim == "clips")

        said = kept(args.folder / f"{args.part}-{aim}.json", args.samples, say_one)
        rows += summarised(aim, said)
        print(*map(json.dumps, summarised(aim, said)), sep="\n", flush=True)
    facts = {"part": args.part, "clips": len(truth.logits), "missing": int(truth.is_missing.sum())}
    args.out.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
