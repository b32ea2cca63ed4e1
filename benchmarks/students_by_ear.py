"""What to do with flags: students held against what people heard in AudioSet's eval clips.

Students of the recipe ``audioset-probe`` train on the balanced train set and are measured on the
eval clips that were labelled exhaustively (AudioSet's strong labels): by human truth and by the
labels as given, in the classes that were asked about. The judged clips are cut in two by their
names. On part A every strategy's point is chosen, with few seeds, as the one whose weaker gain of
d' and AP, in standard errors, is the largest; and so is, with all seeds, the one strategy to
recommend. Part B is reported, with all seeds. Differences from the baseline have paired intervals
over clips and seeds, for all classes and for thirds of them by how often people heard them in part
A; train labels are nearly balanced.

    python benchmarks/students_by_ear.py --work W --truth FOLDER \
        [--chances none=FILE --chances 1000=FILE] [--choosing-seeds 0] [--seeds 0,1,2,3,4]

W holds AudioSet's features and the teacher's scores (``earmark score W --recipe audioset-probe``).
FOLDER has ``human_truth_clips.csv`` (YTID), ``human_truth_classes.csv`` (mid) and
``human_truth_labels.csv`` (YTID, mid). A file of chances [clip, class] has log-odds of the train
split's labels; strategies that go by them are tried with each, or with that of a name alone
(``--strategy 1000:chance/soft@0.3``). What students say of the judged clips is kept in W/by_ear, so
an interrupted run goes on. Prints tables, and writes ``results/students_by_ear.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import LocalEngine
from earmark.config import NetworkParams
from earmark.datasets import Workspace
from earmark.experiments import (
    BASELINE,
    Student,
    combine,
    parse_strategy,
    student_scores,
    train_students,
)
from earmark.metrics import (
    Draws,
    apply_offset,
    d_prime,
    fit_prior_offset,
    holm,
    mean_over_classes,
    p_value,
    resample_weights,
    resampled_auc_and_ap,
    resampled_lwlrap_per_class,
    smoothed_priors,
    with_seeds,
)
from earmark.pipeline import Scored, open_scored
from earmark.storage import file_sha256, write_aside
from machine import RESULTS, write_results

STRATEGIES = (
    "mask@2",
    "soft@6,20",
    "hedge@6,20",
    "distil",
    "chance/mask@0.3,0.1",
    "chance/soft@0.3,0.1,0.03,0",
    "chance/hedge@0.1,0.03,0",
    "chance/percentile/hedge@6",
    "ancestors/flip",
    "ancestors/soft",
    "filled+hedge@6",
    "weak-negatives@0.1,0.01",
)
"""Strategies with the points to choose from. Recordings of AudioSet have one clip, so that
``consistency`` is the baseline there."""

METRICS = ("d_prime", "map", "lwlrap", "lwlrap_calibrated")
GROUPS = ("all", "large", "medium", "small")
WHOLE = {"train": 1.0}
N_RESAMPLES = 500
ALPHA = 0.05

Matrix = NDArray[np.float32]
Cell = tuple[str, str, str]  # labels, group of classes, metric


@dataclass(frozen=True)
class Judged:
    """The clips that people listened to, and what is known of them [clip, class]."""

    clip_ids: pl.Series
    class_ids: tuple[str, ...]
    labels: Mapping[str, NDArray[np.bool_]]
    """Positives by whom they are known from: ``truth``, ``given``."""
    is_chosen_on: NDArray[np.bool_]
    """Part A [clip]."""
    n_train: NDArray[np.int64]
    """Train labels [class]."""
    n_train_clips: int

    @classmethod
    def read(cls, workspace: Workspace, folder: Path) -> Judged:
        """Read the truth, for those of its clips that are in the eval split."""
        names = pl.read_csv(folder / "human_truth_clips.csv")["YTID"]
        known = pl.read_csv(folder / "human_truth_classes.csv")["mid"].to_list()
        heard = pl.read_csv(folder / "human_truth_labels.csv")
        clips = workspace.clips.with_row_index("row").filter(
            pl.col("source").is_in(names.implode()), split="eval"
        )
        class_ids = tuple(one for one in workspace.ontology.class_ids if one in known)
        columns = [workspace.ontology.index[one] for one in class_ids]
        place_of = {name: place for place, name in enumerate(clips["source"])}
        column_of = {name: column for column, name in enumerate(class_ids)}
        truth = np.zeros((len(clips), len(class_ids)), bool)
        for name, class_id in heard.select("YTID", "mid").iter_rows():
            if name in place_of and class_id in column_of:
                truth[place_of[name], column_of[class_id]] = True
        given = workspace.labels.states(clips["row"].to_numpy())[:, columns] > 0
        train = workspace.labels.select(workspace.rows("train"))
        return cls(
            clips["clip_id"],
            class_ids,
            {"truth": truth, "given": given},
            np.array([is_in_part_a(name) for name in clips["source"]]),
            train.n_positives[columns],
            train.n_clips,
        )

    @cached_property
    def priors(self) -> NDArray[np.float64]:
        """Shares of the train clips with each class."""
        return smoothed_priors(self.n_train, self.n_train_clips)

    @cached_property
    def groups(self) -> dict[str, NDArray[np.int64]]:
        """The classes of each group: thirds by how often they were heard in part A, most first."""
        n_heard = self.labels["truth"][self.is_chosen_on].sum(axis=0)
        order = np.argsort(-n_heard, kind="stable")
        thirds = np.array_split(order, 3)
        return {"all": order, **dict(zip(GROUPS[1:], thirds, strict=True))}


def is_in_part_a(name: str) -> bool:
    """Tell by a clip's name whether points are chosen on it."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


