"""What judgements buy: students trained on labels that a scripted rater has corrected.

Makes clips of embeddings with known truth and hides labels as nomination does (or takes a hidden
workspace, ``--work``, one that has ``truth.parquet``). A teacher scores the train split out of
fold. A scripted rater answers the first 100, 500 and 2,000 items from the truth, in four orders: a
random sample of every class and band (``--aim measure``, controls included), the likeliest flags
first, and the two queues that learn (``find`` and ``train``, without controls). Students are
trained on the labels as given, ignoring the top-scored ones, on the corrected labels, and on both;
their operating point is chosen on ``tune`` by the labels as given, and they are held against the
truth of ``eval``. Prints a table and writes ``results/review.json``. Some minutes on one core.

    python benchmarks/review.py --simulate-rater [--work HIDDEN] [--seeds 5] [--slip 0.0]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from uuid import uuid5

import numpy as np
import polars as pl

from earmark.audio import write_store
from earmark.datasets import (
    CLIP_SCHEMA,
    Workspace,
    derive_workspace,
    hide,
    n_missing,
    write_dataset,
)
from earmark.experiments import run_sweep
from earmark.flags import flag
from earmark.labels import LabelSet, Ontology
from earmark.review import (
    NAMESPACE,
    Judgement,
    JudgementStore,
    Queue,
    find_population,
    item_id,
    make_queue,
    relabel,
)
from earmark.runs import (
    CrossFitParams,
    HidingParams,
    LocalEngine,
    ModelParams,
    NetworkParams,
    ReviewParams,
    SweepParams,
    TrainParams,
)
from earmark.scores import ScoreFolder, scored_labels
from earmark.training import cross_fit
from hour_of_listening import Sitting

N_JUDGEMENTS = (100, 500, 2_000)
POINTS = (0, 1, 2, 5)
METRICS = ("lwlrap", "lwlrap_calibrated", "map", "d_prime_all")
N_CLASSES, N_BANDS, N_FRAMES = 40, 48, 10
SIZES = {"train": 4_000, "tune": 800, "eval": 1_600}
ENGINE = LocalEngine(1)
FOLDS = CrossFitParams()
NETWORK = NetworkParams(
    name="probe",
    model=ModelParams(architecture="mlp_probe", n_hidden=96, dropout=0.2),
    train=TrainParams(epochs=12, batch_patches=64, learning_rate=2e-3, average_share=0.3),
)


def make_hidden(root: Path, seed: int = 0) -> Workspace:
    """Make clips in which each class adds a direction of its own to some of the frames."""
    rng = np.random.default_rng(seed)
    class_ids = tuple(f"class{i:02}" for i in range(N_CLASSES))
    parents = {class_id: (f"family{i // 4}",) for i, class_id in enumerate(class_ids)}
    ontology = Ontology(class_ids, parents)
    priors = 0.25 * np.arange(1, N_CLASSES + 1) ** -0.7
    present = rng.random((sum(SIZES.values()), N_CLASSES)) < rng.permutation(priors)
    clip_ids = [f"clip{i:05}" for i in range(len(present))]
    families = rng.normal(size=(N_CLASSES // 4, N_BANDS)).repeat(4, axis=0)
    directions = 0.6 * families + 0.8 * rng.normal(size=(N_CLASSES, N_BANDS))
    clips = ((c, _frames(rng, row, directions)) for c, row in zip(clip_ids, present, strict=True))
    write_store(root / "frames", clips)
    truth = LabelSet.from_dense(np.where(present, 1, -1).astype(np.int8), clip_ids, class_ids)
    labels = hide(truth, ontology, HidingParams(recall_range=(0.2, 0.8), seed=seed))
    splits = np.repeat(list(SIZES), list(SIZES.values()))
    columns = {"clip_id": clip_ids, "split": splits, "source": clip_ids}
    table = pl.DataFrame(columns).with_columns(audio=None, start_seconds=None, end_seconds=None)
    return write_dataset(root, table.select(CLIP_SCHEMA.names()), ontology, labels, truth)


def _frames(rng: np.random.Generator, row: np.ndarray, directions: np.ndarray) -> np.ndarray:
    frames = rng.normal(0, 1, (N_FRAMES, N_BANDS))
    for column in np.flatnonzero(row):
        first, last = sorted(rng.integers(0, N_FRAMES, 2))
        frames[first : last + 1] += rng.uniform(0.4, 1.6) * directions[column]
    return frames.astype(np.float16)


def simulate_rater(
    items: pl.DataFrame, truth: LabelSet, slip: float, rng: np.random.Generator
) -> list[Judgement]:
    """Answer items from the truth after hearing the whole clip, a share of them wrongly."""
    present = set(truth.rows().filter("present").select("clip_id", "class_id").rows())
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Judgement(
            id=uuid5(NAMESPACE, f"{item} {number}"),
            at=start + timedelta(seconds=3 * number),
            rater="script",
            item=item,
            clip_id=clip_id,
            class_id=class_id,
            answer="present" if is_present else "not_present",
            heard_seconds=3.0,
            whole_clip=True,
        )
        for number, (item, clip_id, class_id) in enumerate(items.iter_rows())
        for is_present in [((clip_id, class_id) in present) != (rng.random() < slip)]
    ]


def in_order(
    order: str, labels: LabelSet, scores: ScoreFolder, queue: Queue, truth: LabelSet, n: int
) -> pl.DataFrame:
    """Return the first items of a queue, or the likeliest flags: item, clip_id, class_id."""
    if order == "measure":
        return queue.items.head(n).select("item", "clip_id", "class_id")
    if order in ("find", "train"):
        pairs = learnt_order(order, labels, scores, truth, n)
    else:
        best = flag(labels, scores.logits, policy="budget", n_flags=n)
        pairs = best.select("clip_id", "class_id")
    names = pl.Series([item_id(*pair) for pair in pairs.iter_rows()], dtype=pl.String)
    return pairs.select(names.alias("item"), "clip_id", "class_id")


def learnt_order(
    aim: Literal["find", "train"], labels: LabelSet, scores: ScoreFolder, truth: LabelSet, n: int
) -> pl.DataFrame:
    """Return the first labels of a queue that learns, answered from the truth block by block."""
    ontology = Ontology(labels.class_ids)
    found = find_population(labels, scores.logits, ontology, ReviewParams(aim=aim))
    own = found.candidates
    sitting = Sitting(own, (truth.states()[own.rows, own.columns] > 0).astype(float))
    while len(sitting.places) < n:
        sitting.hear_block()
        sitting.learn()
    return found.names[sitting.places[:n]]


def train(workspace: Workspace, scores: ScoreFolder, seeds: Sequence[int]) -> pl.DataFrame:
    """Train students at all points and return their results on tune and eval."""
    params = SweepParams(
        discard_percents=POINTS, random_control_percents=(), seeds=tuple(seeds), n_resamples=100
    )
    return run_sweep(workspace, [NETWORK], params, scores, FOLDS, engine=ENGINE).results


def corrected_workspace(
    hidden: Workspace, out: Path, labels: LabelSet, scores: ScoreFolder
) -> tuple[Workspace, ScoreFolder]:
    """Copy a hidden workspace with other labels; the teacher's scores stay."""
    workspace = derive_workspace(hidden, out, labels, hidden.truth)
    folder = workspace.scores_folder(scores.folder.name)
    shutil.copytree(scores.folder, folder)
    return workspace, ScoreFolder.open(folder)


