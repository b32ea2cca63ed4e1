"""Several raters of the same labels: how good each is, what they make of a label, who decides.

Every rater has one table of answers by truth for all classes, and every class its own share of
labels that are there (:mod:`earmark.metrics.dawid_skene`). A rater gives some dozens of answers on
a class, too few for tables by class; how common a class is differs far more than how well it is
heard. Explicit labels, which raters hear as controls, and what adjudicators said are nearly known.

Labels about which raters are at odds make a queue of their own. Whoever hears it decides: the
items have names of their own (``ADJUDICATED``), by which answers are told from votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import logit

from earmark.config import PAPER_DISCARD_PERCENTS
from earmark.datasets import PAIR
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.metrics import NO_ANSWER, UNSURE, Votes, Weighed, weigh, wilson_interval
from earmark.review.judgements import ADJUDICATED, DECIDED, votes_of
from earmark.review.queue_items import QUEUE_SCHEMA, QueueSnapshot, item_id
from earmark.review.random_queue import Cells, ranks
from earmark.scores import ScoreMatrix, ScoresLike, find_unscored, open_scores

LEVEL_OF_RATERS = 0.9
"""Of the intervals of raters."""

TRUST = 0.95
"""The chance that an explicit label, or what an adjudicator said, is true."""

UNDECIDED = (0.1, 0.9)
"""Chances between which raters who are at odds have not decided."""

N_LEVELS = 4
"""Levels of the teacher's vote, each with as many labels as any other."""

_LEAST_CHANCE = 1e-6

RATER_SCHEMA = pl.Schema(
    {
        "rater": pl.String(),
        "n_labels": pl.Int64(),
        "n_compared": pl.Int64(),
        "n_known": pl.Int64(),
        "alike": pl.Float64(),
        **{
            f"{name}{end}": pl.Float64()
            for name in ("sensitivity", "specificity", "unsure")
            for end in ("", "_low", "_high")
        },
        "doubt": pl.String(),
    }
)

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class WeighedRaters:
    """What is known of labels and raters by all answers together.

    ``labels`` has a row for each label that somebody heard:

    - clip_id, class_id
    - chance: of being present, by all raters and by what is known of the label
    - n_raters, n_present, n_not_present, n_unsure: votes, adjudicators' not counted
    - explicit: whether the dataset says present; null where nobody had been asked
    - ruling: what adjudicators said; null where none did
    - is_disputed: whether an adjudicator should hear it

    ``raters`` has a row for each rater, with 90 % intervals (``_low``, ``_high``):

    - n_labels (votes), n_compared (decided votes on labels of which another rater or a control
      tells the truth), n_known (of them controls and labels that were adjudicated)
    - alike: share of votes that agree with another's on the same label
    - sensitivity, specificity: share of decided votes that are right, where the sound is there and
      where it is not; null where nothing was compared
    - unsure: share of votes that are unsure, own contradictions among them
    - doubt: why little can be said, in words; empty where nothing is in the way

    ``teacher``, where it was asked, has a row for each level of its vote: level, n_labels, odds (by
    which its vote multiplies the odds of a label), odds_low, odds_high.
    """

    labels: pl.DataFrame
    raters: pl.DataFrame
    teacher: pl.DataFrame | None = None

    @property
    def disputed(self) -> pl.DataFrame:
        """The labels that an adjudicator should hear, the most doubtful first."""
        doubt = (pl.col("chance") - 0.5).abs()
        return self.labels.filter("is_disputed").sort(doubt, *PAIR)


