"""Sweeps: students at all operating points, evaluated side by side.

Two controls come along: students that ignore as many labels at random, and lwlrap after the best
offsets (fitted on ``tune``) for every student, the baseline included. Results are long tables, one
row per student, basis and metric, with paired bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from earmark.compute import HERE, SILENT, Engine, Progress
from earmark.config import CompareParams, CrossFitParams, NetworkParams, SweepParams
from earmark.datasets import TRUTH, Workspace, read_labels, stamped
from earmark.errors import EarmarkError, quoted, short_repr
from earmark.experiments.claims import hold_claims
from earmark.experiments.evaluation import (
    METRICS,
    Basis,
    Evaluations,
    evaluate_students,
    find_bases,
    write_student_cards,
)
from earmark.experiments.stacks import train_students
from earmark.experiments.strategies import Student, students_of_sweep
from earmark.metrics import Draws, p_value
from earmark.scores import ScoreFolder
from earmark.storage import read_sealed, seal_path, write_sealed

Row = dict[str, str | int | float | None]
"""One row of a result table, by column."""


@dataclass(frozen=True)
class SweepResults:
    """The tables of a sweep.

    ``results`` has one row per student, split, labels and metric, with intervals over clips;
    ``summary`` the same over all seeds, with intervals over clips and seeds, the p-value ``p`` of
    the difference, and ``n_seeds``;
    ``per_class`` one row per student, split, labels and class;
    ``claims`` what the paper found, held against this (:mod:`earmark.experiments.claims`).
    """

    results: pl.DataFrame
    per_class: pl.DataFrame
    summary: pl.DataFrame
    claims: pl.DataFrame

    __repr__ = short_repr


def run_sweep(
    workspace: Workspace,
    networks: Sequence[NetworkParams],
    params: SweepParams,
    scores: ScoreFolder,
    cross_fit: CrossFitParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> SweepResults:
    """Train and score every student, evaluate them, and write the result tables.

    For ``scores`` and ``cross_fit`` see :func:`train_and_evaluate`.
    """
    _check_labels(workspace, params.labels)
    wanted = students_of_sweep(networks, params)
    evaluations = train_and_evaluate(
        workspace, wanted, params, scores, cross_fit, engine=engine, progress=progress
    )
    results = tabulate(evaluations, wanted)
    tables = {f"{name}.parquet": table for name, table in vars(results).items()}
    write_sealed(seal_path(workspace.sweep_folder), tables, stamped(workspace))
    return results


def train_and_evaluate(
    workspace: Workspace,
    wanted: Sequence[Student],
    params: SweepParams | CompareParams,
    scores: ScoreFolder,
    cross_fit: CrossFitParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> Evaluations:
    """Train the students that are not there yet, and measure them all by every kind of labels.

    ``scores`` are the teacher's of the train split, made with ``cross_fit``. What students are
    held against, see :func:`earmark.experiments.evaluation.find_bases`.
    """
    against = find_bases(workspace, params, scores, cross_fit, engine=engine, progress=progress)
    train_students(
        workspace,
        wanted,
        params.train_sets,
        scores,
        engine=engine,
        progress=progress,
    )
    evaluations = evaluate_students(workspace, wanted, against, engine=engine, progress=progress)
    write_student_cards(workspace, evaluations)
    return evaluations


_TABLES = ("results", "per_class", "summary", "claims")


def read_sweep(workspace: Workspace) -> SweepResults:
    """Read the result tables of a finished sweep."""
    seal = seal_path(workspace.sweep_folder)
    paths = [workspace.sweep_table_path(name) for name in _TABLES]
    return SweepResults(*(read_sealed(seal, path.name) for path in paths))


def tabulate(evaluations: Evaluations, wanted: Sequence[Student]) -> SweepResults:
    """Turn results into the tables of a sweep."""
    cells = [(basis, metric) for basis in evaluations.bases for metric in METRICS]
    results = [
        {**student.keys, **_basis_keys(basis), "metric": metric}
        | measured(
            evaluations.value(basis, student, metric), evaluations.gain(basis, student, metric)
        )
        for student in wanted
        for basis, metric in cells
    ]
    summary = [
        {**_seedless(runs[0].keys), "n_seeds": len(runs), **_basis_keys(basis), "metric": metric}
        | measured(evaluations.values(basis, runs, metric), evaluations.gains(basis, runs, metric))
        | {"p": p_value(evaluations.gains(basis, runs, metric))}
        for runs in by_seed(wanted)
        for basis, metric in cells
    ]
    per_class = [
        _per_class(evaluations, basis, one) for one in wanted for basis in evaluations.bases
    ]
    claims = hold_claims(evaluations, wanted)
    return SweepResults(pl.DataFrame(results), pl.concat(per_class), pl.DataFrame(summary), claims)


def by_seed(wanted: Sequence[Student]) -> list[list[Student]]:
    """Group students that differ by their seed alone, in the order of their first."""
    groups: dict[tuple[object, ...], list[Student]] = {}
    for student in wanted:
        alike = (student.network, student.train_set, student.strategy, student.point)
        groups.setdefault(alike, []).append(student)
    return list(groups.values())


def measured(value: Draws, difference: Draws) -> Row:
    """Return the columns of a number and its difference from the baseline, with 90 % intervals."""
    low, high = value.interval()[1:]
    difference_low, difference_high = difference.interval()[1:]
    return {
        "value": value.value,
        "low": low,
        "high": high,
        "difference": difference.value,
        "difference_low": difference_low,
        "difference_high": difference_high,
    }


def _check_labels(workspace: Workspace, name: str) -> None:
    """Refuse labels that are not there before hours of training, and those that nobody has."""
    if name == TRUTH:
        raise EarmarkError(
            "a sweep trains on the labels as given, and on corrected ones; to train on the truth, "
            f"`earmark compare {quoted(workspace.root)} --strategy {TRUTH}`"
        )
    read_labels(workspace, name)


def _basis_keys(basis: Basis) -> Row:
    return {"split": basis.split, "labels": basis.labels}


def _seedless(keys: Mapping[str, str | int | float]) -> Row:
    return {name: value for name, value in keys.items() if name != "seed"}


def _per_class(evaluations: Evaluations, basis: Basis, student: Student) -> pl.DataFrame:
    keys = {**student.keys, **_basis_keys(basis)}
    return evaluations.results[basis, student].per_class.select(
        *(pl.lit(value).alias(name) for name, value in keys.items()),
        "class_id",
        "n_positives",
        "n_negatives",
        "d_prime_explicit",
        "d_prime_all",
        "lwlrap",
        "ap",
    )
