"""The labels that are most likely missing, for those who want to find rather than to measure."""

from __future__ import annotations

from typing import Any

import polars as pl

from earmark.flags import flag
from earmark.labels import LabelSet
from earmark.review.strata import Cells
from earmark.runs import ReviewParams
from earmark.scores import ScoreMatrix


def likeliest(
    labels: LabelSet,
    scores: ScoreMatrix,
    cells: Cells,
    params: ReviewParams,
    n_rounds: int,
    **known: Any,
) -> pl.DataFrame:
    """Return the labels with the highest chances, in blocks of one class, the likeliest first.

    Among the flags up to the last operating point, and at most ``n_rounds`` blocks of a class.
    Those without a known chance come last, by rank (``by_rank``). ``likely`` is a label's place
    within its block, from 0 to 1. ``known`` is what chances go by beside labels and scores:
    ``ontology`` and ``answers`` (see :func:`earmark.flag`).
    """
    class_ids = [labels.class_ids[column] for column in cells.columns]
    chosen = pl.DataFrame({"class_id": class_ids, "chosen": range(len(class_ids))})
    rows = pl.DataFrame({"clip_id": labels.clip_ids, "row": range(len(labels))})
    flags = flag(labels, scores, discard_percent=cells.percents[-1], **known)
    flags = flags.join(chosen, on="class_id", maintain_order="left")
    number = pl.int_range(pl.len()).over("chosen")
    listed = (
        flags.sort(-pl.col("chance"), "rank", "chosen", nulls_last=True)
        .with_columns(round=number // params.flags_per_block, place=pl.int_range(pl.len()))
        .filter(pl.col("round") < n_rounds)
        .head(len(flags) if params.n_items is None else params.n_items)
        .join(rows, on="clip_id", maintain_order="left")
    )
    edges = cells.edges[:, listed["chosen"].to_numpy()]
    n_exceeded = (listed["logit"].to_numpy() > edges).sum(axis=0)
    block = ["chosen", "round"]
    return listed.select(
        *block,
        "row",
        "logit",
        kind=pl.lit("flag"),
        band=pl.Series(len(cells.percents) - n_exceeded, dtype=pl.Int64),
        by_rank=pl.col("chance").is_null(),
        block_order=pl.col("place").min().over(block),
        likely=(pl.int_range(pl.len()).over(block) + 0.5) / pl.len().over(block),
    )
