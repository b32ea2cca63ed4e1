"""What answers buy a student on recorded sound: probes on mixtures of ESC-50's recordings.

A set has 2,400 clips of three of ESC-50's folds as a user would bring them (benchmarks/mixtures.py:
labels hidden with a recall of 0.3 to 0.9 by class) and 1,200 of the fourth, in turns. The
pretrained teacher of the recipe ``find`` scores the first out of fold. A scripted rater answers
300, 1,000 and 2,000 labels from the truth, as the queues ask: the random sample of every class and
band (``measure``), the plain logit first, and the queues that learn (``find`` and ``train``, their
random share included). Controls are not counted. Students are linear probes on YAMNet's embeddings:
heard labels become positives or stay negatives (``answers``), and in a second row all others get
half of the chance that the answers teach as their target (``hedged``). The other fold says how good
they are, by complete truth: 400 of its clips, labels as given, choose the offset of the calibrated
lwlrap, and 800 are measured. Gains are those over the student of the labels as given.

    python benchmarks/students_of_mixtures.py --esc50 ESC50 [--yamnet FILE] [--sets 0 1 4 5]

``--worth`` tries other powers of a class's labels in ``train``. Finished sets are found again in
``--folder``. Prints a table and writes ``results/students_of_mixtures.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from earmark import pipeline
from earmark.audio import FrameStore
from earmark.compute import LocalEngine
from earmark.config import ReviewParams
from earmark.datasets import Workspace, import_table
from earmark.flags import Answers, find_p_missing
from earmark.labels import IMPLICIT, LabelSet
from earmark.metrics import (
    apply_offset,
    auc_per_class,
    average_precision_per_class,
    d_prime,
    fit_prior_offset,
    lwlrap,
    smoothed_priors,
)
from earmark.models import ClipExamples, build_probe, probe_features
from earmark.models.pretrained import add_teacher, embed_clips, kept_teachers
from earmark.review import CONTROLS, find_population, make_queue
from earmark.scores import logits_of, scored_labels
from earmark.storage import write_json
from earmark.training import ScaledFeatures, fit_probe
from hour_of_listening import Sitting
from mixtures import make_mixtures

RESULTS = Path(__file__).parent / "results" / "students_of_mixtures.json"
N_TRAIN, N_TUNE, N_EVAL = 2_400, 400, 800
N_ANSWERS = (300, 1_000, 2_000)
METRICS = ("lwlrap_calibrated", "map", "d_prime", "lwlrap")
ORDERS = ("measure", "logit", "find", "train")

Matrix = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MixtureSet:
    """One set: the train clips with labels, truth and the teacher's logits; and the other fold."""

    workspace: Workspace
    labels: LabelSet
    is_true: NDArray[np.bool_]
    logits: NDArray[np.float32]
    embeddings: FrameStore
    store_rows: Ints
    other: FrameStore
    other_given: NDArray[np.int8]
    other_true: NDArray[np.bool_]


