"""The labels that a queue may ask about, and how a block is chosen from them.

*Candidates* are the implicit labels with their features, from which p_missing is learnt again while
people answer: all of them, or the likeliest and a random part of the others where there are many.
The *sample* is one fixed random sequence, whose first n turns are a random sample with known
probabilities: the higher the uncertainty of a label before anyone has answered, the sooner its turn
(sequential Poisson sampling by Neyman's sizes). Candidates and sample depend on labels, scores and
seed, never on answers.

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
from scipy.special import expit

from earmark.config import Aim, ReviewParams
from earmark.datasets import PAIR
from earmark.errors import EarmarkError
from earmark.flags import (
    Answers,
    GivenModel,
    LikelyLabels,
    Model,
    PMissing,
    allocate,
    gather_evidence,
    sampling_sizes,
)
from earmark.labels import LabelSet, Ontology
from earmark.review.queue_items import QUEUE_SCHEMA, DrawnBlocks, QueueSnapshot, as_items, item_id
from earmark.review.random_queue import SIZE_SCHEMA, Orders, chosen_columns, known_labels
from earmark.scores import ScoreMatrix, ScoresLike, open_scores
from earmark.storage import open_archive, write_aside

MOST_CANDIDATES, N_OTHERS = 500_000, 100_000
"""Labels up to which all are candidates; beyond, as many of the likeliest and some others."""

MOST_TURNS = 50_000
"""Labels of the random sequence."""

LEAST_P = 0.001
"""The lowest p_missing by which the random sample is allocated."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]


class NoChances(EarmarkError):  # noqa: N818 - named for what it is
    """The scores do not know the labels, so there is no p_missing to go by."""


@dataclass(frozen=True)
class Candidates:
    """Labels to ask about; label i is clip ``rows[i]`` and class ``columns[i]`` of the dataset.

    ``features`` [label, feature] are those of :mod:`earmark.flags.p_missing`, and ``given`` is the
    model without answers. Each represents ``weights[i]`` implicit labels: 1, more for a label
    drawn from the unlikely ones, and 0 for one that is here only because it has an answer.
    ``sample`` [turn] are labels in the fixed random sequence. ``worth`` [class of the dataset] is
    what a find is worth; 0 for the classes that are not asked about.
    """

    rows: Ints
    columns: Ints
    features: Floats
    weights: Matrix
    sample: Ints
    worth: Matrix
    given: GivenModel

    @property
    def n_classes(self) -> int:
        """Classes of the dataset."""
        return len(self.worth)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def logits(self) -> Floats:
        """The scores [label]."""
        return np.asarray(self.features[:, 0])

    def p_missing(self, model: Model) -> Floats:
        """Return p_missing [label] by a model."""
        return np.asarray(expit(model.log_odds(self.features, self.columns)))

    @property
    def n_labels(self) -> int:
        """All implicit labels that the sample represents."""
        return round(float(self.weights.sum()))

    @cached_property
    def sizes(self) -> Matrix:
        """Sizes [label] to which the probabilities of the sample are proportional."""
        return self.weights * sampling_sizes(self.p_missing(self.given.model), LEAST_P)

    def probabilities(self, n_turns: int) -> Matrix:
        """Return the probability [label] to be among the first turns of the sample."""
        return allocate(self.sizes, min(n_turns, int((self.sizes > 0).sum())))

    def write(self, path: Path) -> None:
        """Write all of it as one ``.npz`` file."""
        own = {name: getattr(self, name) for name in _ARRAYS}
        models = self.given.model, self.given.most
        own |= {
            "coefficients": [np.append(model.coefficients, model.intercept) for model in models],
            "prior_features": self.given.prior_features,
        }
        with write_aside(path) as aside, aside.open("wb") as file:
            np.savez(file, **own)

    @classmethod
    def read(cls, path: Path) -> Candidates:
        """Read what :meth:`write` wrote."""
        with open_archive(path) as kept:
            own = {name: kept[name].read() for name in _ARRAYS}
            none = np.zeros(len(own["worth"]))
            model, most = (
                Model(coefficients[:-1], float(coefficients[-1]), none, none)
                for coefficients in kept["coefficients"].read()
            )
            return cls(**own, given=GivenModel(model, most, kept["prior_features"].read()))


_ARRAYS = ("rows", "columns", "features", "weights", "sample", "worth")