@dataclass(frozen=True)
class Measure:
    """Measures what students say of one part of the judged clips."""

    judged: Judged
    on_a: bool

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The clips of the part."""
        return np.flatnonzero(self.judged.is_chosen_on == self.on_a)

    @cached_property
    def weights(self) -> NDArray[np.uint8]:
        """How often each resample draws each clip."""
        return resample_weights(len(self.rows), N_RESAMPLES, seed=0)

    def draws(self, logits: Matrix) -> dict[Cell, Draws]:
        """Return every number of one student, as measured and on resamples."""
        found = {}
        for labels, positives in self.judged.labels.items():
            own = dict(self._per_class(positives, logits))
            for group, columns in self.judged.groups.items():
                for metric, (values, resampled) in own.items():
                    found[labels, group, metric] = Draws(
                        float(mean_over_classes(values[columns])),
                        mean_over_classes(resampled[:, columns]),
                    )
        return found

    def _per_class(
        self, positives: NDArray[np.bool_], logits: Matrix
    ) -> Iterator[tuple[str, tuple[NDArray[np.float64], NDArray[np.float64]]]]:
        """Yield metrics per class [class] and on resamples [resample, class].

        Offsets are fitted on part A, by the same labels.
        """
        chosen_on, states, own = self.judged.is_chosen_on, positives[self.rows], logits[self.rows]
        once = np.ones((1, len(own)), np.uint16)
        tau = fit_prior_offset(positives[chosen_on], logits[chosen_on], self.judged.priors)
        lifted = apply_offset(own, self.judged.priors, tau)
        plain, many = (resampled_auc_and_ap(states, own, w, "all") for w in (once, self.weights))
        d_primes = [d_prime(one.auc, one.n_positives, one.n_negatives) for one in (plain, many)]
        yield "d_prime", (d_primes[0][0], d_primes[1])
        yield "map", (plain.average_precision[0], many.average_precision)
        for name, scores in (("lwlrap", own), ("lwlrap_calibrated", lifted)):
            first, rest = (
                resampled_lwlrap_per_class(states, scores, w) for w in (once, self.weights)
            )
            yield name, (first[0], rest)


@dataclass(frozen=True)
class Bench:
    """Trains students, and keeps what they say of the judged clips."""

    scored: Scored
    judged: Judged
    chances: Mapping[str, Path]
    n_workers: int

    @property
    def network(self) -> NetworkParams:
        """The student's network."""
        return self.scored.recipe.students[0]

    def said(self, named: Sequence[tuple[str, Student]]) -> dict[tuple[str, Student], Matrix]:
        """Return what students, each with the name of its chances, say of the judged clips."""
        for chances in dict.fromkeys(name for name, _ in named):
            own = [one for name, one in named if name == chances]
            missing = [one for one in own if not self._path(chances, one).exists()]
            if missing:
                self._train(chances, missing)
        return {(name, one): np.load(self._path(name, one)) for name, one in named}

    def _train(self, chances: str, students: Sequence[Student]) -> None:
        workspace = self.scored.workspace
        if chances:
            workspace.chances_path.parent.mkdir(exist_ok=True)
            shutil.copyfile(self.chances[chances], workspace.chances_path)
        engine = LocalEngine(self.n_workers)
        train_students(workspace, students, WHOLE, self.scored.scores, engine=engine)
        for one in students:
            scores = student_scores(workspace, one)
            rows = pl.DataFrame({"clip_id": self.judged.clip_ids}).join(
                pl.DataFrame({"clip_id": scores.clip_ids}).with_row_index("row"),
                on="clip_id",
                maintain_order="left",
            )["row"]
            columns = [scores.class_ids.index(name) for name in self.judged.class_ids]
            path = self._path(chances, one)
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_aside(path) as aside, aside.open("wb") as file:
                np.save(file, scores.logits[rows.to_numpy()][:, columns])
        for one in students:  # all of them are 70 MB each
            shutil.rmtree(workspace.student_scores_folder(one.name))

    def _path(self, chances: str, student: Student) -> Path:
        which = file_sha256(self.chances[chances])[:12] if chances else "teacher"
        return self.scored.workspace.root / "by_ear" / which / f"{student.name}.npy"


