"""The labels that a queue that learns may ask about, and how a block is chosen from them.

*Candidates* are the labels with the highest chances before anyone has answered, with the clues
from which chances are learnt anew while people answer. The *sample* is one fixed random sequence:
the first chances cut all implicit labels into strata (the likeliest thousandth, and eleven further
strata, each larger than the last), and strata take turns. Candidates and sample depend on labels,
scores and seed, never on answers. So the first n turns are a stratified random sample, whatever
the model chooses besides.

A *selection of labels* fills a block. By class, it holds runs of one class each: the classes with
most to find among the likeliest labels. By clip, it holds the clips with most missing labels to be
expected among the few that are offered for each. The sample's labels stand among the others and
look the same.

A *population* has the candidates with their names and the controls that test raters. By clip, a
known label takes the place of the clip's least likely label, so every clip has as many rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from earmark.config import Aim, ReviewParams
from earmark.datasets import PAIR
from earmark.errors import EarmarkError
from earmark.flags import (
    LOWEST,
    STEP,
    Answers,
    Chances,
    Model,
    Taught,
    clues_of,
    count_missing,
    find_taught,
)
from earmark.labels import LabelSet, Ontology
from earmark.review.queue_items import QUEUE_SCHEMA, DrawnBlocks, QueueSnapshot, as_items, item_id
from earmark.review.random_queue import SIZE_SCHEMA, Keys, Orders, chosen_columns, known_labels
from earmark.scores import ScoreMatrix, ScoresLike, open_scores
from earmark.storage import open_archive, write_aside

MOST_CANDIDATES = 500_000
"""Labels whose chances are kept up to date."""

N_STRATA, FIRST_STRATUM = 12, 1e-3
"""Strata of the sample, and the share of all labels in the first one."""

TURNS_POWER = 0.25
"""Turns of a stratum go by this power of its size: most labels are in strata where few are missing,
and what is wrong with the flags shows in the small ones."""

MOST_TURNS = 500
"""Labels of a stratum that the sample holds; all together enough for 50,000 answers."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class NoChances(EarmarkError):  # noqa: N818 - named for what it is
    """No class has chances to go by."""


@dataclass(frozen=True)
class Candidates:
    """Labels to ask about; label i is clip ``rows[i]`` and class ``columns[i]`` of the dataset.

    ``clues`` [label, clue] and ``taught`` are what chances are learnt from. ``strata`` [label] are
    numbers from 0, the likeliest first, and ``stratum_sizes`` counts all labels of each, candidates
    or not. ``sample`` [turn] are labels in the fixed random sequence.
    """

    rows: Ints
    columns: Ints
    logits: Floats
    clues: Floats
    strata: Ints
    stratum_sizes: Ints
    sample: Ints
    worth: NDArray[np.float64]
    """What a find of each class [class of the dataset] is worth; 0 for those not asked about."""
    taught: Taught

    @property
    def n_classes(self) -> int:
        """Classes of the dataset."""
        return len(self.worth)

    def __len__(self) -> int:
        return len(self.rows)

    def chances(self, model: Model | None) -> Floats:
        """Return the chances [label] by a model, or before anyone has listened."""
        if model is None:
            return np.asarray(expit(self.clues[:, 0]))
        return np.asarray(expit(model.log_odds_of(self.clues, self.columns)))

    @property
    def n_labels(self) -> int:
        """All labels that the sample stands for."""
        return int(self.stratum_sizes.sum())

    @cached_property
    def is_whole(self) -> NDArray[np.bool_]:
        """Whether every label of a stratum [stratum] is here."""
        found = np.bincount(self.strata, minlength=len(self.stratum_sizes))
        return np.asarray(found >= self.stratum_sizes)

    @cached_property
    def stratum_log_odds(self) -> NDArray[np.float64]:
        """Log-odds of the mean first chance of a stratum's labels here [stratum]."""
        n_strata = len(self.stratum_sizes)
        chances = self.chances(None).astype(np.float64)
        sums = np.bincount(self.strata, chances, n_strata)
        means = sums / np.maximum(np.bincount(self.strata, minlength=n_strata), 1)
        return np.asarray(logit(means.clip(1e-9, 1 - 1e-9)))

    def write(self, path: Path) -> None:
        """Write all of it as one ``.npz`` file."""
        own = {name: getattr(self, name) for name in _ARRAYS}
        own |= {"taught_clues": self.taught.clues, "taught_log_odds": self.taught.log_odds}
        with write_aside(path) as aside, aside.open("wb") as file:
            np.savez(file, **own)

    @classmethod
    def read(cls, path: Path) -> Candidates:
        """Read what :meth:`write` wrote."""
        with open_archive(path) as kept:
            own = {name: kept[name].read() for name in _ARRAYS}
            taught = Taught(kept["taught_clues"].read(), kept["taught_log_odds"].read())
            return cls(**own, taught=taught)


