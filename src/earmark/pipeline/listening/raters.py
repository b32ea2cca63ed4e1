"""Raters looked at: how good each is, what all make of a label, and what they are at odds about."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import polars as pl
from scipy.special import expit

from earmark.datasets import PAIR, Workspace, stamp_path, write_stamp
from earmark.errors import EarmarkError, EarmarkWarning, quoted, short_repr
from earmark.flags import MissingEstimates, gather_evidence
from earmark.options import Option
from earmark.pipeline.flag import estimate_missing
from earmark.pipeline.listening.queue import DrawnQueue, open_judgements
from earmark.pipeline.listening.review import (
    HeardPrecision,
    gains_so_far,
    measure_precision,
    still_there,
)
from earmark.pipeline.opening import RecipeLike, WorkLike, open_scored, open_workspace
from earmark.review import Gains, WeighedRaters, adjudication_queue, weigh_answers, write_queue
from earmark.scores import scored_labels
from earmark.storage import write_table, writes


@dataclass(frozen=True)
class HeardRaters:
    """How good raters are, the chance of every label that they heard, and the files of both."""

    raters_path: Path
    labels_path: Path
    weighed: WeighedRaters

    __repr__ = short_repr


@dataclass(frozen=True)
class AnswerSummary:
    """What is known from all answers: of the missing labels, of each class, and of the raters.

    ``estimates`` is None where there are no scores to go by; ``unknown`` says why. ``precision`` is
    None where no queue was drawn, ``gains`` where it does not learn.
    """

    raters: HeardRaters
    estimates: MissingEstimates | None = None
    unknown: str = ""
    precision: HeardPrecision | None = None
    gains: Gains | None = None

    __repr__ = short_repr


def summarize_answers(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    discard_percent: Annotated[
        float | None,
        Option("Labels up to this point; the flags that were written.", low=0, high=100),
    ] = None,
    drop_failed_blocks: Annotated[bool, Option("Leave out blocks with a failed control.")] = False,
    with_teacher: Annotated[bool, Option("Let the teacher vote on labels, too.")] = False,
) -> AnswerSummary:
    """Say what is known of the missing labels and flags, and how good each rater is.

    See :func:`measure_precision` and :func:`weigh_raters`.
    """
    workspace = open_workspace(work)
    summary = AnswerSummary(weigh_raters(workspace, recipe, with_teacher=with_teacher))
    try:
        estimates = estimate_missing(open_scored(workspace, recipe))
    except EarmarkError as error:
        summary = replace(summary, unknown=str(error))
    else:
        gains = gains_so_far(workspace, estimates)
        summary = replace(summary, estimates=estimates, gains=gains)
    if not workspace.queue_seal_path.exists() and discard_percent is None:
        return summary
    precision = measure_precision(
        workspace, discard_percent=discard_percent, drop_failed_blocks=drop_failed_blocks
    )
    return replace(summary, precision=precision)


@writes("answers")
def weigh_raters(
    work: WorkLike, recipe: RecipeLike = None, *, with_teacher: bool = False
) -> HeardRaters:
    """Say how good each rater is and how likely every label heard is there, by all answers.

    ``with_teacher`` lets the teacher vote on labels that nobody had been asked about, by chances
    that have learnt from no answer. Answers about what the dataset no longer has are left out.
    """
    workspace = open_workspace(work)
    weighed = _weighed(workspace, recipe, with_teacher)
    tables = {workspace.raters_path: weighed.raters, workspace.weighed_path: weighed.labels}
    for path, table in tables.items():
        write_table(path, table, for_people=True)
        write_stamp(workspace, stamp_path(path))
    return HeardRaters(workspace.raters_path, workspace.weighed_path, weighed)


@writes("review")
def draw_adjudication(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    n_items: int | None = None,
    flags_per_block: int = 25,
    with_teacher: bool = False,
) -> DrawnQueue:
    """Draw the labels about which raters are at odds, for one whose answers decide.

    The most doubtful come first, ``n_items`` of them or all, in blocks of a class. They take the
    place of the queue that is there, which is drawn again when it is asked for; answers are kept.
    """
    workspace = open_workspace(work)
    disputed = _weighed(workspace, recipe, with_teacher).disputed
    scores = open_scored(workspace, recipe).whole
    labels = scored_labels(scores, workspace.labels)
    is_scored = disputed["clip_id"].is_in(labels.clip_ids.implode())
    if not is_scored.all():
        warnings.warn(
            f"{(~is_scored).sum():,} of {len(disputed):,} labels in dispute are of clips without "
            "scores; they are left out",
            EarmarkWarning,
            stacklevel=2,
        )
    disputed = disputed.filter(is_scored).head(len(disputed) if n_items is None else n_items)
    if disputed.is_empty():
        raise EarmarkError(
            f"{workspace.root}: raters are at odds about no label, so there is nothing to decide; "
            f"correct the labels with `earmark relabel {quoted(workspace.root)}`"
        )
    queue = adjudication_queue(labels, scores.logits, disputed, flags_per_block=flags_per_block)
    write_queue(workspace, queue)
    return DrawnQueue(workspace.queue_path, queue)


def _weighed(workspace: Workspace, recipe: RecipeLike, with_teacher: bool) -> WeighedRaters:
    with open_judgements(workspace, must_exist=True) as store:
        judgements = still_there(workspace, store.current())
    teacher = _chances(workspace, recipe, judgements) if with_teacher else None
    return weigh_answers(judgements, workspace.labels.rows(), teacher)


def _chances(workspace: Workspace, recipe: RecipeLike, judgements: pl.DataFrame) -> pl.DataFrame:
    """Return the teacher's chances of the labels heard (clip_id, class_id, chance), by scores."""
    scores = open_scored(workspace, recipe).whole
    labels = scored_labels(scores, workspace.labels)
    clips = pl.DataFrame({"clip_id": labels.clip_ids, "row": range(labels.n_clips)})
    classes = pl.DataFrame({"class_id": labels.class_ids, "column": range(labels.n_classes)})
    heard = judgements.select(PAIR).unique(maintain_order=True)
    placed = heard.join(clips, on="clip_id").join(classes, on="class_id")
    evidence = gather_evidence(labels, scores.logits, workspace.ontology)
    if not evidence.knowledge.is_enough:
        return placed.select(*PAIR, chance=pl.lit(None, pl.Float64))
    rows, columns = (placed[name].to_numpy() for name in ("row", "column"))
    log_odds = evidence.p_missing.log_odds_of(rows, columns)
    return placed.select(*PAIR, chance=pl.Series(expit(log_odds), dtype=pl.Float64))