@dataclass(frozen=True)
class Line:
    """A strategy at one point, with chances of a name where it goes by chances."""

    strategy: str
    point: float
    chances: str = ""

    @property
    def name(self) -> str:
        """The strategy, its chances and its point."""
        which = f" ({self.chances})" if self.chances else ""
        return f"{self.strategy}@{self.point:g}{which}"

    def students(self, network: NetworkParams, seeds: Sequence[int]) -> list[Student]:
        """Return one student for each seed."""
        strategy = parse_strategy(self.strategy, ())
        return combine([network], WHOLE, seeds, [(strategy, self.point)])


def lines_of(strategies: Sequence[str], chances: Sequence[str]) -> list[list[Line]]:
    """Return the lines of each strategy, one for each point, for all chances where it has any."""
    found = []
    for text in strategies:
        wanted, _, rest = text.rpartition(":")
        strategy = parse_strategy(rest, ())
        names = [wanted] if wanted else chances if strategy.by_chance else [""]
        found += [[Line(strategy.name, point, name) for point in strategy.points] for name in names]
    return found


def gains_of(
    bench: Bench, measure: Measure, lines: Sequence[Line], seeds: Sequence[int]
) -> tuple[dict[Cell, Draws], dict[Line, dict[Cell, Draws]]]:
    """Return the baseline's numbers and every line's differences from it, over all seeds."""
    baselines = combine([bench.network], WHOLE, seeds, [(BASELINE, 0.0)])
    runs = {line: line.students(bench.network, seeds) for line in lines}
    named = [("", one) for one in baselines]
    named += [(line.chances, one) for line, own in runs.items() for one in own]
    said = bench.said(named)
    base = [measure.draws(said["", one]) for one in baselines]
    gains = {}
    for line, own in runs.items():
        draws = [measure.draws(said[line.chances, one]) for one in own]
        gains[line] = {
            cell: with_seeds(
                [mine[cell] - its[cell] for mine, its in zip(draws, base, strict=True)]
            )
            for cell in base[0]
        }
    return {cell: with_seeds([one[cell] for one in base]) for cell in base[0]}, gains


def best_point(lines: Sequence[Line], gains: Mapping[Line, Mapping[Cell, Draws]]) -> Line:
    """Return the line whose weaker gain of d' and AP by human truth, in errors, is the largest."""

    def weaker(line: Line) -> float:
        own = [gains[line]["truth", "all", metric] for metric in ("d_prime", "map")]
        return min(gain.value / max(gain.error, 1e-12) for gain in own)

    return max(lines, key=weaker)


def table_of(
    base: Mapping[Cell, Draws], gains: Mapping[Line, Mapping[Cell, Draws]]
) -> list[dict[str, Any]]:
    """Return a row for every line, labels, group and metric, with p-values after Holm."""
    rows = []
    for cell in base:
        labels, group, metric = cell
        ps = [p_value(own[cell]) for own in gains.values()]
        for line, p, corrected in zip(gains, ps, holm(ps), strict=True):
            gain = gains[line][cell].interval()
            rows.append(
                {
                    "strategy": line.strategy,
                    "chances": line.chances,
                    "point": line.point,
                    "labels": labels,
                    "classes": group,
                    "metric": metric,
                    "baseline": round(base[cell].value, 5),
                    "gain": round(gain.value, 5),
                    "low": round(gain.low, 5),
                    "high": round(gain.high, 5),
                    "p": round(p, 4),
                    "p_holm": round(corrected, 4),
                }
            )
    return rows


