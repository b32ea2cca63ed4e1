"""The student as the next teacher: several rounds of flagging and training.

In every round students are trained on what the last teacher flagged, first in folds, so that their
scores of the train split are out of fold, and these scores flag the labels of the next round. The
folds are always the same ones, but a clip's flag was decided by networks that had seen the other
folds, so a little of a clip's own label may come back to it after the first round.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from earmark.datasets import Workspace, open_frames, stamp_path, stamped
from earmark.experiments.compare import identify
from earmark.experiments.marks import METRICS, find_bases, mark_students, write_student_cards
from earmark.experiments.strategies import one_point
from earmark.experiments.students import Student, combine
from earmark.experiments.sweep import by_seed, measured
from earmark.experiments.train_sets import TrainSet, train_students
from earmark.runs import (
    HERE,
    SILENT,
    CompareParams,
    CrossFitParams,
    Engine,
    NetworkParams,
    Progress,
    write_sealed,
)
from earmark.scores import ScoreFolder
from earmark.training import cross_fit


def run_rounds(
    workspace: Workspace,
    network: NetworkParams,
    params: CompareParams,
    strategy: str,
    scores: ScoreFolder,
    folds: CrossFitParams,
    n_rounds: int,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> pl.DataFrame:
    """Let students become teachers for some rounds; write and return the curve per round.

    ``strategy`` names one operating point, such as ``mask@1``; ``scores`` are the first teacher's
    of the train split. Columns: those of :func:`earmark.experiments.compare.identify`, round (0:
    the first teacher's flags), and those of :func:`earmark.experiments.sweep.measured`;
    differences are from the baseline.
    """
    chosen, point = one_point(strategy, params.discard_percents)
    against = find_bases(workspace, params, scores, folds, engine=engine, progress=progress)
    runs = combine([network], params.train_sets, params.seeds, [(chosen, point)])
    wanted: list[Student] = []
    for number in range(n_rounds + 1):
        if number:
            teacher = replace(runs[0], round=number - 1)
            scores = _next_teacher(workspace, teacher, scores, folds, engine, progress)
        own = [replace(run, round=number) for run in runs]
        known = [*(run.baseline for run in own), *own]
        train_students(
            workspace,
            known,
            params.train_sets,
            scores,
            stack_gb=params.stack_gb,
            engine=engine,
            progress=progress,
        )
        wanted += own
    book = mark_students(workspace, wanted, against, engine=engine, progress=progress)
    write_student_cards(workspace, book)
    curve = pl.DataFrame(
        [
            {**identify(own, basis, metric), "round": own[0].round}
            | measured(book.values(basis, own, metric), book.gains(basis, own, metric))
            for own in by_seed(wanted)
            for basis in against
            for metric in METRICS
        ]
    )
    path = workspace.compare_table_path("rounds")
    write_sealed(stamp_path(path), {path.name: curve}, stamped(workspace))
    return curve


def _next_teacher(
    workspace: Workspace,
    student: Student,
    scores: ScoreFolder,
    folds: CrossFitParams,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> ScoreFolder:
    """Score the whole train split with a student, out of fold, told what ``scores`` flag."""
    store = open_frames(workspace, student.network.model)
    data = TrainSet.open(workspace, store, 1.0, student.strategy.labels, scores)
    treated = data.treated.of([data.tell([student.trained])[student.trained]])
    name = f"{student.name}-teacher"
    network = student.seeded_network.model_copy(update={"name": name.replace("+", "-")})
    return cross_fit(
        workspace, network, folds, supervise=treated.select, engine=engine, progress=progress
    )