_ARRAYS = ("rows", "columns", "logits", "clues", "strata", "stratum_sizes", "sample", "worth")


def find_candidates(
    labels: LabelSet,
    chances: Chances,
    columns: Ints,
    worth: NDArray[np.float64],
    seed: int,
    answers: Answers | None = None,
    n_most: int = MOST_CANDIDATES,
) -> Candidates:
    """Find the candidates among some classes, and draw the sample.

    ``chances`` are those before anyone has listened, and ``worth`` [class] is what a find is worth.
    Labels with ``answers`` are candidates too, so that chances learn from them. Two passes over the
    scores.
    """
    is_chosen = np.zeros(labels.n_classes, bool)
    is_chosen[columns] = True
    is_chosen &= chances.clues.by_score.has_chances
    counts = chances.sums.counts[is_chosen].sum(axis=0)
    if not counts.sum():
        raise NoChances("the scores know too little of the labels to say which are likely")
    edges, sizes = _cut(counts)
    limit = _edge_of_best(counts, n_most)
    shares = np.minimum((MOST_TURNS + 8 * np.sqrt(MOST_TURNS)) / sizes, 1)
    orders = Orders.of(labels, np.arange(labels.n_classes), seed)
    limits = np.where(shares < 1, shares * 2.0**64, 2.0**64)

    def is_wanted(rows: slice, log_odds: Floats) -> NDArray[np.bool_]:
        lots = orders.of_clips(rows).astype(np.float64)
        is_drawn = lots <= limits[_strata_of(log_odds, edges)]
        return np.asarray(((log_odds >= limit) | is_drawn) & is_chosen & np.isfinite(log_odds))

    listed = chances.where(is_wanted)
    rows, places = listed.rows, listed.columns.astype(np.int64)
    if answers is not None:
        rows, places = _with_answered(rows, places, answers.select(is_chosen[answers.columns]))
    clues = clues_of(chances.clues, chances.scores, rows, places)
    order = np.lexsort((places, rows, -clues[:, 0]))
    rows, places, clues = rows[order], places[order], clues[order]
    strata = _strata_of(clues[:, 0], edges)
    return Candidates(
        rows,
        places,
        np.asarray(clues[:, 1]),
        clues,
        strata,
        sizes,
        _sequence(strata, orders.of_pairs(rows, places), sizes),
        np.where(is_chosen, worth, 0.0),
        find_taught(chances.clues, chances.scores),
    )


def _with_answered(rows: Ints, columns: Ints, answers: Answers) -> tuple[Ints, Ints]:
    """Add the labels that were heard before to some labels."""
    both = np.concatenate([rows, answers.rows]), np.concatenate([columns, answers.columns])
    _, first = np.unique(np.stack(both), axis=1, return_index=True)
    return both[0][first], both[1][first]


