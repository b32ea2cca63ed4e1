"""A queue that measures flags: a random sample of every class and band, drawn at once.

The implicit labels of a class are cut into *bands* between neighbouring operating points (0-0.1 %,
0.1-0.2 %, ... 15-20 %, and the unflagged rest). A class and a band make a *cell*. The labels of a
cell have a fixed random order, which depends on the seed and their names only. Its first n labels
are a simple random sample for every n, and keep their order when clips of other cells come or go.

A block has one class and takes turns through the cells of the class. So whatever was judged when a
rater stops is a simple random sample of every cell, and a longer queue starts like a shorter one.

Controls are mixed in and look like any other item: explicit positives, explicit negatives where
there are any, and repeats of an item that the rater has just answered.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.config import ReviewParams
from earmark.errors import EarmarkError
from earmark.flags import thresholds
from earmark.labels import IMPLICIT, LabelSet, Ontology
from earmark.review.queue_items import CONTROLS, QUEUE_SCHEMA, QueueSnapshot, item_id
from earmark.scores import CHUNK_SCORES, ScoreMatrix, ScoresLike, find_unscored, open_scores

MARGIN_SDS = 8.0
"""How many standard deviations more labels than needed a pass keeps of each cell."""

Keys = NDArray[np.uint64]

_ALL = np.uint64(2**64 - 1)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Cells:
    """The cells of some classes, ``columns`` int64 [chosen] of the labels.

    ``edges`` float32 [point, chosen] are the thresholds of ``percents``, all of them above 0;
    ``n_labels`` int64 [band, chosen] has one band more, the unflagged one.
    """

    columns: NDArray[np.int64]
    percents: tuple[float, ...]
    edges: NDArray[np.float32]
    n_labels: NDArray[np.int64]

    @classmethod
    def find(
        cls,
        labels: LabelSet,
        scores: ScoreMatrix,
        columns: NDArray[np.int64],
        discard_percents: Sequence[float],
    ) -> Cells:
        """Find the cells between operating points, in one pass over the scores."""
        percents = tuple(float(percent) for percent in discard_percents if percent > 0)
        found = thresholds(labels, scores, percents)
        up_to = np.vstack([found.n_ignored, labels.n_implicit])[:, columns]
        n_labels = np.diff(up_to, axis=0, prepend=0)
        return cls(columns, percents, found.values[:, columns], n_labels)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The ends of each band, in per cent of a class's implicit labels."""
        return list(itertools.pairwise((0.0, *self.percents, 100.0)))

    def bands(self, states: NDArray[np.int8], values: NDArray[np.float32]) -> NDArray[np.int8]:
        """Return the band [clip, chosen] of each label; -1 where it is explicit."""
        n_exceeded = (values > self.edges[:, None, :]).sum(axis=0, dtype=np.int8)
        return np.where(states == IMPLICIT, len(self.percents) - n_exceeded, -1).astype(np.int8)

    def table(self, class_ids: Sequence[str]) -> pl.DataFrame:
        """Return one row per cell: class_id, band_low, band_high, is_flagged, n_labels."""
        n_bands, n_chosen = self.n_labels.shape
        lows, highs = zip(*self.bounds, strict=True)
        return pl.DataFrame(
            {
                "class_id": np.repeat([class_ids[column] for column in self.columns], n_bands),
                "band_low": np.tile(np.array(lows), n_chosen),
                "band_high": np.tile(np.array(highs), n_chosen),
                "is_flagged": np.tile(np.arange(n_bands) < len(self.percents), n_chosen),
                "n_labels": self.n_labels.T.ravel(),
            },
            schema=SIZE_SCHEMA,
        )


SIZE_SCHEMA = pl.Schema(
    {
        "class_id": pl.String(),
        "band_low": pl.Float64(),
        "band_high": pl.Float64(),
        "is_flagged": pl.Boolean(),
        "n_labels": pl.Int64(),
    }
)