def summarise(name: str, results: pl.DataFrame) -> list[dict[str, object]]:
    """Return one row per point: means over seeds on eval's truth, and whether tune chose it."""
    on_tune = results.filter(split="tune", labels="given", metric="lwlrap")
    means = on_tune.group_by("discard_percent").agg(pl.col("value").mean())
    chosen = means.filter(pl.col("discard_percent") > 0).sort("value")["discard_percent"][-1]
    rows = []
    for point in POINTS:
        own = results.filter(split="eval", labels="truth", discard_percent=float(point))
        values = {metric: own.filter(metric=metric)["value"] for metric in METRICS}
        row = {metric: float(value.mean() or 0) for metric, value in values.items()}
        row |= {f"{metric}_by_seed": value.to_list() for metric, value in values.items()}
        rows.append({"labels": name, "discard_percent": point, "is_chosen": point == chosen, **row})
    return rows


def review(
    hidden: Workspace, folder: Path, slip: float, seeds: Sequence[int]
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Correct the labels step by step; return the students' results and the reviews' yields."""
    assert hidden.truth is not None
    teacher = NETWORK.model_copy(update={"name": "teacher"})
    scores = cross_fit(hidden, teacher, FOLDS, engine=ENGINE)
    labels = scored_labels(scores, hidden.labels)
    truth = scored_labels(scores, hidden.truth)
    queue = make_queue(labels, scores.logits, hidden.ontology, ReviewParams(blocks_per_class=8))
    rows = summarise("as given", train(hidden, scores, seeds))
    yields = []
    for order in ("measure", "likeliest", "find", "train"):
        for n in N_JUDGEMENTS:
            items = in_order(order, labels, scores, queue, truth, n)
            answers = simulate_rater(items, hidden.truth, slip, np.random.default_rng(n))
            with JudgementStore(folder / f"{order}{n}.sqlite") as store:
                store.add_all(answers)
                judgements = store.current()
            corrected = relabel(hidden.labels, judgements, queue)
            found = corrected.n_by_outcome["present"]
            left = int(n_missing(truth, scored_labels(scores, corrected.labels)).sum())
            yields.append({"order": order, "judgements": len(items), "found": found, "left": left})
            workspace = corrected_workspace(
                hidden, folder / f"{order}{n}", corrected.labels, scores
            )
            rows += summarise(f"{order} {n:,}", train(*workspace, seeds))
    return rows, yields


def shown(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Return one line per label set: nothing ignored, and the point that tune chose."""
    table = pl.DataFrame(rows)
    table = table.filter((pl.col("discard_percent") == 0) | pl.col("is_chosen"))
    baseline = table.row(0, named=True)
    gains = []
    for row in table.iter_rows(named=True):
        pairs = zip(row["lwlrap_by_seed"], baseline["lwlrap_by_seed"], strict=True)
        gain = np.array([value - base for value, base in pairs])
        gains.append({"gain": gain.mean(), "gain_sd": gain.std(ddof=1) if len(gain) > 1 else None})
    columns = table.select("labels", "discard_percent", *METRICS)
    return pl.concat([columns, pl.DataFrame(gains)], how="horizontal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--simulate-rater", action="store_true", help="the default, and all there is"
    )
    parser.add_argument("--work", type=Path, help="a hidden workspace with frames and truth")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slip", type=float, default=0.0, help="share of wrong answers")
    arguments = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        hidden = (
            Workspace.open(arguments.work) if arguments.work else make_hidden(Path(folder, "w"))
        )
        rows, yields = review(hidden, Path(folder), arguments.slip, range(arguments.seeds))
        missing = hidden.truth and int(n_missing(hidden.truth, hidden.labels)[:].sum())
    print(f"{time.perf_counter() - start:.0f} s; {missing:,} labels of all splits are missing")
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, float_precision=4):
        print(pl.DataFrame(yields))
        print(shown(rows))
    path = Path(__file__).parent / "results" / "review.json"
    settings = {"seeds": arguments.seeds, "slip": arguments.slip, "missing": missing}
    path.write_text(json.dumps({**settings, "yields": yields, "students": rows}, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