def _cut(counts: Ints) -> tuple[NDArray[np.float64], Ints]:
    """Return the lowest log-odds of every stratum, descending, and the strata's sizes.

    ``counts`` [step] are of labels by log-odds; a step is never cut.
    """
    n_above = counts[::-1].cumsum()
    n_labels = int(n_above[-1])
    wanted = np.geomspace(FIRST_STRATUM * n_labels, n_labels, N_STRATA)
    ends = np.unique(np.searchsorted(n_above, np.ceil(wanted)).clip(0, len(counts) - 1))
    sizes = np.diff(n_above[ends], prepend=0)
    edges = LOWEST + STEP * (len(counts) - 1 - ends)
    edges[-1] = -np.inf
    return edges[sizes > 0].astype(np.float64), sizes[sizes > 0].astype(np.int64)


def _strata_of(log_odds: Floats, edges: NDArray[np.float64]) -> Ints:
    """Return the stratum of each of some log-odds; unknown ones are in the last."""
    n_reached = np.searchsorted(edges[::-1], np.nan_to_num(log_odds, nan=-np.inf), side="right")
    return np.asarray((len(edges) - n_reached).clip(0, len(edges) - 1), np.int64)


def _edge_of_best(counts: Ints, n_most: int) -> float:
    """Return the log-odds that at most so many labels reach; -inf where there are no more."""
    n_above = counts[::-1].cumsum()
    if n_above[-1] <= n_most:
        return -np.inf
    return float(LOWEST + STEP * (len(counts) - int(np.searchsorted(n_above, n_most, "right"))))


def _sequence(strata: Ints, lots: Keys, sizes: Ints) -> Ints:
    """Let strata take turns, each in its random order."""
    order = np.lexsort((lots, strata))
    turns = np.empty(len(order), np.int64)
    starts = np.searchsorted(strata[order], np.arange(len(sizes)))
    turns[order] = np.arange(len(order)) - starts[strata[order]]
    (drawn,) = np.nonzero(turns < np.minimum(MOST_TURNS, sizes)[strata])
    rates = (sizes / sizes.max()) ** TURNS_POWER
    when = (turns[drawn] + 0.5) / rates[strata[drawn]]
    return drawn[np.lexsort((strata[drawn], when))]


LOOK_AHEAD = 2
"""How many times the labels of a block are looked at to find those that share a class."""

Values = NDArray[np.floating]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelSelection:
    """Labels for a block, by their places among the candidates, in the order of asking.

    ``is_sample`` [label] tells those of the sample. ``n_turns`` of the sample have passed, those
    included whose label was heard before.
    """

    places: Ints
    is_sample: Mask
    n_turns: int


def turns_due(share: float, n_drawn: int, n_more: int) -> int:
    """Return how many turns of the sample should have passed once ``n_more`` labels are drawn.

    >>> turns_due(0.12, 0, 25), turns_due(0.12, 25, 25), turns_due(0.12, 50, 25)
    (3, 6, 9)
    """
    return int(np.ceil(share * (n_drawn + n_more) - 1e-9))


def next_by_class(
    candidates: Candidates,
    worth: Values,
    is_open: Mask,
    turns: tuple[int, int],
    n_labels: int,
) -> LabelSelection:
    """Choose labels in runs of one class, the class with most to find first.

    ``worth`` [label] is what finding out is worth, by now; ``is_open`` [label] which were not
    drawn yet. The sample's ``turns`` (from, to) come along.
    """
    sampled, n_turns = _turns(candidates, is_open, turns)
    is_free = is_open.copy()
    is_free[sampled] = False
    n_likely = max(n_labels - len(sampled), 0)
    best = _best(worth, is_free, LOOK_AHEAD * n_likely)
    columns = candidates.columns[best]
    sums = np.bincount(columns, weights=worth[best], minlength=candidates.n_classes)
    order = np.lexsort((-worth[best], columns, -sums[columns]))
    likely = best[order][:n_likely]
    return _in_runs(candidates, likely, sampled, n_turns)


