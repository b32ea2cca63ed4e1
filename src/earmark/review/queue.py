"""The review queue: which labels are listened to, and in what order.

Raters hear blocks of one class. A block takes turns through the class's cells (see
:mod:`earmark.review.strata`), each in its fixed random order, so whatever was judged when a rater
stops is a simple random sample of every cell, and a longer queue begins like a shorter one.

A queue of the likeliest labels first (``order = "likeliest"``) finds more missing labels and
measures none of the flags: what is heard of it is no sample.

Among the sampled labels stand controls that look like any other item: explicit positives, explicit
negatives where there are any, and silent repeats of an item that the rater has just answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.datasets import Workspace, refuse_stale, stale_of, warn_stale, write_stamp
from earmark.errors import EarmarkError, quoted
from earmark.flags import Answers
from earmark.labels import LabelSet, Ontology
from earmark.review.likeliest import likeliest
from earmark.review.strata import Cells, Orders, draw, mix, ranks
from earmark.runs import (
    QueueOrder,
    ReviewParams,
    digest,
    read_json,
    read_table,
    write_json,
    write_table,
)
from earmark.scores import ScoreMatrix, ScoresLike, find_unscored, open_scores

QUEUE_SCHEMA = pl.Schema(
    {
        "item": pl.String(),
        "kind": pl.String(),
        "class_id": pl.String(),
        "clip_id": pl.String(),
        "band_low": pl.Float64(),
        "band_high": pl.Float64(),
        "rank": pl.Int64(),
        "logit": pl.Float32(),
        "block": pl.Int64(),
        "place": pl.Int64(),
        "is_shared": pl.Boolean(),
        "repeats": pl.String(),
    }
)

CONTROLS = ("positive", "negative", "repeat")
"""The kinds of items that test the rater rather than a label."""


@dataclass(frozen=True)
class Queue:
    """A review: its items, and the sizes of the cells that they were drawn from.

    ``items``, sorted by block and place, has the columns of QUEUE_SCHEMA:

    - item: names clip and class (16 hexadecimal digits, the same in every queue); a repeat has one
      of its own
    - kind: ``flag`` (within the last operating point), ``unflagged`` (below it), or one of the
      controls ``positive``, ``negative`` and ``repeat``
    - class_id, clip_id
    - band_low, band_high: per cent of the class's implicit labels; the unflagged band ends at 100;
      null for controls
    - rank: 1 + the implicit labels of the class that score higher; null unless a flag
    - logit: the teacher's score
    - block, place: numbers from 0, the order of listening; a block has one class
    - is_shared: whether every rater judges the block (see :func:`blocks_of`)
    - repeats: the item that a repeat repeats, which has a lower place in the same block

    ``sizes`` has a row for each cell of the chosen classes: class_id, band_low, band_high,
    is_flagged, n_labels. In ``order`` likeliest, ``n_by_rank`` labels have no known chance and
    stand last, by their rank in the class. ``population`` is the digest of labels and scores.
    """

    items: pl.DataFrame
    sizes: pl.DataFrame
    order: QueueOrder = "random"
    n_by_rank: int = 0
    population: str = ""

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits identifying the items and their order."""
        return digest(self.items.write_csv())


def make_queue(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    ontology: Ontology,
    params: ReviewParams = ReviewParams(),  # noqa: B008 (frozen)
    answers: Answers | None = None,
) -> Queue:
    """Draw the queue of a review.

    ``logits`` [clip, class] belong to ``labels``, clip by clip. Classes without scores are left
    out. Three passes over the scores, none of which holds them in memory. The queue is a function
    of its arguments; ``answers`` by ear matter where the likeliest come first.
    """
    scores = open_scores(logits, labels)
    columns = _chosen_columns(labels, scores, ontology, params)
    cells = Cells.find(labels, scores, columns, params.discard_percents)
    orders = Orders.of(labels, columns, params.seed)
    if params.order == "likeliest":
        known = {"ontology": ontology, "answers": answers}
        sampled = likeliest(labels, scores, cells, params, _n_rounds(params), **known)
    else:
        n_most = params.flags_per_block * _n_rounds(params)
        sampled = _cut_into_blocks(
            draw(labels, scores, cells, orders, n_most), cells, orders, params
        )
    flagged = sampled.filter(pl.col("kind") == "flag")
    flagged = flagged.with_columns(rank=pl.Series(ranks(labels, scores, cells, flagged)))
    sampled = pl.concat([flagged, sampled.filter(pl.col("kind") != "flag")], how="diagonal")
    n_rounds = 1 + max(sampled["round"], default=0)
    golds = _golds(labels, scores, cells, orders, n_rounds * params.n_controls)
    items = _with_controls(sampled, golds, orders, params)
    n_by_rank = int(sampled["by_rank"].sum()) if params.order == "likeliest" else 0
    table = cells.table(labels.class_ids)
    return Queue(_named(labels, cells, items, params), table, params.order, n_by_rank)


def block_plan(items: pl.DataFrame) -> pl.DataFrame:
    """Return one row per block of a queue's items, in the order of listening.

    Columns: block, class_id, is_shared, n_items, n_controls (of n_items).
    """
    return (
        items.group_by("block")
        .agg(
            pl.col("class_id").first(),
            pl.col("is_shared").first(),
            n_items=pl.len().cast(pl.Int64),
            n_controls=pl.col("kind").is_in(CONTROLS).sum().cast(pl.Int64),
        )
        .sort("block")
    )