def open_set(esc50: Path, folder: Path, number: int) -> MixtureSet:
    """Make a set, or find it again; set n leaves fold 1 + n % 4 out."""
    out = 1 + number % 4
    train = [fold for fold in (1, 2, 3, 4) if fold != out]
    parts = {"train": (N_TRAIN, train), "other": (N_TUNE + N_EVAL, [out])}
    recipe = pipeline.asked_recipe()
    workspaces = {}
    for name, (n_clips, folds) in parts.items():
        own = folder / f"set{number}" / name
        if not (own / "labels.csv").exists():
            make_mixtures(esc50, own, n_clips, folds, seed=1_000 + number)
        clips = pl.read_csv(own / "sources.csv", schema_overrides={"clip_id": pl.String})
        listed = clips.select("clip_id", audio=str(own / "clips") + "/" + pl.col("clip_id"))
        listed.write_csv(own / "clips.csv")
        if not (own / "work").exists():
            import_table(own / "clips.csv", own / "labels.csv", own / "work")
        workspaces[name] = Workspace.open(own / "work")
    main, other = workspaces["train"], workspaces["other"]
    scores = pipeline.teach(main, recipe, engine=LocalEngine(1)).scores
    assert recipe.pretrained is not None
    heard = embed_clips(other, recipe.pretrained, engine=LocalEngine(1)).embeddings
    assert heard is not None
    labels = scored_labels(scores, main.labels)
    clip_ids, other_ids = labels.clip_ids.to_list(), heard.clip_ids.to_list()
    store = FrameStore.open(main.embeddings_folder)
    places = {name: row for row, name in enumerate(store.clip_ids.to_list())}
    given = other.labels.select(_rows(other.labels.clip_ids.to_list(), other_ids))
    assert given.class_ids == labels.class_ids
    truths = (folder / f"set{number}" / name / "truth.csv" for name in parts)
    is_true, other_true = (
        _matrix(path, ids, labels.class_ids)
        for path, ids in zip(truths, (clip_ids, other_ids), strict=True)
    )
    return MixtureSet(
        main,
        labels,
        is_true,
        np.asarray(logits_of(scores, labels.clip_ids)),
        store,
        np.array([places[name] for name in clip_ids]),
        heard,
        given.states(),
        other_true,
    )


def _rows(names: Sequence[str], wanted: Sequence[str]) -> Ints:
    places = {name: row for row, name in enumerate(names)}
    return np.array([places[name] for name in wanted])


def _matrix(path: Path, clip_ids: Sequence[str], class_ids: Sequence[str]) -> NDArray[np.bool_]:
    truth = pl.read_csv(path, schema_overrides={"clip_id": pl.String, "class_id": pl.String})
    found = np.zeros((len(clip_ids), len(class_ids)), bool)
    found[
        _rows(clip_ids, truth["clip_id"].to_list()), _rows(class_ids, truth["class_id"].to_list())
    ] = True
    return found


def asked(one: MixtureSet, order: str, n: int, worth: float | None = None) -> Answers:
    """Return the first answers of a queue; ``worth`` is a power in place of its own."""
    if order == "logit":
        open_logits = np.where(one.labels.states() == IMPLICIT, one.logits, -np.inf)
        best = np.argsort(-open_logits, axis=None, kind="stable")[:n]
        rows, columns = np.unravel_index(best, one.logits.shape)
        return _answers(one, rows, columns)
    if order == "measure":
        params = ReviewParams(aim="measure", blocks_per_class=8)
        queue = make_queue(one.labels, one.logits, one.workspace.ontology, params)
        items = queue.items.filter(~pl.col("kind").is_in(CONTROLS)).head(n)
        rows = _rows(one.labels.clip_ids.to_list(), items["clip_id"].to_list())
        columns = _rows(one.labels.class_ids, items["class_id"].to_list())
        return _answers(one, rows, columns)
    return _learnt(one, order, n, worth)


def _learnt(one: MixtureSet, order: str, n: int, worth: float | None) -> Answers:
    """Return the first answers of a queue that learns, block by block."""
    params = ReviewParams(aim="train" if order == "train" else "find")
    own = find_population(one.labels, one.logits, one.workspace.ontology, params).candidates
    if worth is not None:
        own.worth[:] = (one.labels.n_positives + 1.0) ** -worth
    sitting = Sitting(own, one.is_true[own.rows, own.columns].astype(float))
    while len(sitting.places) < n:
        sitting.hear_block()
        sitting.learn()
    places = np.array(sitting.places[:n])
    return _answers(one, own.rows[places], own.columns[places])


def _answers(one: MixtureSet, rows: Any, columns: Any) -> Answers:
    return Answers(rows, columns, one.is_true[rows, columns].astype(float))