def weigh_answers(
    current: pl.DataFrame,
    explicit: pl.DataFrame | None = None,
    teacher: pl.DataFrame | None = None,
    *,
    seed: int = 0,
) -> WeighedRaters:
    """Weigh raters' answers: the chance of every label heard, and how good every rater is.

    ``current`` are a store's current judgements. ``explicit`` (clip_id, class_id, present) are the
    labels that the dataset has. ``teacher`` (clip_id, class_id, chance; null and NaN: unknown) adds
    the teacher's vote on labels that nobody had been asked about. It learns from the raters what
    its vote is worth, multiplies the odds of a label by nine at most, and says nothing of raters.
    """
    heard = current.filter(pl.col("answer").is_in(DECIDED))
    is_ruling = pl.col("item").str.ends_with(ADJUDICATED)
    votes = votes_of(heard.filter(~is_ruling), PAIR)
    if votes.is_empty():
        raise EarmarkError("no rater has answered yet, so there is nothing to weigh")
    labels = _labels(votes, heard.filter(is_ruling), explicit)
    names = votes["rater"].unique().sort()
    marks = _marks(labels, teacher)
    said = Votes(
        _answers(labels, votes, names),
        labels["class_id"].rank("dense").cast(pl.Int64).to_numpy() - 1,
        labels["known"].fill_null(np.nan).to_numpy(),
        marks,
    )
    weighed = weigh(said, seed)
    chances = labels.with_columns(chance=pl.Series(weighed.chances))
    by_teacher = None if teacher is None else _teacher_table(weighed, marks)
    return WeighedRaters(_with_disputes(chances), _raters(names, said, weighed), by_teacher)


def _labels(
    votes: pl.DataFrame, rulings: pl.DataFrame, explicit: pl.DataFrame | None
) -> pl.DataFrame:
    """Return the labels heard, votes counted, with what is ``known`` of them beside votes."""
    answer = pl.col("answer")
    counts = votes.group_by(PAIR).agg(
        n_raters=pl.len().cast(pl.Int64),
        **{f"n_{name}": (answer == name).sum().cast(pl.Int64) for name in DECIDED},
    )
    decided = votes_of(rulings.with_columns(rater=pl.lit("all")), PAIR)
    labels = counts.join(decided.select(*PAIR, ruling="answer"), on=PAIR, how="left")
    there = pl.DataFrame(schema={**dict.fromkeys(PAIR, pl.String), "present": pl.Boolean})
    said = (there if explicit is None else explicit).select(*PAIR, explicit="present")
    says = {"present": True, "not_present": False}
    ruled = pl.col("ruling").replace_strict(says, default=None, return_dtype=pl.Boolean)
    truth = pl.coalesce(ruled, "explicit")
    known = pl.when(truth).then(TRUST).when(~truth).then(1 - TRUST)
    return labels.join(said, on=PAIR, how="left").with_columns(known=known).sort(PAIR)


def _answers(labels: pl.DataFrame, votes: pl.DataFrame, names: pl.Series) -> Ints:
    """Return the answers [label, rater] as numbers."""
    rows = votes.join(labels.select(*PAIR).with_row_index("row"), on=PAIR)
    codes = {name: code for code, name in enumerate(DECIDED)}
    answers = np.full((len(labels), len(names)), NO_ANSWER, np.int64)
    columns = names.search_sorted(rows["rater"]).to_numpy()
    answers[rows["row"].to_numpy(), columns] = rows["answer"].replace_strict(codes).to_numpy()
    return answers