def find_candidates(
    labels: LabelSet,
    p_missing: PMissing,
    columns: Ints,
    worth: Matrix,
    seed: int,
    answers: Answers | None = None,
    n_most: int = MOST_CANDIDATES,
) -> Candidates:
    """Find the candidates among some classes, and draw the sample.

    ``p_missing`` is that before anyone has listened, and ``worth`` [class] is what a find is worth.
    Labels with ``answers`` are candidates too, so that the model learns from them.
    """
    is_chosen = np.zeros(labels.n_classes, bool)
    is_chosen[columns] = True
    is_chosen &= p_missing.features.has_p_missing
    n_labels = int(labels.n_implicit[is_chosen].sum())
    if not n_labels:
        raise NoChances("no class has scores, positives and implicit labels, so none is likely")
    if n_labels <= n_most:
        every = p_missing.above(-np.inf, classes=is_chosen)
        rows, places, weights = every.rows, every.columns, np.ones(len(every))
    else:
        likely = p_missing.best(n_most, classes=is_chosen)
        rows, places, weights = _with_others(labels, likely, is_chosen, n_labels, seed)
    if answers is not None:
        own = answers.select(is_chosen[answers.columns])
        rows, places, weights = _with_answered(rows, places, weights, own)
    features = p_missing.features.of_labels(p_missing.scores, rows, places)
    order = np.lexsort((places, rows, -p_missing.model.log_odds(features, places)))
    rows, places, features, weights = rows[order], places[order], features[order], weights[order]
    found = Candidates(
        rows,
        places,
        features,
        weights,
        np.empty(0, np.int64),
        np.where(is_chosen, worth, 0.0),
        p_missing.given,
    )
    lots = Orders.of(labels, np.arange(labels.n_classes), seed).of_pairs(rows, places)
    return replace(found, sample=_sequence(found.sizes, (lots.astype(np.float64) + 0.5) * 2.0**-64))


def _with_others(
    labels: LabelSet, likely: LikelyLabels, is_chosen: Mask, n_labels: int, seed: int
) -> tuple[Ints, Ints, Matrix]:
    """Add a random part of the labels that are not among the likeliest; return weights, too."""
    rng, columns = np.random.default_rng(seed), np.flatnonzero(is_chosen)
    n_pairs, n_classes = labels.n_clips * len(columns), labels.n_classes
    drawn = np.unique(rng.integers(0, n_pairs, 2 * N_OTHERS))
    keys = drawn // len(columns) * n_classes + columns[drawn % len(columns)]
    taken = np.union1d(
        likely.rows * n_classes + likely.columns,
        labels.clip_rows.astype(np.int64) * n_classes + labels.columns,
    )
    keys = rng.permutation(np.setdiff1d(keys, taken))[:N_OTHERS]
    rows, places = np.divmod(keys, n_classes)
    weight = (n_labels - len(likely)) / max(len(keys), 1)
    return (
        np.concatenate([likely.rows, rows]),
        np.concatenate([likely.columns, places]),
        np.concatenate([np.ones(len(likely)), np.full(len(keys), weight)]),
    )


def _with_answered(
    rows: Ints, columns: Ints, weights: Matrix, answers: Answers
) -> tuple[Ints, Ints, Matrix]:
    """Add labels that were answered before, of weight 0 where they are new."""
    n_columns = int(max(columns.max(initial=0), answers.columns.max(initial=0))) + 1
    keys, own = rows * n_columns + columns, answers.rows * n_columns + answers.columns
    is_new = ~np.isin(own, keys)
    return (
        np.concatenate([rows, answers.rows[is_new]]),
        np.concatenate([columns, answers.columns[is_new]]),
        np.concatenate([weights, np.zeros(int(is_new.sum()))]),
    )


def _sequence(sizes: Matrix, lots: Matrix) -> Ints:
    """Return labels in the order of their turns: sequential Poisson sampling.

    The first n are a sample of n labels with probabilities close to those of ``allocate``.
    """
    (possible,) = np.nonzero(sizes > 0)
    order = np.argsort(lots[possible] / sizes[possible], kind="stable")
    return possible[order[:MOST_TURNS]]


LOOK_AHEAD = 2
"""How many times the labels of a block are looked at to find those that share a class."""

Values = NDArray[np.floating]


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
    n_positives: int
    """Explicit positives of the classes that may be asked about."""
    n_flags: int = 0
    """Labels that `earmark flag` wrote, candidates or not."""

    def with_flags(self, flags: pl.DataFrame | None) -> Population:
        """Return it with some labels (clip_id, class_id) as the flags; None leaves none."""
        if flags is None:
            return self
        return replace(self, flags=self.places(flags), n_flags=len(flags))

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
            probability=pl.Series(
                np.where(selection.is_sample, own.probabilities(selection.n_turns)[places], 1.0)
            ),
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
    def every_explicit(self) -> pl.DataFrame:
        """The explicit labels: clip_id, class_id, present."""
        return self.explicit()

    @cached_property
    def _explicit(self) -> pl.DataFrame:
        classes = self.names.select("class_id").unique()
        return self.every_explicit.join(classes, on="class_id", how="semi")

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
    evidence = gather_evidence(labels, scores, ontology)
    if not evidence.knowledge.is_enough:
        raise NoChances("the scores know too little of the labels to say which are likely")
    worth: NDArray[np.float64] = np.ones(labels.n_classes)
    if params.aim == "train":
        worth = np.asarray((labels.n_positives + 1.0) ** -RARE_POWER, np.float64)
    candidates = find_candidates(labels, evidence.p_missing, columns, worth, params.seed, answers)
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
        int(labels.n_positives[candidates.worth > 0].sum()),
    )


def _repeated(items: pl.DataFrame) -> pl.DataFrame:
    """Return items to be asked about again, without a word that they are."""
    pairs = items.select("clip_id", "class_id").rows()
    names = pl.Series([item_id(*pair, is_repeat=True) for pair in pairs], dtype=pl.String)
    kept = items.select("clip_id", "class_id", "logit", repeats="item")
    return as_items(kept.with_columns(item=names, kind=pl.lit("repeat")))
