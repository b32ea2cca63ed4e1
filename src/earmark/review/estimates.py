"""What the answers say about the candidates: found, still missing, and found next.

:func:`judged_labels` reads what people said about candidates, and :func:`learn_from` fits p_missing
to it. :func:`estimate` states what is known of the missing labels, :func:`find_gains` adds what
more answers would find, and :func:`forecast_yield` says that for each class by itself.

*How many labels are missing* is a difference estimate. A label that was chosen by its p_missing
counts as it was judged. For all others p_missing is summed up, and each answer of the random sample
corrects the sum by the answer less its p_missing, times the number of labels that it represents.
The p_missing of an answer comes from a model that was not fitted to it. So the estimate is unbiased
whatever the model believes.

*What the next answers would find* comes from the model: the p_missing of the labels that it would
draw next, corrected by how the labels drawn lately turned out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.datasets import PAIR
from earmark.flags import (
    LEAST_RANDOM,
    MissingEstimates,
    Model,
    bound,
    count_by_posterior,
    estimate_total,
    split_total,
)
from earmark.metrics import Interval
from earmark.review.candidates import Candidates, Ints, Population
from earmark.review.judgements import DECIDED, HOW_PRESENT, after_adjudication
from earmark.review.queue_items import QUEUE_SCHEMA, DrawnBlock

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

N_FOLDS = 5
"""Parts of the answers; the p_missing of each comes from a model fitted to the others."""


@dataclass(frozen=True)
class JudgedLabels:
    """What people said of candidates, each label once.

    ``present`` [answer] is 1, 0 or between where they were unsure or disagreed; ``drawn_at`` is
    the p_missing by which a label was chosen, NaN where it was not. An answer of the random sample
    ``stands_for`` so many labels; NaN for others. ``n_others`` labels that are no candidates were
    judged, too, and ``n_others_present`` of them are present.
    """

    places: Ints
    present: Numbers
    drawn_at: Numbers
    stands_for: Numbers
    n_others: int = 0
    n_others_present: int = 0

    def __len__(self) -> int:
        return len(self.places)

    def is_same(self, other: JudgedLabels) -> bool:
        """Tell whether nothing was answered, changed or taken back in between."""
        if (self.n_others, self.n_others_present) != (other.n_others, other.n_others_present):
            return False
        names = ("places", "present", "stands_for")
        pairs = ((getattr(self, name), getattr(other, name)) for name in names)
        return all(np.array_equal(*pair, equal_nan=True) for pair in pairs)

    @property
    def is_random(self) -> Mask:
        """Which answers [answer] belong to the random sample."""
        return np.isfinite(self.stands_for)

    @property
    def n_found(self) -> int:
        """Missing labels that were confirmed."""
        return int((self.present > 0.5).sum()) + self.n_others_present


def learn_from(candidates: Candidates, judged: JudgedLabels, is_used: Mask | None = None) -> Model:
    """Fit p_missing to answers, or to some of them; too few change nothing."""
    places, present = judged.places, judged.present
    if is_used is not None:
        places, present = places[is_used], present[is_used]
    columns, features = candidates.columns[places], candidates.features[places]
    return candidates.given.learn(columns, present, features)


def judged_labels(
    population: Population, blocks: Sequence[DrawnBlock], current: pl.DataFrame
) -> JudgedLabels:
    """Return what current judgements say of candidates, in the order of storing.

    The random sample counts up to the last block of which all was answered. A turn without an
    answer, as of a clip that does not play, is taken to be missing at random.
    """
    candidates, judged = population.candidates, after_adjudication(current)
    own = population.with_places(judged)
    decided = own.filter(pl.col("answer").is_in(DECIDED))
    present = pl.col("answer").replace_strict(HOW_PRESENT, return_dtype=pl.Float64)
    labels = decided.group_by("label", maintain_order=True).agg(present=present.mean())
    places = labels["label"].to_numpy()
    drawn_at = np.full(len(candidates), np.nan)
    drawn = pl.concat([QUEUE_SCHEMA.to_frame(), *(block.items for block in blocks)])
    likely = population.with_places(drawn.filter(kind="likely"))
    drawn_at[likely["label"].to_numpy()] = likely["chance"].to_numpy()
    answered, n_turns, start = set(own["label"]), 0, 0
    for block in blocks:
        if answered.issuperset(candidates.sample[start : block.n_turns].tolist()):
            n_turns = max(n_turns, block.n_turns)
        start = block.n_turns
    stands_for = np.full(len(candidates), np.nan)
    turns = candidates.sample[:n_turns]
    turns = turns[np.isin(turns, places)]
    if len(turns):
        share = candidates.probabilities(n_turns)[turns] * len(turns) / n_turns
        stands_for[turns] = candidates.weights[turns] / share
    others = _others(population, judged)
    return JudgedLabels(
        places,
        labels["present"].to_numpy(),
        drawn_at[places],
        stands_for[places],
        len(others),
        int((others["present"] > 0.5).sum()),
    )


def _others(population: Population, judged: pl.DataFrame) -> pl.DataFrame:
    """Return the implicit labels that were judged and are no candidates."""
    decided = judged.filter(pl.col("answer").is_in(DECIDED))
    others = decided.join(population.names, on=PAIR, how="anti")
    if len(others):
        others = others.join(population.every_explicit, on=PAIR, how="anti")
    present = pl.col("answer").replace_strict(HOW_PRESENT, return_dtype=pl.Float64)
    return others.group_by(PAIR).agg(present=present.mean())


def estimate(
    population: Population, judged: JudgedLabels, model: Model | None = None
) -> MissingEstimates:
    """State what is known of the missing labels among the candidates, and of the flags.

    ``model`` is the one fitted to all answers, if it is at hand.
    """
    candidates = population.candidates
    model = learn_from(candidates, judged) if model is None else model
    is_judged, is_flag = (np.zeros(len(candidates), bool) for _ in range(2))
    is_judged[judged.places] = True
    is_flag[population.flags] = True
    is_left = is_flag & ~is_judged
    n_judged_flags = int((is_flag & is_judged).sum())
    known = MissingEstimates(
        population.n_flags,
        population.n_flags - n_judged_flags,
        None,
        len(judged) + judged.n_others,
        judged.n_found,
        int(judged.is_random.sum()),
        None,
        candidates.n_labels,
        int((candidates.worth > 0).sum()),
        population.n_positives,
    )
    every = np.ones(len(candidates), bool)
    total, flags_right = _totals(candidates, judged, (every, is_flag))
    if population.n_flags == len(population.flags) and is_left.any():
        if flags_right is None:
            n_right = _by_model(candidates, model, is_left)
        else:
            n_known = float(judged.present[is_flag[judged.places]].sum())
            low, high = flags_right.low - n_known, flags_right.high - n_known
            left = Interval(flags_right.value - n_known, low, high)
            n_right = bound(left, 0.0, float(is_left.sum()))
        known = replace(known, n_right=n_right)
    if total is None:
        return known
    n_not_present = float((1 - judged.present).sum())
    least, most = float(judged.n_found), max(candidates.n_labels - n_not_present, judged.n_found)
    total = bound(total, least, most)
    p = candidates.p_missing(model) * candidates.weights
    p[judged.places] = judged.present
    expected = np.bincount(candidates.columns, p, candidates.n_classes).astype(np.float64)
    found = candidates.columns[judged.places[judged.present > 0.5]]
    confirmed = np.bincount(found, minlength=candidates.n_classes).astype(np.float64)
    beyond = total.value - judged.n_others_present
    parts = split_total(beyond, expected, confirmed)
    class_totals = {name: float(parts[column]) for column, name in population.class_ids.items()}
    return replace(known, total=total, class_totals=class_totals)


def _by_model(candidates: Candidates, model: Model, wanted: Mask) -> Interval:
    """Return how many of some labels are missing by the model alone."""
    features, columns = candidates.features[wanted], candidates.columns[wanted]
    if model.posterior is None:
        return candidates.given.count_present(features)
    return count_by_posterior(model, features, columns)


def _totals(
    candidates: Candidates, judged: JudgedLabels, wanted: Sequence[Mask]
) -> list[Interval | None]:
    """Estimate how many of each set of labels [label] are missing by the difference estimator.

    None where the random sample has too few answers among them.
    """
    is_known = np.isfinite(judged.drawn_at)  # chosen by p_missing: counts as it was judged
    is_random = judged.is_random & ~is_known
    totals: list[Interval | None] = [None] * len(wanted)
    n_each = [int(judged.is_random[own[judged.places]].sum()) for own in wanted]
    if max(n_each) < LEAST_RANDOM:
        return totals
    fold = np.random.default_rng(0).permutation(len(judged)) % N_FOLDS
    predicted, sums = np.empty(len(judged)), np.zeros(len(wanted))
    is_open = np.ones(len(candidates), bool)
    is_open[judged.places[is_known]] = False
    for part in range(N_FOLDS):
        p = candidates.p_missing(learn_from(candidates, judged, fold != part)).astype(np.float64)
        mine = fold == part
        predicted[mine] = p[judged.places[mine]]
        weighted = p * candidates.weights * is_open
        sums += [float(weighted[own].sum()) / N_FOLDS for own in wanted]
    for number, own in enumerate(wanted):
        if n_each[number] < LEAST_RANDOM:
            continue
        is_own = own[judged.places]
        chosen = is_random & is_own
        n_known = float(judged.present[is_known & is_own].sum())
        totals[number] = estimate_total(
            n_known + sums[number],
            predicted[chosen],
            judged.present[chosen],
            judged.stands_for[chosen],
        )
    return totals


N_NEXT = 100
"""Answers that the forecast speaks of."""

N_LATELY, PRIOR_FINDS = 100, 10.0
"""Answers by which chances are corrected in the forecast, and how many finds would agree anyway."""

FEW = 0.15
"""The share of finds among the next answers below which it is time to stop."""


@dataclass(frozen=True)
class Gains:
    """What is known by so many answers, and what more would find.

    ``curve`` and ``forecast`` are points (answers, found).
    """

    estimates: MissingEstimates
    n_next_found: float | None = None
    curve: tuple[tuple[int, int], ...] = ()
    forecast: tuple[tuple[int, int], ...] = ()
    change: str = ""
    """That another class promises more, in a sentence."""

    @property
    def n_answered(self) -> int:
        """Labels that were judged."""
        return self.estimates.n_answers

    @property
    def n_found(self) -> int:
        """Missing labels that were confirmed."""
        return self.estimates.n_confirmed

    @property
    def advice(self) -> str:
        """Whether to go on, in a sentence; empty where there is nothing to say."""
        if self.change:
            return self.change
        if self.n_next_found is None or self.n_answered < N_NEXT // 2:
            return ""
        share = self.n_next_found / N_NEXT
        if share >= FEW:
            return ""
        return (
            f"Of the next {N_NEXT} answers about {round(self.n_next_found)} would find a missing "
            "label: most of what the scores can find is found. This is a good place to stop."
        )

    def describe(self) -> str:
        """Return all of it in a few sentences."""
        known = self.estimates.describe()
        if self.n_next_found is None:
            return known
        expected = round(self.n_next_found)
        return f"{known} The next {N_NEXT} answers would find about {expected}."

    def to_dict(self) -> dict[str, Any]:
        """Return it as the page and other programs read it."""
        return {
            **self.estimates.facts(),
            "n_next": N_NEXT,
            "n_next_found": self.n_next_found,
            "curve": self.curve,
            "forecast": self.forecast,
            "advice": self.advice,
            "described": self.describe(),
        }


def find_gains(population: Population, judged: JudgedLabels, model: Model, share: float) -> Gains:
    """Say what was found and what is left.

    ``model`` is fitted to all answers, and ``share`` that of the random sample in what is drawn.
    """
    candidates, p_missing = population.candidates, population.candidates.p_missing(model)
    is_open = np.ones(len(candidates), bool)
    is_open[judged.places] = False
    (ahead_of_us,) = np.nonzero(is_open)
    worth = (p_missing * candidates.worth[candidates.columns])[ahead_of_us]
    by_worth = ahead_of_us[np.argsort(-worth, kind="stable")[: 10 * N_NEXT]]
    estimates = estimate(population, judged, model)
    expected = _forecast_finds(judged, p_missing[by_worth], share)
    if estimates.total is not None:  # no more is found than is missing
        expected = np.minimum(expected, estimates.total.high - estimates.n_confirmed)
    found = np.cumsum(judged.present > 0.5, dtype=np.int64)
    n_found = int(found[-1]) if len(found) else 0
    steps = [n for n in range(N_NEXT, 10 * N_NEXT + 1, N_NEXT) if n <= len(expected)]
    return Gains(
        estimates,
        float(expected[N_NEXT - 1]) if len(expected) >= N_NEXT else None,
        _thinned(found),
        tuple((len(judged) + n, n_found + round(expected[n - 1])) for n in steps),
    )


def _forecast_finds(judged: JudgedLabels, p_missing: NDArray[np.floating], share: float) -> Numbers:
    """Return the finds expected by each of the next answers, added up."""
    is_likely = np.isfinite(judged.drawn_at)
    lately = np.flatnonzero(is_likely)[-N_LATELY:]
    n_right, n_expected = judged.present[lately].sum(), judged.drawn_at[lately].sum()
    corrected = (n_right + PRIOR_FINDS) / (n_expected + PRIOR_FINDS)
    n = min(len(p_missing), 10 * N_NEXT)
    likely = np.minimum(p_missing[: max(int(n * (1 - share)), 1)] * corrected, 1)
    sample = judged.present[~is_likely]
    by_sample = float((sample.sum() + 1) / (len(sample) + 4))
    steps = np.linspace(0, len(likely), n + 1)[1:]
    cumulated = np.interp(steps, np.arange(len(likely) + 1), np.append(0, np.cumsum(likely)))
    return np.asarray(cumulated + share * by_sample * np.arange(1, n + 1))


def _thinned(found: Ints, n_most: int = 200) -> tuple[tuple[int, int], ...]:
    """Return found against answered, at most so many points."""
    at = np.unique(np.linspace(0, len(found), min(len(found), n_most) + 1).round().astype(int))
    return tuple((int(n), int(found[n - 1]) if n else 0) for n in at)


N_LATEST = 25
"""Answers that tell which classes somebody is listening to."""

LEAST_JUDGED, LEAST_OPEN = 50, 25
"""Answers before anything is advised, and labels left in a class that is advised."""

FALLEN, TIMES_MORE = 0.5, 2.0
"""Another class is advised when less than this share is found, and it promises so much more."""


@dataclass(frozen=True)
class YieldForecast:
    """What to expect of the classes [class of the dataset], each by itself.

    ``n_found`` of the ``n_asked`` likeliest labels that were not judged, at most N_NEXT, would be
    there.
    """

    n_found: Numbers
    n_asked: NDArray[np.int64]


def forecast_yield(
    candidates: Candidates, judged: JudgedLabels, p_missing: NDArray[np.floating]
) -> YieldForecast:
    """Say what the next labels of every class would hold."""
    is_open = np.ones(len(candidates), bool)
    is_open[judged.places] = False
    (places,) = np.nonzero(is_open)
    columns = candidates.columns[places]
    order = np.lexsort((-p_missing[places], columns))
    places, columns = places[order], columns[order]
    starts = np.searchsorted(columns, columns)
    is_next = np.arange(len(columns)) - starts < N_NEXT
    own = np.minimum(p_missing[places[is_next]] * _correction(judged), 1)
    n_asked = np.bincount(columns[is_next], minlength=candidates.n_classes)
    n_found = np.bincount(columns[is_next], own, candidates.n_classes)
    return YieldForecast(n_found.astype(np.float64), n_asked)


def limited_forecast(
    gains: Gains,
    judged: JudgedLabels,
    p_missing: NDArray[np.floating],
    is_wanted: NDArray[np.bool_],
) -> Gains:
    """Return gains whose forecast speaks of some labels [label] alone, without a sample."""
    is_open = is_wanted.copy()
    is_open[judged.places] = False
    own = np.sort(np.minimum(p_missing[is_open] * _correction(judged), 1))[::-1][: 10 * N_NEXT]
    found = np.cumsum(own, dtype=np.float64)
    steps = range(N_NEXT, len(found) + 1, N_NEXT)
    n_found = int((judged.present > 0.5).sum())
    ahead = tuple((len(judged) + n, n_found + round(float(found[n - 1]))) for n in steps)
    n_next = float(found[:N_NEXT][-1]) if len(found) else 0.0
    return replace(gains, n_next_found=n_next, forecast=ahead)


def advise_change(
    candidates: Candidates,
    judged: JudgedLabels,
    p_missing: NDArray[np.floating],
    name: Callable[[int], str],
    only: Collection[int] = (),
) -> str:
    """Name a class that promises far more than those listened to; empty where there is none.

    ``name`` names a class by its number. ``only`` are the classes that are drawn from; without them
    it is those of the last answers.
    """
    if len(judged) < LEAST_JUDGED:
        return ""
    just_judged = candidates.columns[judged.places[-N_LATEST:]]
    own = np.array(sorted(set(only or just_judged.tolist())), np.int64)
    promise = forecast_yield(candidates, judged, p_missing)
    is_other = promise.n_asked >= LEAST_OPEN
    is_other[own] = False
    if not is_other.any():
        return ""
    best = int(np.argmax(np.where(is_other, _per_hundred(promise), -1)))
    mine, theirs = (float(_per_hundred(promise)[one].max()) for one in (own, [best]))
    if mine >= FALLEN * N_NEXT or theirs < max(TIMES_MORE * mine, 0.15 * N_NEXT):
        return ""
    told = ", ".join(name(int(one)) for one in own[:2]) + (" and others" if len(own) > 2 else "")
    return (
        f"Change class: of the next {N_NEXT} answers about {told} some {round(mine)} would be "
        f"there, about {name(best)} some {round(theirs)}."
    )


def _per_hundred(promise: YieldForecast) -> Numbers:
    """Return the finds among N_NEXT answers; fewer labels than that are all there is."""
    return np.asarray(promise.n_found / np.maximum(promise.n_asked, LEAST_OPEN) * N_NEXT)


def _correction(judged: JudgedLabels) -> float:
    """Return by how much the p_missing drawn lately were too low, as the forecast does."""
    lately = np.flatnonzero(np.isfinite(judged.drawn_at))[-N_LATELY:]
    n_right, n_expected = judged.present[lately].sum(), judged.drawn_at[lately].sum()
    return float((n_right + PRIOR_FINDS) / (n_expected + PRIOR_FINDS))
