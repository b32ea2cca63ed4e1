"""What a learning queue is drawn from, by names: candidates, known labels as controls, flags."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.datasets import PAIR
from earmark.flags import Answers, count_missing
from earmark.labels import LabelSet, Ontology
from earmark.review.queues.candidates import Candidates, Ints, find_candidates
from earmark.review.queues.drawn import DrawnBlocks, as_items
from earmark.review.queues.known import with_known_labels
from earmark.review.queues.measuring import chosen_columns, known_labels
from earmark.review.queues.portions import Portion
from earmark.review.queues.queue import QUEUE_SCHEMA, Queue, item_id
from earmark.review.queues.strata import SIZE_SCHEMA, Orders
from earmark.runs import Aim, ReviewParams
from earmark.scores import ScoreMatrix, ScoresLike, open_scores

WHOLE_BAND = (0.0, 100.0)
"""Items of a learning queue belong to no band between operating points."""

MOST_CONTROLS = 20
"""Known labels of a class and kind that are kept to test raters."""

RARE_POWER = 0.5
"""How much more a find is worth in a rare class to who trains: by this power of its labels."""

CONTROL_SCHEMA = pl.Schema(
    {"class_id": pl.String(), "kind": pl.String(), "clip_id": pl.String(), "logit": pl.Float32()}
)


@dataclass(frozen=True, eq=False)
class Population:
    """The labels that may be drawn; ``names`` [label] has their clip_id and class_id.

    ``controls`` (CONTROL_SCHEMA) are explicit labels in a fixed random order, ``flags`` the places
    of candidates that `earmark flag` wrote.
    """

    candidates: Candidates
    names: pl.DataFrame
    controls: pl.DataFrame
    flags: Ints
    aim: Aim
    digest: str
    population: str
    explicit: Callable[[], pl.DataFrame]
    """Returns the explicit labels: clip_id, class_id, present."""

    def with_flags(self, flags: pl.DataFrame | None) -> Population:
        """Return it with some labels (clip_id, class_id) as the flags; None leaves none."""
        return self if flags is None else replace(self, flags=self.places(flags))

    def places(self, labels: pl.DataFrame) -> Ints:
        """Return the places of those of some labels (clip_id, class_id) that are candidates."""
        found = labels.select(PAIR).join(self._numbered, on=PAIR, maintain_order="left")
        return found["label"].to_numpy()

    def with_places(self, labels: pl.DataFrame) -> pl.DataFrame:
        """Return those of some labels that are candidates, with their places as ``label``."""
        return labels.join(self._numbered, on=PAIR, maintain_order="left")

    @cached_property
    def _numbered(self) -> pl.DataFrame:
        return self.names.with_columns(label=pl.int_range(pl.len(), dtype=pl.Int64))

    def is_of(self, class_ids: Collection[str]) -> NDArray[np.bool_]:
        """Tell which candidates [label] are of some classes."""
        return self.names["class_id"].is_in(list(class_ids)).to_numpy()

    @cached_property
    def class_ids(self) -> dict[int, str]:
        """The classes with candidates, by their numbers in the dataset."""
        columns, first = np.unique(self.candidates.columns, return_index=True)
        return dict(zip(columns.tolist(), self.names["class_id"].gather(first), strict=True))

    def items(self, portion: Portion, chances: NDArray[np.floating]) -> pl.DataFrame:
        """Return the labels of a portion as items of a queue."""
        own, places = self.candidates, portion.places
        low, high = WHOLE_BAND
        names = self.names[places]
        found = names.with_columns(
            item=pl.Series([item_id(*pair) for pair in names.iter_rows()], dtype=pl.String),
            kind=pl.Series(np.where(portion.is_sample, "sample", "likely"), dtype=pl.String),
            band_low=pl.lit(low),
            band_high=pl.lit(high),
            logit=pl.Series(own.logits[places]),
            place=pl.int_range(pl.len()),
            stratum=pl.Series(own.strata[places]),
            probability=pl.Series(np.where(portion.is_sample, self._probability(portion), 1.0)),
            chance=pl.Series(chances[places]),
        )
        return as_items(found)

    def with_controls(
        self, items: pl.DataFrame, number: int, used: Sequence[pl.Series], params: ReviewParams
    ) -> pl.DataFrame:
        """Shuffle each class's run, and put controls into the longest: known labels and a repeat.

        A repeat stands at the end of the run that has its first asking.
        """
        rng = np.random.default_rng([params.seed, number])
        runs = [part for _, part in items.group_by("class_id", maintain_order=True)]
        longest = max(range(len(runs)), key=lambda place: len(runs[place]))
        n_controls = min(params.n_controls, len(items) // 4)
        known, n_repeats = self._known(runs[longest]["class_id"][0], n_controls, number, used)
        runs[longest] = pl.concat([runs[longest], known])
        runs = [run[rng.permutation(len(run))] for run in runs]
        again = runs[longest].filter(pl.col("kind").is_in(["likely", "sample"]))
        again = again.head(max(len(again) - 3, 0)).head(n_repeats)
        runs[longest] = pl.concat([runs[longest], _repeated(again)])
        ordered = pl.concat(runs)
        return ordered.with_columns(place=pl.int_range(pl.len()).cast(pl.Int64))

    def with_known(
        self, items: pl.DataFrame, number: int, used: Sequence[pl.Series], params: ReviewParams
    ) -> pl.DataFrame:
        """Let some clips of a block ask about a known label, as many as the share of controls."""
        n_clips = items["clip_id"].n_unique()
        n_known = math.ceil(n_clips * params.control_share / (1 - params.control_share))
        turns = (number * n_known, (number + 1) * n_known)
        rng = np.random.default_rng([params.seed, number])
        return with_known_labels(items, self._explicit, set().union(*used), turns, rng)

    @cached_property
    def _explicit(self) -> pl.DataFrame:
        classes = self.names.select("class_id").unique()
        return self.explicit().join(classes, on="class_id", how="semi")

    def queue(self, blocks: Sequence[pl.DataFrame], drawn: DrawnBlocks) -> Queue:
        """Return what was drawn as a queue; labels that raters added stand at their block's end."""
        items = pl.concat([QUEUE_SCHEMA.to_frame(), *blocks, drawn.added()])
        return self.as_queue(items.sort("block", "place"))

    def as_queue(self, items: pl.DataFrame) -> Queue:
        """Return items as a queue of this population."""
        low, high = WHOLE_BAND
        counts = items.filter(pl.col("band_high") == high).group_by("class_id").len("n_labels")
        sizes = counts.sort("class_id").select(
            "class_id",
            band_low=pl.lit(low),
            band_high=pl.lit(high),
            is_flagged=pl.lit(value=True),
            n_labels=pl.col("n_labels").cast(pl.Int64),
        )
        return Queue(items, sizes.cast(SIZE_SCHEMA), self.aim, self.population, self.digest)

    def _known(
        self, class_id: str, n_controls: int, number: int, used: Sequence[pl.Series]
    ) -> tuple[pl.DataFrame, int]:
        """Return explicit labels of a class that were not used yet, and how many repeats to add.

        Kinds take turns from block to block.
        """
        asked = set().union(*(set(one) for one in used))
        own = self.controls.filter(class_id=class_id)
        own = own.filter([item_id(clip, class_id) not in asked for clip in own["clip_id"]])
        kinds = ["positive", "negative", "repeat"]
        wanted = [kinds[(number * n_controls + slot) % len(kinds)] for slot in range(n_controls)]
        parts = [own.filter(kind=kind).head(wanted.count(kind)) for kind in kinds[:2]]
        chosen = pl.concat(parts)
        names = [item_id(clip, class_id) for clip in chosen["clip_id"]]
        known = chosen.with_columns(item=pl.Series(names, dtype=pl.String))
        return as_items(known), n_controls - len(chosen)

    def _probability(self, portion: Portion) -> NDArray[np.float64]:
        """Return with which probability a label of its stratum is in the sample by now."""
        own = self.candidates
        strata = own.strata[own.sample[: portion.n_turns]]
        passed = np.bincount(strata, minlength=len(own.stratum_sizes))
        return np.asarray((passed / own.stratum_sizes)[own.strata[portion.places]])


