"""A queue to measure with: a random sample of every class and band, drawn at once.

Raters hear blocks of one class. A block takes turns through the class's cells (see
:mod:`earmark.review.queues.strata`), each in its fixed random order, so whatever was judged when a
rater stops is a simple random sample of every cell, and a longer queue begins like a shorter one.

Among the sampled labels stand controls that look like any other item: explicit positives, explicit
negatives where there are any, and silent repeats of an item that the rater has just answered.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology
from earmark.review.queues.queue import CONTROLS, QUEUE_SCHEMA, Queue, item_id
from earmark.review.queues.strata import Cells, Orders, draw, mix, ranks
from earmark.runs import ReviewParams
from earmark.scores import ScoreMatrix, ScoresLike, find_unscored, open_scores


def make_queue(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    ontology: Ontology,
    params: ReviewParams = ReviewParams(aim="measure"),  # noqa: B008 (frozen)
) -> Queue:
    """Draw a queue to measure with.

    ``logits`` [clip, class] belong to ``labels``, clip by clip. Classes without scores are left
    out. Three passes over the scores, none of which holds them in memory. The queue is a function
    of its arguments.
    """
    scores = open_scores(logits, labels)
    columns = chosen_columns(labels, scores, ontology, params)
    cells = Cells.find(labels, scores, columns, params.discard_percents)
    orders = Orders.of(labels, columns, params.seed)
    n_most = params.flags_per_block * _n_rounds(params)
    drawn = draw(labels, scores, cells, orders, n_most)
    sampled = _cut_into_blocks(drawn, cells, orders, params)
    flagged = sampled.filter(pl.col("kind") == "flag")
    flagged = flagged.with_columns(rank=pl.Series(ranks(labels, scores, cells, flagged)))
    sampled = pl.concat([flagged, sampled.filter(pl.col("kind") != "flag")], how="diagonal")
    n_rounds = 1 + max(sampled["round"], default=0)
    golds = known_labels(labels, scores, columns, orders, n_rounds * params.n_controls)
    items = _with_controls(sampled, golds, orders, params)
    table = cells.table(labels.class_ids)
    return Queue(_with_probabilities(_named(labels, cells, items, params), table), table)


def _with_probabilities(items: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """Say with which probability labels were drawn: the share of their cell."""
    cell = ["class_id", "band_low", "band_high"]
    drawn = items.filter(pl.col("band_low").is_not_null()).group_by(cell).len("n_drawn")
    shares = drawn.join(sizes, on=cell).select(
        *cell, probability=pl.col("n_drawn") / pl.col("n_labels")
    )
    found = items.drop("probability").join(shares, on=cell, how="left", maintain_order="left")
    return found.select(QUEUE_SCHEMA.names())


def chosen_columns(
    labels: LabelSet, scores: ScoreMatrix, ontology: Ontology, params: ReviewParams
) -> NDArray[np.int64]:
    """Return the columns of the classes asked for, in that order; all with scores by default."""
    is_unscored = find_unscored(scores)
    if not params.classes:
        return np.flatnonzero(~is_unscored)
    columns = [labels.class_ids.index(ontology.find(name)) for name in params.classes]
    for name, column in zip(params.classes, columns, strict=True):
        if is_unscored[column]:
            raise EarmarkError(f"class {name!r} has no scores, so it has no flags to listen to")
    return np.array(list(dict.fromkeys(columns)), np.int64)


def _cut_into_blocks(
    drawn: pl.DataFrame, cells: Cells, orders: Orders, params: ReviewParams
) -> pl.DataFrame:
    """Let each class take turns through its cells, and cut the sequence into blocks (``round``)."""
    chosen, turns = drawn["chosen"].to_numpy(), drawn["turn"].to_numpy()
    # Cells draw lots in every turn, so that the end of a block favours none of them.
    places = turns * len(cells.n_labels) + drawn["band"].to_numpy()
    number = pl.int_range(pl.len()).over("chosen")
    is_flag = pl.col("band") < len(cells.percents)
    return (
        drawn.with_columns(lot=pl.Series(orders.of_turns(chosen, places)))
        .sort("chosen", "turn", "lot")
        .with_columns(
            round=number // params.flags_per_block,
            kind=pl.when(is_flag).then(pl.lit("flag")).otherwise(pl.lit("unflagged")),
        )
        .filter(pl.col("round") < _n_rounds(params))
        # Classes take turns for the items asked for, and each keeps the first of its sequence.
        .filter(pl.struct(number, "chosen").rank() <= (params.n_items or math.inf))
    )


def _n_rounds(params: ReviewParams) -> int:
    """Return the most blocks of a class: those asked for, or what all items could fill."""
    if params.n_items is None:
        return params.blocks_per_class
    return math.ceil(params.n_items / params.flags_per_block)


def known_labels(
    labels: LabelSet,
    scores: ScoreMatrix,
    columns: NDArray[np.int64],
    orders: Orders,
    n_most: int,
) -> pl.DataFrame:
    """Return the first explicit labels of each class and kind in their fixed random order.

    ``orders`` are of the same ``columns`` of the labels. Columns: chosen, kind, number (from 0),
    row, logit.
    """
    place_of = np.full(labels.n_classes, -1)
    place_of[columns] = np.arange(len(columns))
    chosen, rows = place_of[labels.columns], labels.clip_rows
    is_present = pl.Series(labels.present)
    listed = pl.DataFrame({"chosen": chosen, "row": rows, "is_present": is_present})
    listed = listed.filter(pl.col("chosen") >= 0)
    keys = orders.of_pairs(listed["row"].to_numpy(), listed["chosen"].to_numpy())
    kind = pl.when("is_present").then(pl.lit("positive")).otherwise(pl.lit("negative"))
    golds = (
        listed.select("chosen", "row", kind=kind, order=pl.Series(keys))
        .sort("order", "row")
        .with_columns(number=pl.int_range(pl.len()).over("chosen", "kind"))
        .filter(pl.col("number") < n_most)
    )
    own = columns[golds["chosen"].to_numpy()]
    logits = scores.sample(golds["row"].to_numpy())[np.arange(len(golds)), own]
    return golds.with_columns(logit=pl.Series(logits)).drop("order")


def _with_controls(
    sampled: pl.DataFrame, golds: pl.DataFrame, orders: Orders, params: ReviewParams
) -> pl.DataFrame:
    """Shuffle each block's labels and known ones, and let some come back near its end."""
    slots = _control_slots(sampled, golds, params)
    known = slots.join(golds, on=["chosen", "kind", "number"])
    block = ["chosen", "round"]
    base = pl.concat([sampled, known], how="diagonal")
    keys = mix(orders.of_pairs(base["row"].to_numpy(), base["chosen"].to_numpy()))
    base = base.with_columns(key=pl.Series(keys)).sort(*block, "key")
    base = base.with_columns(
        place=pl.int_range(pl.len()).over(block), third=(pl.len() // 3).clip(1).over(block)
    )
    repeats = _repeats(slots.filter(pl.col("kind") == "repeat"), base, orders)
    position = pl.coalesce("position", pl.col("place").cast(pl.Float64))
    both = pl.concat([base, repeats], how="diagonal").sort(*block, position)
    return both.with_columns(place=pl.int_range(pl.len()).over(block))


def _control_slots(
    sampled: pl.DataFrame, golds: pl.DataFrame, params: ReviewParams
) -> pl.DataFrame:
    """Return the kind of every control, the kinds that a class has taking turns.

    A short block has fewer of them.

    Columns: chosen, round, kind, number (how many of the kind the class had before).
    """
    classes = sampled.select("chosen").unique()
    kinds = pl.concat(
        [golds.select("chosen", "kind"), classes.with_columns(kind=pl.lit("repeat"))]
    ).unique()
    kinds = kinds.sort("chosen", pl.col("kind").cast(pl.Enum(CONTROLS))).with_columns(
        turn=pl.int_range(pl.len()).over("chosen"), n_kinds=pl.len().over("chosen")
    )
    n_controls, per_label = params.n_controls, params.control_share / (1 - params.control_share)
    blocks = sampled.group_by("chosen", "round").agg(n_own=(pl.len() * per_label).ceil())
    slots = blocks.join(pl.DataFrame({"slot": range(n_controls)}), how="cross")
    slots = slots.filter(pl.col("slot") < pl.col("n_own"))
    slots = slots.with_columns(slot=pl.col("round") * n_controls + pl.col("slot"))
    slots = slots.join(kinds, on="chosen").filter(
        pl.col("slot") % pl.col("n_kinds") == pl.col("turn")
    )
    return slots.select("chosen", "round", "kind", number=pl.col("slot") // pl.col("n_kinds"))


def _repeats(slots: pl.DataFrame, base: pl.DataFrame, orders: Orders) -> pl.DataFrame:
    """Let an item of each block's first third come back in its last third (``position``)."""
    lots = orders.of_turns(slots["chosen"].to_numpy(), slots["number"].to_numpy())
    again = slots.with_columns(lot=pl.Series(lots >> np.uint64(1)).cast(pl.Int64))
    sizes = base.group_by("chosen", "round").agg(pl.col("third").first(), n_base=pl.len())
    again = again.join(sizes, on=["chosen", "round"]).with_columns(
        place=(pl.col("lot") + pl.col("number")) % pl.col("third"),
        position=pl.col("n_base") - 0.5 - pl.col("lot") // 7 % pl.col("third"),
    )
    source = base.select("chosen", "round", "place", "row", "logit")
    again = again.join(source, on=["chosen", "round", "place"])
    again = again.unique(["chosen", "round", "place"], keep="first", maintain_order=True)
    return again.select("chosen", "round", "kind", "place", "position", "row", "logit")


def _named(
    labels: LabelSet, cells: Cells, items: pl.DataFrame, params: ReviewParams
) -> pl.DataFrame:
    """Replace numbers by names, number the blocks, and sort."""
    class_ids = pl.Series([labels.class_ids[column] for column in cells.columns], dtype=pl.String)
    lows, highs = (pl.Series(ends, dtype=pl.Float64) for ends in zip(*cells.bounds, strict=True))
    block = pl.struct("round", "chosen").rank("dense").cast(pl.Int64) - 1
    named = items.with_columns(
        clip_id=labels.clip_ids.gather(items["row"]),
        class_id=class_ids.gather(items["chosen"]),
        band_low=lows.gather(items["band"]),
        band_high=highs.gather(items["band"]),
        block=block,
    )
    pairs = named.select("clip_id", "class_id").rows()
    is_repeat = named["kind"] == "repeat"
    originals = pl.Series([item_id(*pair) for pair in pairs], dtype=pl.String)
    names = [
        item_id(*pair, is_repeat=True) if again else original
        for pair, again, original in zip(pairs, is_repeat, originals, strict=True)
    ]
    named = named.with_columns(
        item=pl.Series(names, dtype=pl.String),
        repeats=pl.when(is_repeat).then(originals),
        is_shared=_n_shared(1, params.overlap) > _n_shared(0, params.overlap),
    )
    unknown = [name for name in QUEUE_SCHEMA.names() if name not in named.columns]
    named = named.with_columns(pl.lit(None).alias(name) for name in unknown)
    return named.select(QUEUE_SCHEMA.names()).cast(QUEUE_SCHEMA).sort("block", "place")


def _n_shared(n_more: int, overlap: float) -> pl.Expr:
    """Return how many blocks are shared before or up to this one: the first, then evenly spread."""
    return ((pl.col("block") + n_more) * overlap).ceil()
