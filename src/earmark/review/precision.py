"""What judgements say: the precision of the flags, the raters' controls and their agreement.

The flags are those that ``earmark flag`` wrote, whatever policy chose them, if the queue was drawn
from the same labels and scores; otherwise all labels up to the queue's last operating point. The
page and the terminal use the same.

A rater's "unsure" is neither yes nor no, so every precision is a pair of bounds: unsure counted as
not present, and as present. An interval covers both: its low end belongs to the low bound, its high
end to the high one. Sums over cells are stratified: cells are weighted by their sizes, not by how
many of their labels were judged.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.flags import FLAG_SCHEMA
from earmark.metrics import stratified, wilson_interval
from earmark.review.judgements import DECIDED, combine_votes
from earmark.review.queue_items import CONTROLS, QueueSnapshot
from earmark.storage import is_finished, read_seal, read_sealed, seal_path


@dataclass(frozen=True)
class Scope:
    """The flags that are spoken of, in words and as labels.

    ``listed`` (clip_id, class_id, rank) are single flags; without them they are all labels up to
    ``discard_percent`` of each class, and without that all up to the queue's last operating point.
    """

    told: str
    discard_percent: float | None = None
    listed: pl.DataFrame | None = None

    @classmethod
    def up_to(cls, discard_percent: float) -> Scope:
        """Return the flags of one operating point."""
        return cls(f"the top {discard_percent:g} % of each class", discard_percent)


EVERY_BAND = Scope("all labels up to the last operating point")
"""The flags down to the unflagged band."""

LABELS_HEARD = Scope("the labels heard")
"""All that the classes of a queue that learns can speak of."""

DISPUTES_HEARD = Scope("the labels that raters were at odds about")
"""All that an adjudicator's queue can speak of."""


def flags_asked(workspace: Workspace, queue: QueueSnapshot) -> Scope:
    """Return the flags that the owner of a workspace asked for."""
    if queue.aim in ("find", "train"):
        return LABELS_HEARD
    if queue.aim == "adjudicate":
        return DISPUTES_HEARD
    if not is_finished(workspace.flags_folder):
        return _down_to_the_last(queue, "as `earmark flag` wrote none")
    written = read_seal(workspace.flags_folder)
    if written.get("flags_digest") != queue.population:
        return _down_to_the_last(queue, "as those of `earmark flag` are of other labels or scores")
    seal = seal_path(workspace.flags_folder)
    flags = read_sealed(seal, workspace.flags_path.name, FLAG_SCHEMA)
    flags = flags.select("clip_id", "class_id", "rank")
    return Scope(f"the {len(flags):,} written by `earmark flag`{_how(written)}", None, flags)


def _down_to_the_last(queue: QueueSnapshot, reason: str) -> Scope:
    last = max(queue.sizes.filter("is_flagged")["band_high"], default=0)
    return Scope(f"the top {last:g} % of each class, {reason}")


def _how(written: dict[str, Any]) -> str:
    """Return the policy in words, such as ``, the top 1 % of each class``."""
    policy = written.get("policy")
    if policy is None:
        return ""
    if policy == "percentile":
        return f", the top {written['discard_percent']:g} % of each class"
    return f" by the policy {policy}"


LEVEL = 0.95
"""Of every interval here, unless another is asked for."""

_LEAST_FOR_KAPPA = 10
"""Items that two series have to share before agreement beyond chance says anything."""

CELL = ["class_id", "band_low", "band_high"]
"""The columns that name a cell."""

PRECISION_SCHEMA = pl.Schema(
    {
        "scope": pl.String(),
        "class_id": pl.String(),
        "band_low": pl.Float64(),
        "band_high": pl.Float64(),
        "n_labels": pl.Int64(),
        "n_judged": pl.Int64(),
        "n_present": pl.Int64(),
        "n_not_present": pl.Int64(),
        "n_unsure": pl.Int64(),
        "n_cannot_play": pl.Int64(),
        "precision_low": pl.Float64(),
        "precision_high": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "coverage": pl.Float64(),
    }
)

Floats = NDArray[np.float64]