def told(one: MixtureSet, answers: Answers | None, *, hedged: bool) -> Matrix:
    """Return the targets [clip, class] of a student."""
    states = one.labels.states()
    target = (states > 0).astype(float)
    if hedged:
        p_missing = find_p_missing(one.labels, one.logits, one.workspace.ontology, answers)
        log_odds = p_missing.log_odds(slice(0, len(one.logits)), one.logits)
        half = np.nan_to_num(expit(log_odds)) / 2
        target = np.where(states == IMPLICIT, half, target)
    if answers is not None:
        target[answers.rows, answers.columns] = answers.present
    return target


def marks(one: MixtureSet, targets: Sequence[Matrix]) -> list[dict[str, float]]:
    """Train a student on each of some targets, and measure it on the other fold."""
    network = pipeline.asked_recipe().students[0]
    assert network.train.epochs is not None
    probe = build_probe(network.model, one.embeddings.n_bands, one.labels.n_classes)
    learnt = probe_features(probe, ClipExamples(one.embeddings, one.store_rows))
    scaled = ScaledFeatures.of(learnt, power=0.5)
    others = probe_features(probe, ClipExamples(one.other, np.arange(len(one.other_true))))
    rows = []
    for target in targets:
        fitted = fit_probe(
            scaled, target, ridge=network.train.ridge, n_iterations=network.train.epochs
        )
        rows.append(_measured(one, fitted.logits(others), (target > 0.5).sum(axis=0)))
    return rows


def _measured(one: MixtureSet, logits: NDArray[np.float32], n_positives: Ints) -> dict[str, float]:
    is_tune = np.arange(len(logits)) % 3 == 0
    priors = smoothed_priors(n_positives, len(one.labels.clip_ids))
    tau = fit_prior_offset(one.other_given[is_tune], logits[is_tune], priors)
    truth, own = np.where(one.other_true[~is_tune], 1, -1), logits[~is_tune]
    auc = auc_per_class(truth, own, negatives="all")
    counts = (truth > 0).sum(axis=0), (truth < 0).sum(axis=0)
    return {
        "lwlrap_calibrated": lwlrap(truth, apply_offset(own, priors, tau)),
        "map": float(np.nanmean(average_precision_per_class(truth, own, negatives="all"))),
        "d_prime": float(np.nanmean(d_prime(auc, *counts))),
        "lwlrap": lwlrap(truth, own),
    }


def measure_set(
    one: MixtureSet, orders: Sequence[tuple[str, float | None]], path: Path
) -> list[dict[str, Any]]:
    """Return a row for each student of a set; those of before are found again."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    known = {(row["order"], row["worth"], row["answers"], row["hedged"]) for row in rows}
    wanted = [("as given", None, 0), *((*order, n) for order in orders for n in N_ANSWERS)]
    asking = [one_kind for one_kind in wanted if (*one_kind, True) not in known]
    kinds, targets = [], []
    for order, worth, n in asking:
        answers = asked(one, order, n, worth) if n else None
        n_found = int(answers.present.sum()) if answers else 0
        for hedged in (False, True):
            kind = {"order": order, "worth": worth, "answers": n, "hedged": hedged}
            kinds.append({**kind, "found": n_found})
            targets.append(told(one, answers, hedged=hedged))
    found = marks(one, targets) if targets else []
    rows += [{**kind, **mark} for kind, mark in zip(kinds, found, strict=True)]
    write_json(path, rows)
    return rows


def summarised(sets: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return mean gains over sets with 90 % intervals (Student's t), a row for each kind."""
    kinds = [(r["order"], r["worth"], r["answers"], r["hedged"]) for r in sets[0]]
    summary = []
    for order, worth, n, hedged in kinds:
        own = [_row(rows, order, worth, n, hedged=hedged) for rows in sets]
        bases = [_row(rows, "as given", None, 0, hedged=False) for rows in sets]
        row: dict[str, Any] = {"order": order, "worth": worth, "answers": n, "hedged": hedged}
        row["found"] = float(np.mean([one["found"] for one in own]))
        for metric in METRICS:
            gains = np.array([a[metric] - b[metric] for a, b in zip(own, bases, strict=True)])
            reach = _reach(gains)
            row[metric] = float(np.mean([one[metric] for one in own]))
            row[f"{metric}_gain"] = [float(gains.mean() + side * reach) for side in (-1, 0, 1)]
        summary.append(row)
    return summary


