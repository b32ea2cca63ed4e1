"""Strategies compared on one workspace, with the controls and the statistics that they need.

Every strategy is tried at all its operating points, on every train set and with every seed. The
point of each is chosen on ``tune``, as in a sweep (:mod:`earmark.experiments.strategies`), and
may be to do nothing. It is then measured on ``eval``, as a difference from the baseline that takes
labels as they are: with an interval over clips and seeds, another over classes, and a p-value
corrected for the number of strategies. Beside it stands what choosing on ``eval`` itself would have
given, as the paper did.

Oracles know the truth, which nobody has, and the random control knows nothing: they are measured
like any other, but they are no hypotheses, and take no part in choosing and testing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from earmark.compute import HERE, SILENT, Engine, Progress
from earmark.config import CompareParams, CrossFitParams, NetworkParams
from earmark.datasets import Workspace, stamp_path, stamped
from earmark.errors import EarmarkError, short_repr
from earmark.experiments.claims import with_holm
from earmark.experiments.evaluation import METRICS, Basis, Evaluations
from earmark.experiments.strategies import (
    BASELINE,
    Strategy,
    Student,
    choose_point,
    combine,
    parse_strategy,
)
from earmark.experiments.sweep import Row, by_seed, measured, train_and_evaluate
from earmark.metrics import Draws, over_classes, p_value
from earmark.scores import ScoreFolder
from earmark.storage import read_sealed, write_sealed

_PER_CLASS = {
    "d_prime_explicit": "d_prime_explicit",
    "d_prime_all": "d_prime_all",
    "lwlrap": "lwlrap",
    "map": "ap",
}
"""The column of the table per class behind an overall metric."""

Role = Literal["baseline", "tested", "control", "oracle"]
"""What a strategy is in a comparison: only those that are ``tested`` are on offer to a user."""

_GROUP = ["student", "train_set", "labels", "metric"]

_Line = tuple[str, str, str]
"""Network, train set and strategy: what has a point chosen for it."""

_Points = dict[float, Sequence[Student]]
"""The runs of every point, which differ by their seed, from the mildest point on."""


@dataclass(frozen=True)
class Comparison:
    """The tables of a comparison.

    ``points`` has one row per student, train set, strategy, point, split, labels and metric:
    the strategy's ``role``, value and difference from the baseline with 90 % intervals over clips
    and seeds (``low``, ``high``, ``difference_low``, ``difference_high``) and over classes
    (``classes_low``, ``classes_high``; null for the calibrated metrics), and the p-value ``p``.
    ``choices`` has one row per student, train set, strategy, labels and metric on ``eval``, at the
    point chosen on ``tune``: the same columns, ``p_holm`` (null unless tested), and the paper's way
    beside it: ``chosen_on_eval_point``, ``chosen_on_eval``.
    """

    points: pl.DataFrame
    choices: pl.DataFrame

    __repr__ = short_repr


def run_compare(
    workspace: Workspace,
    networks: Sequence[NetworkParams],
    params: CompareParams,
    scores: ScoreFolder,
    cross_fit: CrossFitParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> Comparison:
    """Train every strategy's students, measure them, choose points, and write the tables.

    For ``scores`` and ``cross_fit`` see :func:`earmark.experiments.sweep.train_and_evaluate`.
    """
    strategies = [parse_strategy(text, params.discard_percents) for text in params.strategies]
    _check(workspace, strategies)
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    everyone = combine(networks, params.train_sets, params.seeds, [(BASELINE, 0.0), *points])
    wanted = list(dict.fromkeys(everyone))  # a mask of 0 per cent is the baseline
    evaluations = train_and_evaluate(
        workspace, wanted, params, scores, cross_fit, engine=engine, progress=progress
    )
    comparison = compare(evaluations, wanted, params.choose_by)
    tables = {f"{name}.parquet": table for name, table in vars(comparison).items()}
    write_sealed(stamp_path(workspace.compare_table_path("choices")), tables, stamped(workspace))
    return comparison


def compare(evaluations: Evaluations, wanted: Sequence[Student], choose_by: str) -> Comparison:
    """Tabulate results, and choose every strategy's point by a metric on ``tune``."""
    groups = by_seed(wanted)
    rows = {
        (runs[0], basis, metric): _row(evaluations, basis, runs, metric)
        for runs in groups
        for basis in evaluations.bases
        for metric in METRICS
    }
    lines: dict[_Line, _Points] = {}
    for runs in groups:
        line = (runs[0].network.name, runs[0].train_set, _name(runs[0]))
        lines.setdefault(line, {})[runs[0].point] = runs
    chosen = _choose(evaluations, lines, choose_by)
    choices = [
        _choice_row(rows, basis, metric, points, chosen[line])
        for line, points in lines.items()
        for basis in evaluations.bases
        for metric in METRICS
        if basis.split == "eval"
    ]
    table, chosen_table = (
        pl.DataFrame(list(part), infer_schema_length=None) for part in (rows.values(), choices)
    )
    # Baseline, random control and oracles are no hypotheses: they are not tested.
    tested = pl.col("role") == "tested"
    return Comparison(table, with_holm(chosen_table, _GROUP, tested))