def find_population(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    ontology: Ontology,
    params: ReviewParams,
    answers: Answers | None = None,
) -> Population:
    """Find what a queue that grows is drawn from.

    ``logits`` [clip, class] belong to ``labels``, clip by clip. ``answers`` that were given before
    are learnt from, and not asked for again; they change nothing else.
    """
    scores = open_scores(logits, labels)
    columns = chosen_columns(labels, scores, ontology, params)
    chances = count_missing(labels, scores, ontology=ontology).chances
    worth: NDArray[np.float64] = np.ones(labels.n_classes)
    if params.aim == "train":
        worth = np.asarray((labels.n_positives + 1.0) ** -RARE_POWER, np.float64)
    candidates = find_candidates(labels, chances, columns, worth, params.seed, answers)
    class_ids = pl.Series(labels.class_ids, dtype=pl.String)
    names = {
        "clip_id": labels.clip_ids.gather(candidates.rows),
        "class_id": class_ids.gather(candidates.columns),
    }
    orders = Orders.of(labels, columns, params.seed)
    known = known_labels(labels, scores, columns, orders, MOST_CONTROLS)
    known = known.sort("chosen", "kind", "number")
    controls = pl.DataFrame(
        {
            "class_id": class_ids.gather(columns[known["chosen"].to_numpy()]),
            "kind": known["kind"],
            "clip_id": labels.clip_ids.gather(known["row"]),
            "logit": known["logit"],
        }
    )
    return Population(
        candidates,
        pl.DataFrame(names),
        controls.cast(CONTROL_SCHEMA),
        candidates.sample[:0],
        params.aim,
        "",
        "",
        labels.rows,
    )


def _repeated(items: pl.DataFrame) -> pl.DataFrame:
    """Return items to be asked about again, without a word that they are."""
    pairs = items.select("clip_id", "class_id").rows()
    names = pl.Series([item_id(*pair, is_repeat=True) for pair in pairs], dtype=pl.String)
    kept = items.select("clip_id", "class_id", "logit", repeats="item")
    return as_items(kept.with_columns(item=names, kind=pl.lit("repeat")))