def next_by_clip(
    candidates: Candidates,
    worth: Values,
    is_open: Mask,
    turns: tuple[int, int],
    n_clips: int,
    n_offers: int,
) -> LabelSelection:
    """Choose clips with the most to find, and for each of them the labels to offer.

    Labels of one clip follow each other, the likeliest first.
    """
    sampled, n_turns = _turns(candidates, is_open, turns)
    (free,) = np.nonzero(is_open)
    by_clip = free[np.lexsort((-worth[free], candidates.rows[free]))]
    rows = candidates.rows[by_clip]
    is_first = np.diff(rows, prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    place = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    offered = by_clip[place < n_offers]
    n_rows = int(candidates.rows.max(initial=-1)) + 1
    expected = np.bincount(candidates.rows[offered], worth[offered], n_rows)
    own = list(dict.fromkeys(candidates.rows[sampled].tolist()))
    expected[own] = -1
    n_likely = max(n_clips - len(own), 0)
    best = np.argsort(-expected, kind="stable")[:n_likely]
    clips = own + best[expected[best] > 0].tolist()
    chosen: list[int] = []
    for clip in _spread(clips, len(own)):
        mine = by_clip[slice(*np.searchsorted(rows, (clip, clip + 1)))]
        asked = [label for label in sampled.tolist() if candidates.rows[label] == clip]
        others = [label for label in mine.tolist() if label not in asked]
        both = asked + others[: max(n_offers - len(asked), 0)]
        chosen += sorted(both, key=lambda label: -worth[label])
    places = np.array(chosen, np.int64)
    return LabelSelection(places, np.isin(places, sampled), n_turns)


def next_alike(
    candidates: Candidates, label: int, alike: Values, is_open: Mask, n_labels: int, n_turns: int
) -> LabelSelection:
    """Choose labels of one class whose clips are most like that of a label.

    ``alike`` [label] says how much; NaN leaves a label out. The sample waits.
    """
    is_wanted = is_open & (candidates.columns == candidates.columns[label]) & np.isfinite(alike)
    places = _best(np.nan_to_num(alike, nan=-np.inf), is_wanted, n_labels)
    places = places[np.argsort(-alike[places], kind="stable")]
    return LabelSelection(places, np.zeros(len(places), bool), n_turns)


def _turns(candidates: Candidates, is_open: Mask, turns: tuple[int, int]) -> tuple[Ints, int]:
    """Return the labels of the sample's next turns that were not drawn yet, and the turns passed.

    A turn whose label was drawn before passes: its answer counts, and costs nothing.
    """
    start, end = turns
    passed = candidates.sample[start : max(end, start)]
    return passed[is_open[passed]], start + len(passed)


def _best(worth: Values, is_free: Mask, n_labels: int) -> Ints:
    """Return the labels that are worth most, in no certain order."""
    (free,) = np.nonzero(is_free)
    if len(free) <= n_labels:
        return free
    return free[np.argpartition(-worth[free], n_labels)[:n_labels]]


def _in_runs(candidates: Candidates, likely: Ints, sampled: Ints, n_turns: int) -> LabelSelection:
    """Put labels of one class together: runs in the order of the likely ones, others at the end."""
    both = np.concatenate([likely, sampled])
    columns = candidates.columns[both]
    first = {column: place for place, column in reversed(list(enumerate(columns.tolist())))}
    order = np.argsort([first[column] for column in columns.tolist()], kind="stable")
    places = both[order]
    return LabelSelection(places, np.isin(places, sampled), n_turns)


def _spread(clips: list[int], n_first: int) -> list[int]:
    """Spread the first few evenly among the others."""
    own, others = clips[:n_first], clips[n_first:]
    step = (len(others) + 1) / (len(own) + 1)
    for turn, clip in enumerate(own):
        others.insert(round(step * (turn + 1)) + turn, clip)
    return others


KNOWN_KINDS = ("positive", "negative")
"""The kinds of known labels, which take turns."""


def with_known_labels(
    items: pl.DataFrame,
    explicit: pl.DataFrame,
    used: Collection[str],
    turns: tuple[int, int],
    rng: np.random.Generator,
) -> pl.DataFrame:
    """Let some of a block's clips ask about a label that is known, one each.

    ``explicit`` (clip_id, class_id, present) are labels that may be asked about, and ``used`` the
    items that were asked before. The kinds take turns; ``turns`` are the first and the last but
    one. Positives are taken from clips with several of them while there are any: a rater sees the
    others.
    """
    parts = {str(clip): part for (clip,), part in items.group_by("clip_id", maintain_order=True)}
    own = explicit.filter(pl.col("clip_id").is_in(list(parts)))
    own = own.with_columns(
        kind=pl.when("present").then(pl.lit(KNOWN_KINDS[0])).otherwise(pl.lit(KNOWN_KINDS[1]))
    )
    n_alike = pl.len().over("clip_id", "kind")
    own = own.with_columns(is_alone=(n_alike == 1) & pl.col("present"))
    names = [item_id(*pair) for pair in own.select("clip_id", "class_id").iter_rows()]
    own = own.with_columns(item=pl.Series(names, dtype=pl.String))
    own = own.filter(~pl.col("item").is_in(list(used)))
    own = own[rng.permutation(len(own))].sort("is_alone", maintain_order=True)
    n_most = max((len(part) for part in parts.values()), default=0)
    for turn in range(*turns):
        wanted = own.filter(kind=KNOWN_KINDS[turn % len(KNOWN_KINDS)])
        chosen = (wanted if len(wanted) else own).head(1)
        for clip in chosen["clip_id"]:
            parts[clip] = _asked_too(parts[clip], as_items(chosen), n_most, rng)
            own = own.filter(pl.col("clip_id") != clip)
    ordered = pl.concat(parts.values())
    return ordered.with_columns(place=pl.int_range(pl.len()).cast(pl.Int64))


def _asked_too(
    offered: pl.DataFrame, known: pl.DataFrame, n_most: int, rng: np.random.Generator
) -> pl.DataFrame:
    """Put a known label among a clip's, in place of the least likely one where there are many."""
    likely = offered.filter(kind="likely").sort("chance")
    if len(offered) >= n_most and len(likely):
        offered = offered.filter(pl.col("item") != likely["item"][0])
    place = int(rng.integers(0, len(offered) + 1))
    return pl.concat([offered.head(place), known, offered.slice(place)])


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

    def items(self, selection: LabelSelection, chances: NDArray[np.floating]) -> pl.DataFrame:
        """Return the labels of a selection as items of a queue."""
        own, places = self.candidates, selection.places
        low, high = WHOLE_BAND
        names = self.names[places]
        found = names.with_columns(
            item=pl.Series([item_id(*pair) for pair in names.iter_rows()], dtype=pl.String),
            kind=pl.Series(np.where(selection.is_sample, "sample", "likely"), dtype=pl.String),
            band_low=pl.lit(low),
            band_high=pl.lit(high),
            logit=pl.Series(own.logits[places]),
            place=pl.int_range(pl.len()),
            stratum=pl.Series(own.strata[places]),
            probability=pl.Series(np.where(selection.is_sample, self._probability(selection), 1.0)),
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

    def snapshot(self, blocks: Sequence[pl.DataFrame], drawn: DrawnBlocks) -> QueueSnapshot:
        """Return the items of blocks; labels that raters added stand at their block's end."""
        items = pl.concat([QUEUE_SCHEMA.to_frame(), *blocks, drawn.added()])
        items = items.sort("block", "place")
        low, high = WHOLE_BAND
        counts = items.filter(pl.col("band_high") == high).group_by("class_id").len("n_labels")
        sizes = counts.sort("class_id").select(
            "class_id",
            band_low=pl.lit(low),
            band_high=pl.lit(high),
            is_flagged=pl.lit(value=True),
            n_labels=pl.col("n_labels").cast(pl.Int64),
        )
        return QueueSnapshot(items, sizes.cast(SIZE_SCHEMA), self.aim, self.population, self.digest)

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

    def _probability(self, selection: LabelSelection) -> NDArray[np.float64]:
        """Return with which probability a label of its stratum is in the sample by now."""
        own = self.candidates
        strata = own.strata[own.sample[: selection.n_turns]]
        passed = np.bincount(strata, minlength=len(own.stratum_sizes))
        return np.asarray((passed / own.stratum_sizes)[own.strata[selection.places]])


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