def tally(
    queue: QueueSnapshot, judgements: pl.DataFrame, listed: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Count the answers in each cell of a queue.

    ``judgements`` are a store's current ones; several raters of an item vote, controls do not
    count. Columns: class_id, band_low, band_high, is_flagged, n_labels, n_judged (all answers but
    ``cannot_play``), n_present, n_not_present, n_unsure, n_cannot_play.

    ``listed`` flags (clip_id, class_id, rank) cut each cell in two, those listed and the others,
    and ``is_flagged`` tells them apart: a random sample of a cell is one of either part. Of a queue
    with another aim, which is no sample, n_labels are the labels heard.
    """
    sizes, part = _parts(queue.sizes, listed), [*CELL, "is_flagged"]
    sampled = queue.items.filter(~pl.col("kind").is_in(CONTROLS))
    if listed is None:
        sampled = sampled.join(sizes.select(part), on=CELL)
    else:
        flags = listed.select("clip_id", "class_id", is_flagged=pl.lit(value=True))
        sampled = sampled.join(flags, on=["clip_id", "class_id"], how="left")
        sampled = sampled.with_columns(pl.col("is_flagged").fill_null(value=False))
    answered = sampled.select("item", *part).join(combine_votes(judgements, "item"), on="item")
    answer = pl.col("answer")
    counts = answered.group_by(part).agg(
        n_judged=(answer != "cannot_play").sum(),
        **{f"n_{name}": (answer == name).sum() for name in (*DECIDED, "cannot_play")},
    )
    cells = sizes.join(counts, on=part, how="left", maintain_order="left")
    cells = cells.with_columns(pl.col("^n_.*$").fill_null(0).cast(pl.Int64))
    return cells if queue.aim == "measure" else cells.with_columns(n_labels="n_judged")


def _parts(sizes: pl.DataFrame, listed: pl.DataFrame | None) -> pl.DataFrame:
    """Cut the cells of a queue into the flags that are listed and the other labels."""
    if listed is None:
        return sizes
    last_rank = pl.col("n_labels").cum_sum().over("class_id")
    ends = sizes.select(*CELL, last_rank=last_rank).sort("last_rank")
    ranked = listed.select("class_id", rank=pl.col("rank").cast(pl.Int64)).sort("rank")
    cell = ranked.join_asof(
        ends,
        left_on="rank",
        right_on="last_rank",
        by="class_id",
        strategy="forward",
        check_sortedness=False,
    )
    n_listed = cell.group_by(CELL).agg(n_listed=pl.len().cast(pl.Int64))
    counted = sizes.join(n_listed, on=CELL, how="left", maintain_order="left")
    counted = counted.with_columns(pl.col("n_listed").fill_null(0))
    flagged = counted.with_columns(is_flagged=pl.lit(value=True), n_labels="n_listed")
    others = counted.with_columns(
        is_flagged=pl.lit(value=False), n_labels=pl.col("n_labels") - pl.col("n_listed")
    )
    places = pl.int_range(pl.len())
    both = pl.concat([part.with_columns(place=places) for part in (flagged, others)])
    return both.sort("place", maintain_order=True).drop("n_listed", "place")


def precision_table(
    queue: QueueSnapshot,
    judgements: pl.DataFrame,
    flags: Scope = EVERY_BAND,
    level: float = LEVEL,
) -> pl.DataFrame:
    """Return the precision of each cell, of each class's flags, and of all flags.

    ``judgements`` are a store's current ones, and ``flags`` says which labels are the flags (by
    default all down to the unflagged band). Columns:

    - scope: ``cell``; ``flags``; ``all``, the other labels too: precision times n_labels estimates
      the missing labels
    - class_id (null: all classes), band_low, band_high (of the first and the last cell)
    - n_labels, n_judged, n_present, n_not_present, n_unsure, n_cannot_play
    - precision_low, precision_high: unsure as not present, and as present; null if nobody judged
    - low, high: the interval around both; 0 and 1 if nobody judged, never narrower than Wilson's of
      the answers where some cells were not heard
    - coverage: share of the labels in cells with judgements, of which alone precision speaks
    """
    cells = tally(queue, judgements, flags.listed)
    flagged = cells.filter("is_flagged")
    if flags.discard_percent is not None:
        flagged = flagged.filter(pl.col("band_high") <= flags.discard_percent)
    if flagged.is_empty() and len(cells):
        raise EarmarkError(
            f"no band of the queue ends at or before {flags.discard_percent} %; the first ends at "
            f"{min(cells['band_high'].to_list())} %"
        )
    parts = [_summed(cells, CELL, "cell", level)]
    for scope, chosen in (("flags", flagged), ("all", cells)):
        parts += [_summed(chosen, ["class_id"], scope, level), _summed(chosen, [], scope, level)]
    return pl.concat(parts)


def curve(
    queue: QueueSnapshot,
    judgements: pl.DataFrame,
    class_id: str | None = None,
    level: float = LEVEL,
) -> pl.DataFrame:
    """Return precision against the discard: the flags up to each operating point.

    Of one class, or of all classes together. Columns: discard_percent, then n_labels to coverage
    as in :func:`precision_table`.
    """
    cells = tally(queue, judgements).filter("is_flagged")
    if class_id is not None:
        cells = cells.filter(pl.col("class_id") == class_id)
        if cells.is_empty():
            raise EarmarkError(f"class {class_id!r} is not in the queue; is it among --classes?")
    points = cells["band_high"].unique().sort().to_list()
    up_to = (cells.filter(pl.col("band_high") <= point) for point in points)
    parts = [PRECISION_SCHEMA.to_frame(), *(_summed(part, [], "flags", level) for part in up_to)]
    summed = pl.concat(parts).rename({"band_high": "discard_percent"})
    return summed.drop("scope", "class_id", "band_low")


def _summed(cells: pl.DataFrame, by: list[str], scope: str, level: float) -> pl.DataFrame:
    """Sum cells up by some columns (one sum without any), with precision and interval."""
    keyed = cells.with_columns(group=pl.struct(by).rle_id() if by else pl.lit(0))
    sums = keyed.group_by("group").agg(
        pl.col("class_id").first() if by else pl.lit(None, pl.String).alias("class_id"),
        pl.col("band_low").min(),
        pl.col("band_high").max(),
        pl.col("^n_.*$").sum(),
        n_covered=pl.col("n_labels").filter(pl.col("n_judged") > 0).sum(),
    )
    sums = sums.sort("group")
    group = keyed["group"].to_numpy()
    n_present, n_unsure, n_judged, n_labels = (
        keyed[f"n_{name}"].to_numpy() for name in ("present", "unsure", "judged", "labels")
    )
    lowest = stratified(n_present, n_judged, n_labels, group, level)
    highest = stratified(n_present + n_unsure, n_judged, n_labels, group, level)
    bounds = {"precision_low": lowest.value, "precision_high": highest.value}
    ends = {"low": lowest.low, "high": highest.high}
    columns = [pl.Series(name, values[: len(sums)]) for name, values in (bounds | ends).items()]
    coverage = pl.col("n_covered") / pl.col("n_labels").clip(1)
    summed = sums.with_columns(*columns, scope=pl.lit(scope), coverage=coverage)
    summed = _widened(summed, level)
    return summed.fill_nan(None).select(PRECISION_SCHEMA.names()).cast(PRECISION_SCHEMA)


def _widened(summed: pl.DataFrame, level: float) -> pl.DataFrame:
    """Widen intervals to Wilson's where some cells were not heard at all.

    A cell of one label, heard, is certain; of its neighbours it says no more than one answer can.
    """
    n = summed["n_judged"].to_numpy()
    low, _ = wilson_interval(summed["n_present"].to_numpy(), n, level)
    _, high = wilson_interval((summed["n_present"] + summed["n_unsure"]).to_numpy(), n, level)
    partly = pl.when(pl.col("coverage") < 1)
    return summed.with_columns(
        low=partly.then(pl.min_horizontal("low", pl.Series(low))).otherwise("low"),
        high=partly.then(pl.max_horizontal("high", pl.Series(high))).otherwise("high"),
    )


def controls(queue: QueueSnapshot, judgements: pl.DataFrame) -> pl.DataFrame:
    """Tell how each rater did on the controls of each block.

    An explicit positive is passed by ``present`` and failed by ``not_present``, a negative the
    other way round; a repeat is failed by the opposite of the rater's own first answer. Unsure
    neither passes nor fails. Columns: rater, block, class_id, n_passed, n_failed, n_undecided,
    is_failed (a control failed: the block is marked, its answers are kept). Blocks in which the
    rater has answered no control have no row.
    """
    answers = judgements.filter(pl.col("answer") != "cannot_play").select("rater", "item", "answer")
    items = queue.items.filter(pl.col("kind").is_in(CONTROLS))
    answered = items.join(answers, on="item")
    first = answers.rename({"item": "repeats", "answer": "first_answer"})
    answered = answered.join(first, on=["rater", "repeats"], how="left")
    expected = (
        pl.when(pl.col("kind") == "positive")
        .then(pl.lit("present"))
        .when(pl.col("kind") == "negative")
        .then(pl.lit("not_present"))
        .otherwise("first_answer")
    )
    decided = pl.col("answer").is_in(DECIDED[:2]) & expected.is_in(DECIDED[:2])
    outcome = pl.when(decided.fill_null(value=False)).then(pl.col("answer") == expected)
    return (
        answered.with_columns(passed=outcome)
        .group_by("rater", "block", "class_id")
        .agg(
            n_passed=pl.col("passed").sum().cast(pl.Int64),
            n_failed=(~pl.col("passed")).sum().cast(pl.Int64),
            n_undecided=pl.col("passed").null_count().cast(pl.Int64),
        )
        .with_columns(is_failed=pl.col("n_failed") > 0)
        .sort("rater", "block")
    )


def without_failed_blocks(queue: QueueSnapshot, judgements: pl.DataFrame) -> pl.DataFrame:
    """Leave out what raters said in blocks in which they failed a control."""
    failed = controls(queue, judgements).filter("is_failed").select("rater", "block")
    items = queue.items.select("item", "block").join(failed, on="block").select("rater", "item")
    return judgements.join(items, on=["rater", "item"], how="anti", maintain_order="left")


@dataclass(frozen=True)
class Agreement:
    """How often two series of answers to the same items agree.

    ``confusion`` int64 [3, 3] counts the first series' answers (rows) against the second's, in the
    order of DECIDED. ``kind`` is ``raters``, or ``repeats`` of one rater's own items.
    """

    kind: Literal["raters", "repeats"]
    first: str
    second: str
    confusion: NDArray[np.int64]

    @property
    def n_items(self) -> int:
        """Items that both series answered."""
        return int(self.confusion.sum())

    @property
    def raw(self) -> float:
        """The share of items answered alike; NaN without items."""
        return float(np.trace(self.confusion) / self.n_items) if self.n_items else np.nan

    @property
    def no_kappa(self) -> str:
        """Why there is no kappa, in words; empty where there is one."""
        if self.n_items < _LEAST_FOR_KAPPA:
            return "too few for a kappa"
        (said,) = np.nonzero(self.confusion.sum(axis=0) + self.confusion.sum(axis=1))
        if len(said) < 2:
            return f"no kappa: every answer was {DECIDED[said[0]].replace('_', ' ')}"
        return ""

    @property
    def kappa(self) -> float:
        """Cohen's kappa: (raw - by chance) / (1 - by chance); NaN where ``no_kappa`` says why."""
        if self.no_kappa:
            return np.nan
        shares = self.confusion / self.n_items
        by_chance = float(shares.sum(axis=1) @ shares.sum(axis=0))
        return (self.raw - by_chance) / (1 - by_chance)


