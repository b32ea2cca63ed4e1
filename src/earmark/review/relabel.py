"""Judgements and a label set to a corrected label set, every change with its origin.

"Present" is heard in a second; "not present" is a claim on the whole clip. So an implicit label
becomes

- an explicit positive, where raters say present;
- an explicit negative, where they say not present and one of them heard the whole clip;
- *cleared*, where they say not present after the loudest moments only: an ordinary implicit
  negative again, which is never flagged or ignored any more, but put back into the loss;
- *ignored* for good, where they are unsure or divided.

Where an adjudicator has answered, that answer counts in place of all others.

Explicit labels are never changed: a judgement that contradicts one is listed as a conflict.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

import polars as pl

from earmark.datasets import (
    CHANGE_SCHEMA,
    CONFLICT_SCHEMA,
    PAIR,
    RESERVED_NAMES,
    Relabelled,
    Workspace,
)
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.review.judgements import ADJUDICATED, combine_votes
from earmark.review.queue_items import CONTROLS, QueueSnapshot, item_id
from earmark.storage import break_seal, digest, seal


def relabel(
    labels: LabelSet, judgements: pl.DataFrame, queue: QueueSnapshot | None = None
) -> Relabelled:
    """Correct labels by judgements.

    ``judgements`` are a store's current ones. Raters vote on each clip and class: more than half of
    them decide, anything else is unsure. ``queue`` adds the score and rank of each flag. Without
    judgements nothing changes. A clip or class that the labels do not know is refused.
    """
    _check_known(labels, judgements)
    verdicts = combine_votes(judgements, PAIR).filter(pl.col("answer") != "cannot_play")
    verdicts = verdicts.rename({"raters": "rater"}).join(labels.rows(), on=PAIR, how="left")
    changes = _changes(verdicts.filter(pl.col("present").is_null()), queue)
    is_explicit = changes["after"].is_in(["present", "not_present"])
    added = changes.filter(is_explicit).select(*PAIR, present=pl.col("after") == "present")
    rows = pl.concat([labels.rows(), added])
    corrected = LabelSet.from_rows(rows, labels.clip_ids, labels.class_ids, "corrected labels")
    return Relabelled(corrected, changes, _conflicts(verdicts))


def without_cleared(flags: pl.DataFrame, rulings: LabelSet) -> pl.DataFrame:
    """Leave out of a table of flags (clip_id, class_id, ...) the labels that raters cleared."""
    cleared = rulings.rows().filter(~pl.col("present"))
    return flags.join(cleared, on=PAIR, how="anti", maintain_order="left")


def write_relabelled(
    workspace: Workspace, name: str, relabelled: Relabelled, judgements: pl.DataFrame
) -> None:
    """Write a corrected label set into the workspace, stamped with what it was made from.

    The seal of its folder is written last. The names of the labels that every workspace may have
    are refused.
    """
    if name in RESERVED_NAMES:
        raise EarmarkError(
            f"corrected labels cannot be called {name!r}: it is the name of labels that are not "
            "corrected; give another name with --out"
        )
    folder = workspace.relabelled_folder(name)
    break_seal(folder)
    relabelled.write(folder)
    meta = {
        "digest": digest(relabelled.labels.digest, relabelled.rulings.digest),
        "original_labels": workspace.labels.digest,
        "judgements": digest(judgements.sort("id").write_csv()),
        "raters": sorted(judgements["rater"].unique()),
        "last_judgement": judgements["at"].max(),
        "outcomes": relabelled.n_by_outcome,
        "n_conflicts": len(relabelled.conflicts),
        "earmark": metadata.version("earmark"),
    }
    seal(folder, meta)


def _check_known(labels: LabelSet, judgements: pl.DataFrame) -> None:
    known: tuple[tuple[str, str, pl.Series], ...] = (
        ("clip", "clip_id", labels.clip_ids),
        ("class", "class_id", pl.Series(labels.class_ids, dtype=pl.String)),
    )
    for what, column, there in known:
        strange = judgements.filter(~pl.col(column).is_in(there.implode()))
        if len(strange):
            raise EarmarkError(
                f"judgement {strange['id'][0]} is about {what} {strange[column][0]!r}, which the "
                "labels do not know; are these judgements of another dataset?"
            )


def _changes(verdicts: pl.DataFrame, queue: QueueSnapshot | None) -> pl.DataFrame:
    """Say what becomes of judged implicit labels."""
    is_no, is_whole = pl.col("answer") == "not_present", pl.col("whole_clip")
    after = (
        pl.when(pl.col("answer") == "present")
        .then(pl.lit("present"))
        .when(is_no & is_whole)
        .then(pl.lit("not_present"))
        .when(is_no)
        .then(pl.lit("cleared"))
        .otherwise(pl.lit("ignored"))
    )
    items = [item_id(*pair) for pair in verdicts.select(PAIR).iter_rows()]
    changes = verdicts.with_columns(
        before=pl.lit("implicit"), after=after, item=pl.Series(items, dtype=pl.String)
    )
    changes = changes.join(_flags(queue), on="item", how="left", maintain_order="left")
    return changes.select(CHANGE_SCHEMA.names()).cast(CHANGE_SCHEMA)


def _flags(queue: QueueSnapshot | None) -> pl.DataFrame:
    """Return item, score, rank and discard_percent of the sampled labels of a queue."""
    columns: Sequence[str] = ("item", "score", "rank", "discard_percent")
    if queue is None:
        return pl.DataFrame(schema={name: CHANGE_SCHEMA[name] for name in columns})
    sampled = queue.items.filter(~pl.col("kind").is_in(CONTROLS))
    item = pl.col("item").str.strip_suffix(ADJUDICATED)
    return sampled.select(item, "rank", score="logit", discard_percent="band_high")


def _conflicts(verdicts: pl.DataFrame) -> pl.DataFrame:
    """List the explicit labels that raters contradict."""
    says = {"present": True, "not_present": False}
    said = pl.col("answer").replace_strict(says, default=None, return_dtype=pl.Boolean)
    label = pl.when("present").then(pl.lit("present")).otherwise(pl.lit("not_present"))
    against = verdicts.filter(pl.col("present") != said).with_columns(label=label)
    return against.select(CONFLICT_SCHEMA.names()).cast(CONFLICT_SCHEMA)