def verdicts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Say of every line whether it is better than the baseline by human truth.

    ``is_better``: d' and AP gain with p below 0.05, ``is_better_holm`` also after Holm's correction
    for the number of strategies, which the one that was chosen on part A does not need.
    ``worse``: the groups of classes in which either falls with its whole interval below 0.
    """
    table = pl.DataFrame(rows).filter(pl.col("metric").is_in(["d_prime", "map"]), labels="truth")
    found = []
    for (strategy, chances, point), own in table.group_by(
        "strategy", "chances", "point", maintain_order=True
    ):
        whole, parts = own.filter(classes="all"), own.filter(pl.col("classes") != "all")
        gaining = whole.filter(pl.col("gain") > 0)
        worse = parts.filter(pl.col("high") < 0)
        named = [f"{row['classes']} {row['metric']}" for row in worse.to_dicts()]
        found.append(
            {
                "strategy": strategy,
                "chances": chances,
                "point": point,
                "is_better": len(gaining.filter(pl.col("p") < ALPHA)) == 2,
                "is_better_holm": len(gaining.filter(pl.col("p_holm") < ALPHA)) == 2,
                "worse": named,
            }
        )
    return found


def shown(rows: Sequence[Mapping[str, Any]], labels: str, groups: Sequence[str]) -> str:
    """Return gains with intervals as a Markdown table, a row for each line."""
    table = pl.DataFrame(rows).filter(pl.col("classes").is_in(groups), labels=labels)
    texts = [
        f"{row['gain']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]" for row in table.to_dicts()
    ]
    name = pl.format("{}@{} {}", "strategy", "point", "chances")
    column = pl.col("metric") if len(groups) == 1 else pl.format("{} {}", "metric", "classes")
    wide = table.with_columns(strategy=name, column=column, text=pl.Series(texts))
    return markdown(wide.pivot("column", index="strategy", values="text"))


def markdown(table: pl.DataFrame) -> str:
    """Return a table as Markdown, whole."""
    with pl.Config(
        tbl_formatting="ASCII_MARKDOWN", tbl_hide_column_data_types=True, tbl_rows=-1, tbl_cols=-1,
        tbl_hide_dataframe_shape=True, tbl_width_chars=-1, fmt_str_lengths=100,
    ):  # fmt: skip
        return str(table)


def main() -> None:
    """Choose on part A, report on part B."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--chances", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--strategy", action="append", dest="strategies")
    parser.add_argument("--choosing-seeds", default="0")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--choose-only", action="store_true", help="do not look at part B")
    options = parser.parse_args()
    if options.work is None or options.truth is None:
        print("skipped: give --work and --truth (see the head of this file)")
        return
    scored = open_scored(options.work)
    chances = {
        name: Path(file) for name, _, file in (one.partition("=") for one in options.chances)
    }
    judged = Judged.read(scored.workspace, options.truth)
    bench = Bench(scored, judged, chances, options.workers)
    families = lines_of(options.strategies or STRATEGIES, list(chances))
    choosing, seeds = (
        [int(seed) for seed in listed.split(",")]
        for listed in (options.choosing_seeds, options.seeds)
    )
    every = [line for family in families for line in family]
    base, gains = gains_of(bench, Measure(judged, on_a=True), every, choosing)
    on_a = table_of(base, gains)
    print(f"Part A, {int(judged.is_chosen_on.sum()):,} clips, seeds {choosing}, human truth\n")
    print({metric: round(base["truth", "all", metric].value, 4) for metric in METRICS})
    print(shown(on_a, "truth", ["all"]))
    chosen = [best_point(family, gains) for family in families]
    print("\nchosen:", ", ".join(line.name for line in chosen))
    if options.choose_only:
        return
    _, gains = gains_of(bench, Measure(judged, on_a=True), chosen, seeds)
    recommended = best_point(chosen, gains)
    print(f"the best on part A with seeds {seeds}: {recommended.name}")
    part_b = Measure(judged, on_a=False)
    base, gains = gains_of(bench, part_b, chosen, seeds)
    rows = table_of(base, gains)
    found = verdicts(rows)
    for labels in judged.labels:
        print(f"\nPart B, {len(part_b.rows):,} clips, seeds {seeds}, by {labels}\n")
        print({metric: round(base[labels, "all", metric].value, 4) for metric in METRICS})
        print(shown(rows, labels, ["all"]))
    print("\nby groups of classes, human truth\n")
    only = [row for row in rows if row["metric"] in ("d_prime", "map")]
    print(shown(only, "truth", GROUPS[1:]))
    print("\n", pl.DataFrame([{**one, "worse": ", ".join(one["worse"])} for one in found]))
    results = {
        "n_clips": {"A": int(judged.is_chosen_on.sum()), "B": len(part_b.rows)},
        "n_classes": len(judged.class_ids),
        "choosing_seeds": choosing,
        "seeds": seeds,
        "n_resamples": N_RESAMPLES,
        "chosen_on_a": [row for row in on_a if (row["labels"], row["classes"]) == ("truth", "all")],
        "best_on_a": recommended.name,
        "reported_on_b": rows,
        "verdicts": found,
    }
    write_results(RESULTS / "students_by_ear.json", results)


if __name__ == "__main__":
    main()