def agreement(queue: QueueSnapshot, judgements: pl.DataFrame) -> list[Agreement]:
    """Compare every two raters on the items that both answered, and raters with themselves.

    Sounds that could not be played are left out; so are pairs without a common item.
    """
    answers = judgements.filter(pl.col("answer").is_in(DECIDED)).select("rater", "item", "answer")
    original = queue.items.filter(pl.col("kind") != "repeat").select("item")
    own = {
        str(rater): part
        for (rater,), part in answers.join(original, on="item", how="semi").group_by("rater")
    }
    found = [
        Agreement("raters", first, second, _confusion(own[first], own[second]))
        for first, second in itertools.combinations(sorted(own), 2)
    ]
    repeats = queue.items.filter(pl.col("kind") == "repeat").select("item", "repeats")
    again = answers.join(repeats, on="item").select("rater", "answer", item="repeats")
    for rater in sorted(again["rater"].unique()):
        pair = (part.filter(pl.col("rater") == rater) for part in (answers, again))
        found.append(Agreement("repeats", rater, rater, _confusion(*pair)))
    return [one for one in found if one.n_items]


def _confusion(first: pl.DataFrame, second: pl.DataFrame) -> NDArray[np.int64]:
    both = first.join(second, on="item", suffix="_again")
    places = {answer: place for place, answer in enumerate(DECIDED)}
    confusion = np.zeros((len(DECIDED), len(DECIDED)), np.int64)
    rows, columns = (
        both[name].replace_strict(places, return_dtype=pl.Int64).to_numpy()
        for name in ("answer", "answer_again")
    )
    np.add.at(confusion, (rows, columns), 1)
    return confusion