def read_comparison(workspace: Workspace) -> Comparison:
    """Read the tables of a finished comparison."""
    seal = stamp_path(workspace.compare_table_path("choices"))
    paths = [workspace.compare_table_path(name) for name in ("points", "choices")]
    return Comparison(*(read_sealed(seal, path.name) for path in paths))


def _check(workspace: Workspace, strategies: Sequence[Strategy]) -> None:
    names = [strategy.name for strategy in strategies]
    if len(set(names)) < len(names):
        raise EarmarkError(f"a strategy is listed twice: {', '.join(names)}")
    for strategy in strategies:
        if strategy.needs_truth and workspace.truth is None:
            raise EarmarkError(
                f"strategy {strategy.name!r} needs the truth, which {workspace.root} does not "
                "have; make a simulated dataset with `earmark import scenes`, or hide labels with "
                "`earmark import workspace --recall`"
            )


def _row(evaluations: Evaluations, basis: Basis, runs: Sequence[Student], metric: str) -> Row:
    value, gain = evaluations.values(basis, runs, metric), evaluations.gains(basis, runs, metric)
    by_class = _gains_by_class(evaluations, basis, runs, metric)
    return {
        "student": runs[0].network.name,
        "train_set": runs[0].train_set,
        "strategy": _name(runs[0]),
        "role": _role_of(runs[0]),
        "point": runs[0].point,
        "n_seeds": len(runs),
        "seeds": ", ".join(str(run.seed) for run in runs),
        "split": basis.split,
        "labels": basis.labels,
        "metric": metric,
        **measured(value, gain),
        "p": p_value(gain),
        "classes_low": None if by_class is None else by_class.interval().low,
        "classes_high": None if by_class is None else by_class.interval().high,
    }


def _role_of(student: Student) -> Role:
    """Tell what a student's strategy is in a comparison."""
    if student == student.baseline:
        return "baseline"
    if student.strategy.needs_truth:
        return "oracle"
    return "control" if student.strategy.policy == "random" else "tested"


def _name(student: Student) -> str:
    return "baseline" if student == student.baseline else student.strategy.name


def _gains_by_class(
    evaluations: Evaluations, basis: Basis, runs: Sequence[Student], metric: str
) -> Draws | None:
    """Return the mean gain over classes and how it varies with them; None where not known."""
    if metric not in _PER_CLASS:
        return None
    column = _PER_CLASS[metric]
    gains = [
        evaluations.results[basis, run].per_class[column].to_numpy()
        - evaluations.results[basis, run.baseline].per_class[column].to_numpy()
        for run in runs
    ]
    return over_classes(np.mean(gains, axis=0), basis.n_resamples)


def _choose(
    evaluations: Evaluations, lines: Mapping[_Line, _Points], choose_by: str
) -> dict[_Line, float | None]:
    """Return the point of every line; None stands for doing nothing.

    Only what is tested is chosen. An oracle always acts, and most have one point; the random
    control is taken where the mask is, or as near as it has a point.
    """
    basis = next(one for one in evaluations.bases if (one.split, one.labels) == ("tune", "given"))
    chosen: dict[_Line, float | None] = {}
    for line, points in lines.items():
        offered: list[tuple[float | None, Sequence[Student]]] = [*points.items()]
        if _role_of(_first(points)) != "oracle":
            offered.insert(0, (None, [run.baseline for run in next(iter(points.values()))]))
        gains = {point: evaluations.gains(basis, runs, choose_by).value for point, runs in offered}
        chosen[line] = choose_point(gains)
    for line, points in lines.items():
        if _role_of(_first(points)) == "control":
            masked = chosen.get((*line[:2], "mask")) or 0.0
            chosen[line] = min(points, key=lambda point: abs(point - masked))
    return chosen


def _choice_row(
    rows: Mapping[tuple[Student, Basis, str], Row],
    basis: Basis,
    metric: str,
    points: _Points,
    chosen: float | None,
) -> Row:
    """Return what a strategy is worth at its chosen point, and at the best point of ``eval``."""
    first = _first(points)
    at = {point: rows[runs[0], basis, metric] for point, runs in points.items()}
    papers = max(at.values(), key=lambda row: _rank(row["value"]))
    return {
        **(rows[first.baseline, basis, metric] if chosen is None else at[chosen]),
        "strategy": _name(first),
        "role": _role_of(first),
        "point": chosen,
        "chosen_on_eval_point": papers["point"],
        "chosen_on_eval": papers["value"],
    }


def _first(points: _Points) -> Student:
    return next(iter(points.values()))[0]


def _rank(value: float | str | None) -> float:
    return -np.inf if not isinstance(value, float) or np.isnan(value) else value