def _marks(labels: pl.DataFrame, teacher: pl.DataFrame | None) -> Ints:
    """Return the level of the teacher's vote on each label, -1 without one.

    By log-odds beyond the mean of the class: how common a class is, raters' votes tell already.
    """
    marks = np.full(len(labels), -1, np.int64)
    if teacher is None:
        return marks
    asked = labels.join(teacher.select(*PAIR, "chance"), on=PAIR, how="left", maintain_order="left")
    is_implicit = asked["explicit"].is_null().to_numpy()
    chances = asked["chance"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    odds = logit(np.where(is_implicit, chances, np.nan).clip(_LEAST_CHANCE, 1 - _LEAST_CHANCE))
    by_class = asked.select("class_id", odds=pl.Series(odds).fill_nan(None))
    beyond = odds - by_class.select(pl.col("odds").mean().over("class_id")).to_series().to_numpy()
    is_asked = np.isfinite(beyond)
    if is_asked.any():
        edges = np.quantile(beyond[is_asked], np.arange(1, N_LEVELS) / N_LEVELS)
        marks[is_asked] = np.searchsorted(edges, beyond[is_asked])
    return marks


def _with_disputes(labels: pl.DataFrame) -> pl.DataFrame:
    """Tell which labels are in dispute: nobody decided, or they differ and the chance is open."""
    most = pl.max_horizontal("n_present", "n_not_present")
    is_open = (pl.col("explicit").is_null()) & pl.col("ruling").is_null()
    is_at_odds = (most < pl.col("n_raters")) & pl.col("chance").is_between(*UNDECIDED)
    return labels.select(
        *PAIR,
        "chance",
        "n_raters",
        *(f"n_{name}" for name in DECIDED),
        "explicit",
        "ruling",
        is_disputed=is_open & ((most == 0) | is_at_odds),
    )


def _raters(names: pl.Series, votes: Votes, weighed: Weighed) -> pl.DataFrame:
    """Return what is known of each rater."""
    is_heard, is_unsure = votes.answers != NO_ANSWER, votes.answers == UNSURE
    compared = votes.is_compared & ~is_unsure
    n_labels, n_compared = is_heard.sum(axis=0), compared.sum(axis=0)
    n_unsure = is_unsure.sum(axis=0)
    low, high = wilson_interval(n_unsure, n_labels, LEVEL_OF_RATERS)
    columns = {
        "rater": names,
        "n_labels": n_labels,
        "n_compared": n_compared,
        "n_known": (compared & np.isfinite(votes.known)[:, None]).sum(axis=0),
        "alike": _alike_shares(votes.answers),
        "unsure": n_unsure / n_labels,
        "unsure_low": low,
        "unsure_high": high,
        "doubt": [
            _doubt(answers, n) for answers, n in zip(votes.answers.T, n_compared, strict=True)
        ],
    }
    for truth, name in enumerate(("sensitivity", "specificity")):
        tables = weighed.tables[:, :, truth]  # [draw, rater, answer]
        right = tables[:, :, truth] / tables[:, :, :UNSURE].sum(axis=-1)
        for end, values in _interval(right).items():
            columns[name + end] = np.where(n_compared > 0, values, np.nan)
    table = pl.DataFrame({name: columns[name] for name in RATER_SCHEMA})
    return table.cast(RATER_SCHEMA).fill_nan(None)


def _interval(draws: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return the mean of draws [draw, ...] and the ends between which most of them lie."""
    outside = (1 - LEVEL_OF_RATERS) / 2
    low, high = np.quantile(draws, (outside, 1 - outside), axis=0)
    return {"": draws.mean(axis=0), "_low": low, "_high": high}


def _alike_shares(answers: Ints) -> NDArray[np.float64]:
    """Return for each rater the share of votes alike, over labels and other raters; NaN: none."""
    is_heard = (answers != NO_ANSWER).astype(np.int64)
    said = [(answers == code).astype(np.int64) for code in range(UNSURE + 1)]
    n_shared, n_alike = is_heard.T @ is_heard, sum(one.T @ one for one in said)
    n_all, n_same = (n.sum(axis=1) - np.diag(n) for n in (n_shared, np.asarray(n_alike)))
    return np.where(n_all > 0, n_same / np.maximum(n_all, 1), np.nan)


def _doubt(answers: Ints, n_compared: int) -> str:
    """Say why little is known of a rater."""
    said = np.unique(answers[answers != NO_ANSWER])
    if len(said) == 1:
        return f"every answer is {DECIDED[said[0]].replace('_', ' ')}"
    return "" if n_compared else "nobody else heard these labels"


def _teacher_table(weighed: Weighed, marks: Ints) -> pl.DataFrame:
    n_levels = weighed.mark_odds.shape[1]
    n_labels = np.bincount(marks[marks >= 0], minlength=n_levels)
    odds = {f"odds{end}": np.exp(value) for end, value in _interval(weighed.mark_odds).items()}
    return pl.DataFrame({"level": np.arange(n_levels), "n_labels": n_labels, **odds})


def adjudication_queue(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    disputed: pl.DataFrame,
    *,
    flags_per_block: int = 25,
    discard_percents: Sequence[float] = PAPER_DISCARD_PERCENTS,
) -> QueueSnapshot:
    """Make the queue of labels that an adjudicator hears, in blocks of a class.

    ``logits`` [clip, class] belong to ``labels``, clip by clip; ``disputed`` (clip_id, class_id,
    chance) has the most doubtful labels first. Labels of clips or classes without scores are left
    out. There are no controls, and the queue is no sample of anything.
    """
    scores = open_scores(logits, labels)
    items = _placed(labels, scores, disputed)
    if items.is_empty():
        raise EarmarkError(f"none of the {len(disputed):,} labels in dispute has a score")
    columns = items["column"].unique().sort().to_numpy()
    cells = Cells.find(labels, scores, columns, discard_percents)
    chosen = np.searchsorted(columns, items["column"].to_numpy())
    n_exceeded = (items["logit"].to_numpy() > cells.edges[:, chosen]).sum(axis=0)
    bands = len(cells.percents) - n_exceeded
    lows, highs = (np.array(ends)[bands] for ends in zip(*cells.bounds, strict=True))
    found = {"chosen": chosen, "band_low": lows, "band_high": highs, "is_flagged": n_exceeded > 0}
    items = items.with_columns(**{name: pl.Series(values) for name, values in found.items()})
    flagged = items.filter("is_flagged")
    flagged = flagged.with_columns(rank=pl.Series(ranks(labels, scores, cells, flagged)))
    items = items.join(flagged.select(*PAIR, "rank"), on=PAIR, how="left", maintain_order="left")
    sizes = cells.table(labels.class_ids).with_columns(is_flagged=pl.lit(value=True))
    return QueueSnapshot(_in_blocks(items, flags_per_block), sizes, "adjudicate")


def _placed(labels: LabelSet, scores: ScoreMatrix, disputed: pl.DataFrame) -> pl.DataFrame:
    """Return disputed labels that have scores, in their order, with row, column and logit."""
    classes = pl.DataFrame({"class_id": labels.class_ids, "column": range(labels.n_classes)})
    classes = classes.filter(~pl.Series(find_unscored(scores)))
    clips = pl.DataFrame({"clip_id": labels.clip_ids, "row": range(labels.n_clips)})
    placed = disputed.select(*PAIR, "chance").join(clips, on="clip_id", maintain_order="left")
    placed = placed.join(classes, on="class_id", maintain_order="left")
    rows, columns = (placed[name].to_numpy().astype(np.int64) for name in ("row", "column"))
    logits = scores.sample(rows)[np.arange(len(rows)), columns]
    return placed.with_columns(logit=pl.Series(logits))


def _in_blocks(items: pl.DataFrame, flags_per_block: int) -> pl.DataFrame:
    """Cut the labels of each class into blocks; the block of the most doubtful comes first."""
    names = [item_id(*pair) + ADJUDICATED for pair in items.select(PAIR).iter_rows()]
    numbered = items.with_columns(
        item=pl.Series(names, dtype=pl.String),
        number=pl.int_range(pl.len()),
        part=pl.int_range(pl.len()).over("class_id") // flags_per_block,
    )
    block = ["class_id", "part"]
    made = numbered.with_columns(
        kind=pl.lit("flag"),
        block=pl.col("number").min().over(block).rank("dense") - 1,
        place=pl.int_range(pl.len()).over(block),
        is_shared=pl.lit(value=False),
        repeats=pl.lit(None, pl.String),
        probability=pl.lit(None, pl.Float64),
    )
    return made.select(QUEUE_SCHEMA.names()).cast(QUEUE_SCHEMA).sort("block", "place")