def _row(
    rows: list[dict[str, Any]], order: str, worth: float | None, n: int, *, hedged: bool
) -> dict[str, Any]:
    kind = {"order": order, "worth": worth, "answers": n, "hedged": hedged}
    return next(row for row in rows if all(row[name] == value for name, value in kind.items()))


def _reach(gains: Matrix) -> float:
    if len(gains) < 2:
        return float("nan")
    return float(stats.t.ppf(0.95, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5)


def ratios(sets: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the gains of ``train`` over those of the better of measure and logit.

    Sets are drawn anew 2,000 times for the 90 % interval; the better is that of all sets.
    """
    rng = np.random.default_rng(0)
    draws = np.vstack([np.arange(len(sets)), rng.integers(len(sets), size=(2_000, len(sets)))])
    found = []
    for n in N_ANSWERS:
        for metric in METRICS:
            gains = {
                order: np.array(
                    [
                        _row(rows, order, None, n, hedged=False)[metric]
                        - _row(rows, "as given", None, 0, hedged=False)[metric]
                        for rows in sets
                    ]
                )
                for order in ORDERS
            }
            better = max(("measure", "logit"), key=lambda order: gains[order].mean())
            drawn = gains["train"][draws].mean(axis=1) / gains[better][draws].mean(axis=1)
            low, high = np.quantile(drawn[1:], (0.05, 0.95))
            row = {"answers": n, "metric": metric, "better": better}
            found.append({**row, "times": [float(low), float(drawn[0]), float(high)]})
    return found


def show(summary: Sequence[dict[str, Any]]) -> None:
    """Print gains."""
    for row in summary:
        name = f"{row['order']}{'' if row['worth'] is None else row['worth']}"
        cells = ", ".join(
            f"{metric} {row[metric]:.4f} ({row[f'{metric}_gain'][1]:+.4f} "
            f"+- {row[f'{metric}_gain'][2] - row[f'{metric}_gain'][1]:.4f})"
            for metric in METRICS
        )
        hedged = "hedged" if row["hedged"] else "answers"
        print(f"{name:12s} {row['answers']:5d} {hedged} found {row['found']:6.0f}: {cells}")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--esc50", type=Path, help="ESC-50's folder: esc50.csv and audio/")
    parser.add_argument("--yamnet", type=Path, help="weights, unless they are kept already")
    default = Path(tempfile.gettempdir(), "earmark-students-of-mixtures")
    parser.add_argument("--folder", type=Path, default=default)
    parser.add_argument("--sets", type=int, nargs="+", default=[0, 1, 4, 5])
    parser.add_argument("--worth", type=float, nargs="*", default=[], help="powers to try")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.esc50 is None or not args.esc50.is_dir():
        print("no recordings: give --esc50 FOLDER (nothing was measured)")
        return
    if args.yamnet is not None:
        add_teacher(args.yamnet)
    if not kept_teachers():
        print("no weights of YAMNet; give --yamnet FILE (nothing was measured)")
        return
    orders = [*((order, None) for order in ORDERS), *(("train", power) for power in args.worth)]
    sets = []
    for number in args.sets:
        one = open_set(args.esc50, args.folder, number)
        sets.append(measure_set(one, orders, args.folder / f"set{number}" / "students.json"))
    summary, times = summarised(sets), ratios(sets)
    show(summary)
    for row in times:
        print(json.dumps(row))
    results = {"sets": args.sets, "students": summary, "train_against_better": times}
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