@dataclass(frozen=True)
class Orders:
    """The fixed random order: a number for each clip and chosen class, made from their names."""

    clip_keys: Keys
    class_keys: Keys

    @classmethod
    def of(cls, labels: LabelSet, columns: NDArray[np.int64], seed: int) -> Orders:
        """Make the keys of all clips and of some classes."""
        clips = [_key(seed, "clip", clip_id) for clip_id in labels.clip_ids]
        classes = [_key(seed, "class", labels.class_ids[column]) for column in columns]
        return cls(np.array(clips, np.uint64), np.array(classes, np.uint64))

    def of_clips(self, rows: slice) -> Keys:
        """Return the numbers [clip, chosen] of some clips in all chosen classes."""
        return mix(self.clip_keys[rows][:, None] + self.class_keys)

    def of_pairs(self, rows: NDArray[np.int64], chosen: NDArray[np.int64]) -> Keys:
        """Return the numbers of single labels, given by clip and chosen class."""
        return mix(self.clip_keys[rows] + self.class_keys[chosen])

    def of_turns(self, chosen: NDArray[np.int64], turns: NDArray[np.int64]) -> Keys:
        """Return a number for each class and turn, to draw lots with."""
        return mix(self.class_keys[chosen] + (turns.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def mix(keys: Keys) -> Keys:
    """Turn keys into numbers that look random (the finaliser of splitmix64).

    >>> [hex(number) for number in mix(np.array([1, 2], np.uint64)).tolist()]
    ['0x5692161d100b05e5', '0xdbd238973a2b148a']
    """
    mixed = keys.copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def draw(
    labels: LabelSet, scores: ScoreMatrix, cells: Cells, orders: Orders, n_most: int
) -> pl.DataFrame:
    """Return the first ``n_most`` labels of every cell, or all that there are.

    Columns: chosen (class), band, turn (from 0, the place in the cell's order), row (clip), logit.
    One pass over the scores, and a share of it is kept.
    """
    n_wanted = np.minimum(cells.n_labels, n_most)
    margin = MARGIN_SDS
    while True:
        n_expected = n_wanted + margin * np.sqrt(n_wanted)
        share = np.minimum(n_expected / np.maximum(cells.n_labels, 1), 1)
        found = _within(labels, scores, cells, orders, share)
        n_found = np.zeros_like(n_wanted)
        np.add.at(n_found, (found["band"].to_numpy(), found["chosen"].to_numpy()), 1)
        if (n_found >= n_wanted).all():
            break
        margin *= 4  # hardly ever: keep more, and look again
    turn = pl.int_range(pl.len()).over("chosen", "band")
    ordered = found.sort("chosen", "band", "order", "row").with_columns(turn=turn)
    return ordered.filter(pl.col("turn") < n_most).select("chosen", "band", "turn", "row", "logit")


def _within(
    labels: LabelSet,
    scores: ScoreMatrix,
    cells: Cells,
    orders: Orders,
    share: NDArray[np.float64],
) -> pl.DataFrame:
    """Return the labels that stand within the first share [band, chosen] of their cell."""
    # 53 bits, shifted: a product with 2 ** 64 could round up to a number that is none of uint64's.
    limits = (np.where(share < 1, share, 0) * 2.0**53).astype(np.uint64) << np.uint64(11)
    limits = np.where(share < 1, limits, _ALL)
    every = np.arange(len(cells.columns))
    parts = []
    for rows, states, values in _chunks(labels, scores, cells.columns):
        bands, order = cells.bands(states, values), orders.of_clips(rows)
        clips, chosen = np.nonzero((order <= limits[bands, every]) & (bands >= 0))
        found = {
            "chosen": chosen,
            "band": bands[clips, chosen].astype(np.int64),
            "order": order[clips, chosen],
            "row": clips + rows.start,
            "logit": values[clips, chosen],
        }
        parts.append(pl.DataFrame(found))
    return pl.concat(parts)


def ranks(
    labels: LabelSet, scores: ScoreMatrix, cells: Cells, drawn: pl.DataFrame
) -> NDArray[np.int64]:
    """Return 1 + the number of implicit labels of the class that score higher, for flagged labels.

    ``drawn`` has the columns chosen and logit, above the class's last edge. One pass over the
    scores.
    """
    chosen, logits = drawn["chosen"].to_numpy(), drawn["logit"].to_numpy()
    order = np.lexsort((logits, chosen))
    starts = np.searchsorted(chosen[order], np.arange(len(cells.columns) + 1))
    own = [logits[order[a:b]] for a, b in itertools.pairwise(starts)]
    n_passed = [np.zeros(len(steps) + 1, np.int64) for steps in own]
    for _, states, values in _chunks(labels, scores, cells.columns):
        for column, (steps, counts) in enumerate(zip(own, n_passed, strict=True)):
            is_flagged = (values[:, column] > cells.edges[-1, column]) & (
                states[:, column] == IMPLICIT
            )
            passed = np.searchsorted(steps, values[is_flagged, column])
            counts += np.bincount(passed, minlength=len(counts))
    n_higher = [counts[::-1].cumsum()[::-1][1:] for counts in n_passed]
    result = np.empty(len(order), np.int64)
    result[order] = np.concatenate([np.empty(0, np.int64), *n_higher]) + 1
    return result


def _chunks(
    labels: LabelSet, scores: ScoreMatrix, columns: NDArray[np.int64]
) -> Iterator[tuple[slice, NDArray[np.int8], NDArray[np.float32]]]:
    """Yield rows, states and scores [clip, chosen], a few clips at a time."""
    step = max(1, CHUNK_SCORES // max(scores.n_classes, 1))
    for start in range(0, max(scores.n_clips, 1), step):
        rows = slice(start, min(start + step, scores.n_clips))
        yield rows, labels.states(rows)[:, columns], scores.read(rows)[:, columns]


def _key(seed: int, what: str, name: str) -> int:
    text = f"{seed}\0{what}\0{name}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def make_queue(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    ontology: Ontology,
    params: ReviewParams = ReviewParams(aim="measure"),  # noqa: B008 (frozen)
) -> QueueSnapshot:
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
    return QueueSnapshot(_with_probabilities(_named(labels, cells, items, params), table), table)


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