def blocks_of(plan: pl.DataFrame, rater: str, raters: Sequence[str]) -> list[int]:
    """Return the blocks that a rater judges: the shared ones, and a share of all others.

    ``plan`` is a :func:`block_plan`. A rater alone judges all blocks.

    >>> plan = pl.DataFrame({"block": [0, 1, 2], "is_shared": [True, False, False]})
    >>> blocks_of(plan, "ann", ["ann", "bob"]), blocks_of(plan, "bob", ["ann", "bob"])
    ([0, 1], [0, 2])
    """
    if rater not in raters:
        raise EarmarkError(f"there is no rater {rater!r}; the raters are {', '.join(raters)}")
    dealt = plan.with_columns(turn=(~pl.col("is_shared")).cum_sum() - 1)
    is_own = pl.col("turn") % len(raters) == list(raters).index(rater)
    return dealt.filter(pl.col("is_shared") | is_own)["block"].to_list()


def item_id(clip_id: str, class_id: str, *, is_repeat: bool = False) -> str:
    """Return the name of a clip and class in a review: 16 hexadecimal digits."""
    return digest(clip_id, class_id, "repeat") if is_repeat else digest(clip_id, class_id)


def write_queue(workspace: Workspace, queue: Queue, made_from: str = "") -> None:
    """Write a queue into the workspace's review folder; ``queue.json`` seals it.

    ``made_from`` is a digest of labels, scores and parameters, for those who want to know whether
    the queue is still current.
    """
    workspace.queue_seal_path.unlink(missing_ok=True)
    write_table(workspace.queue_path, queue.items)
    write_table(workspace.queue_sizes_path, queue.sizes)
    told = {name: getattr(queue, name) for name in ("order", "n_by_rank", "population")}
    write_json(workspace.queue_seal_path, {"digest": queue.digest, "made_from": made_from, **told})
    write_stamp(workspace, workspace.queue_seal_path)


def is_drawn_from(workspace: Workspace, made_from: str) -> bool:
    """Tell whether the workspace's queue was drawn from what a digest stands for, and stamp it."""
    seal = workspace.queue_seal_path
    is_current = seal.exists() and read_json(seal).get("made_from") == made_from
    if is_current:
        write_stamp(workspace, seal)
    return is_current


def read_queue(workspace: Workspace) -> Queue:
    """Read the queue of a workspace's review; refuse one that is not whole.

    A queue that is older than the dataset is said to be; one with clips or classes that are gone
    is refused. Answers are kept by clip and class, whatever becomes of the queue.
    """
    remedy = f"make it with `earmark queue {quoted(workspace.root)}`"
    if not workspace.queue_seal_path.exists():
        raise EarmarkError(f"{workspace.review_folder}: no queue there yet; {remedy}")
    told = read_json(workspace.queue_seal_path)
    tables = read_table(workspace.queue_path), read_table(workspace.queue_sizes_path)
    queue = Queue(
        *tables, told.get("order", "random"), told.get("n_by_rank", 0), told.get("population", "")
    )
    expected = told.get("digest")
    if queue.digest != expected:
        raise EarmarkError(
            f"{workspace.queue_path}: its digest is {queue.digest}, expected {expected}; "
            f"changed or damaged? {remedy}"
        )
    _check_age(workspace, queue)
    return queue


def _check_age(workspace: Workspace, queue: Queue) -> None:
    path, seal = workspace.queue_path, workspace.queue_seal_path
    stale = stale_of(workspace, path, seal, "queue")
    if stale is None:
        return
    is_there = queue.items["clip_id"].is_in(workspace.clips["clip_id"].implode())
    is_there &= queue.items["class_id"].is_in(list(workspace.ontology.class_ids))
    if not is_there.all():
        refuse_stale(stale)
    warn_stale(stale, "answers count for what it was drawn from, and are kept")


def _chosen_columns(
    labels: LabelSet, scores: ScoreMatrix, ontology: Ontology, params: ReviewParams
) -> NDArray[np.int64]:
    """Return the columns of the classes asked for, in that order; all by default."""
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
        .with_columns(block_order=pl.lit(0), likely=pl.lit(None, pl.Float64))
    )


def _n_rounds(params: ReviewParams) -> int:
    """Return the most blocks of a class: those asked for, or what all items could fill."""
    if params.n_items is None:
        return params.blocks_per_class
    return math.ceil(params.n_items / params.flags_per_block)


def _golds(
    labels: LabelSet, scores: ScoreMatrix, cells: Cells, orders: Orders, n_most: int
) -> pl.DataFrame:
    """Return the first explicit labels of each class and kind in their fixed random order.

    Columns: chosen, kind, number (from 0), row, logit.
    """
    place_of = np.full(labels.n_classes, -1)
    place_of[cells.columns] = np.arange(len(cells.columns))
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
    columns = cells.columns[golds["chosen"].to_numpy()]
    logits = scores.sample(golds["row"].to_numpy())[np.arange(len(golds)), columns]
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
    shuffled = pl.coalesce("likely", pl.col("key").cast(pl.Float64) / 2.0**64)
    base = base.with_columns(key=pl.Series(keys)).sort(*block, shuffled, "key")
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
    block_order = pl.col("block_order").max().over("round", "chosen")
    block = pl.struct(block_order, "round", "chosen").rank("dense").cast(pl.Int64) - 1
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
    return named.select(QUEUE_SCHEMA.names()).cast(QUEUE_SCHEMA).sort("block", "place")


def _n_shared(n_more: int, overlap: float) -> pl.Expr:
    """Return how many blocks are shared before or up to this one: the first, then evenly spread."""
    return ((pl.col("block") + n_more) * overlap).ceil()
