"""What the answers say about the candidates: missing labels found, still missing, and found next.

:func:`heard_of` reads what people said about candidates, and :func:`learn_from` learns chances from
it. :func:`find_gains` sums up what was found, what is left and what more answers would find.
:func:`forecast_yield` says the last for each class by itself.

*How many labels are missing*, and how many flags are right, is estimated from the random sample.
The number is a *difference estimate*. Where every label of a stratum is a candidate, the chances
are summed up and the sample's answers correct the sum: each adds what was heard less its chance,
times the labels that it stands for, with chances from models that were not fitted to it. In other
strata the sample alone counts. So the estimate is unbiased whatever the model chose or believes.

Its 90 % interval holds every number that the sample does not reject (a *score interval*). The test
needs to know where the missing labels would be. A line fitted to the sample says so (log-odds
against those of the first chance), except for a share that is spread over all labels evenly:
answers from the strata that hold nearly all labels are few. The distribution of few answers with
large weights is skewed, which the ends allow for (Cornish and Fisher). The upper end is never below
that for one more surprise than were heard: on people's answers the score interval alone covered
the truth too seldom there.

*What the next answers would find* comes from the model: the chances of the labels that it would
draw next, corrected by how the labels drawn lately turned out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, ndtri, stdtrit

from earmark.flags import LEAST_ANSWERS, VAGUE, Answers, Model, learn
from earmark.review.candidates import Candidates, Ints, Population
from earmark.review.judgements import DECIDED, HOW_PRESENT, after_adjudication
from earmark.review.queue_items import QUEUE_SCHEMA, DrawnBlock

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class HeardSoFar:
    """What people said of candidates, each label once.

    ``present`` [answer] is 1, 0 or between where they were unsure or at odds; ``drawn_at`` is the
    chance by which a label was drawn, NaN where it was not chosen by its chance. ``passed`` are
    the labels of the sample's turns that have passed, whether their clip could be played or not.
    """

    places: Ints
    present: Numbers
    drawn_at: Numbers
    passed: Ints

    def __len__(self) -> int:
        return len(self.places)

    def is_same(self, other: HeardSoFar) -> bool:
        """Tell whether nothing was answered, changed or taken back in between."""
        pairs = ((self.places, other.places), (self.present, other.present))
        return all(np.array_equal(*pair) for pair in (*pairs, (self.passed, other.passed)))

    @property
    def n_found(self) -> int:
        """Labels that were heard to be there."""
        return int((self.present > 0.5).sum())


def learn_from(
    candidates: Candidates, heard: HeardSoFar, is_used: Mask | None = None
) -> Model | None:
    """Learn chances from answers, or from some of them; None where they are too few."""
    places, present = heard.places, heard.present
    if is_used is not None:
        places, present = places[is_used], present[is_used]
    if len(places) < LEAST_ANSWERS:
        return None
    weights = stands_for(candidates, heard)[places]
    answers = Answers(candidates.rows[places], candidates.columns[places], present, weights)
    return learn(answers, candidates.clues[places], candidates.taught, candidates.n_classes)


def stands_for(candidates: Candidates, heard: HeardSoFar) -> Numbers:
    """Return how many labels each label [label] of the sample stands for; NaN for others."""
    passed = heard.passed
    is_heard = np.zeros(len(candidates), bool)
    is_heard[heard.places] = True
    passed = passed[is_heard[passed]]
    n_heard = np.bincount(candidates.strata[passed], minlength=len(candidates.stratum_sizes))
    found = np.full(len(candidates), np.nan)
    each = candidates.stratum_sizes / np.maximum(n_heard, 1)
    found[passed] = each[candidates.strata[passed]]
    return found


def heard_of(
    population: Population, blocks: Sequence[DrawnBlock], current: pl.DataFrame
) -> HeardSoFar:
    """Return what current judgements say of candidates, in the order of storing.

    The sample's turns of a block count once the labels of all of them were answered, wherever they
    were asked about, or could not be played.
    """
    own = population.with_places(after_adjudication(current))
    decided = own.filter(pl.col("answer").is_in(DECIDED))
    present = pl.col("answer").replace_strict(HOW_PRESENT, return_dtype=pl.Float64)
    labels = decided.group_by("label", maintain_order=True).agg(present=present.mean())
    places = labels["label"].to_numpy()
    drawn_at = np.full(len(population.candidates), np.nan)
    answered, passed, start = set(own["label"]), [], 0
    drawn = pl.concat([QUEUE_SCHEMA.to_frame(), *(block.items for block in blocks)])
    likely = population.with_places(drawn.filter(kind="likely"))
    drawn_at[likely["label"].to_numpy()] = likely["chance"].to_numpy()
    for block in blocks:
        turns = population.candidates.sample[start : block.n_turns]
        if answered.issuperset(turns.tolist()):
            passed.append(turns)
        start = block.n_turns
    every = np.concatenate([np.empty(0, np.int64), *passed])
    return HeardSoFar(places, labels["present"].to_numpy(), drawn_at[places], every)


N_FOLDS = 5
"""Parts of the answers; the chances of each are learnt from the others."""

REACH = float(ndtri(0.95))
"""Of 90 % intervals, in sds."""

SPREAD_SHARE = 0.3
"""Share of the missing labels that is taken to be spread over all labels alike."""

SLOPE, SLOPE_SD, LEVEL_SD = 0.6, 0.2, 5.0
"""What is believed of the fitted line before any answer; chances are surer than they should be."""

LEAST_REACH, MOST_SKEW = 0.8, 3.0
"""Bounds of the correction for skewness: the nearest end, in sds, and the skewness that counts."""

LEAST_OF_SOME = 10
"""Answers of the sample about some labels, such as the flags, from which on it speaks of them."""

LEAST_FREEDOM = 5.0
"""Degrees of freedom of an interval at least."""

N_STEPS = 400
"""Numbers that are tried, spaced evenly, and as many by their logarithms."""

Interval = tuple[float, float, float]


@dataclass(frozen=True)
class Cells:
    """Strata, or parts of them, of which something was heard: all float64 [cell].

    ``n_labels`` and ``n_heard`` count labels and the sample's answers, ``log_odds`` are those of
    the mean first chance, and ``n_present`` counts what was heard to be there.
    """

    n_labels: Numbers
    n_heard: Numbers
    n_present: Numbers
    log_odds: Numbers

    def shares(self) -> Numbers:
        """Return the chance that a missing label is a certain one of the cell."""
        level, slope = _fitted_line(self)
        by_line = expit(level + slope * self.log_odds)
        shares = by_line / (self.n_labels @ by_line)
        return np.asarray((1 - SPREAD_SHARE) * shares + SPREAD_SHARE / self.n_labels.sum())


def estimate(
    candidates: Candidates, heard: HeardSoFar, wanted: Sequence[Mask]
) -> list[Interval | None]:
    """Estimate how many of some labels are missing, for each set of labels [label] wanted.

    None where the sample is too small, or too little of it is among those wanted.
    """
    is_sampled = np.isfinite(stands_for(candidates, heard)[heard.places])
    if is_sampled.sum() < LEAST_ANSWERS:
        return [None] * len(wanted)
    fold = np.random.default_rng(0).permutation(len(heard)) % N_FOLDS
    is_whole = candidates.is_whole[candidates.strata]
    by_others, totals = np.empty(len(heard)), np.zeros(len(wanted))
    for part in range(N_FOLDS):
        chances = candidates.chances(learn_from(candidates, heard, fold != part)) * is_whole
        mine = fold == part
        by_others[mine] = chances[heard.places[mine]]
        totals += [chances[one].sum(dtype=np.float64) / N_FOLDS for one in wanted]
    surprises = heard.present - by_others
    return [
        _estimate_one(candidates, heard, one, total, surprises, is_sampled)
        for one, total in zip(wanted, totals, strict=True)
    ]


def _estimate_one(
    candidates: Candidates,
    heard: HeardSoFar,
    wanted: Mask,
    total: float,
    surprises: Numbers,
    is_sampled: Mask,
) -> Interval | None:
    """Correct a sum of chances by the sample's surprises, with the interval."""
    is_own = wanted[heard.places]
    sampled = is_sampled & is_own
    if sampled.sum() < LEAST_OF_SOME:
        return None
    cells, own = _cells(candidates, heard, wanted, sampled)
    each = cells.n_labels / cells.n_heard
    middle = float(total + (each[own] * surprises[sampled]).sum())
    known = heard.present[is_own]
    least, most = float(known.sum()), float(cells.n_labels.sum() - (1 - known).sum())
    middle = min(max(middle, least), most)
    left = (1 - cells.n_heard / cells.n_labels).clip(0)
    variances = (left * each**2)[own] * _squares(heard.present[sampled], surprises[sampled])
    if wanted.all():
        low, high = score_ends(cells, middle)
        # One more surprise than were heard, as heavy as the answers are.
        surprise = float(each[own] @ each[own] / each[own].sum())
        high = max(high, middle + REACH * float(np.sqrt(variances.sum() + surprise**2)))
    else:
        # Flags are few and half of them right: what strayed says how far the estimate does.
        reach = _reach(variances)
        low, high = middle - reach, middle + reach
    return min(max(low, least), middle), middle, max(min(high, most), middle)


def _cells(
    candidates: Candidates, heard: HeardSoFar, wanted: Mask, sampled: Mask
) -> tuple[Cells, Ints]:
    """Return the strata of some labels as cells, and the cell of each of the sample's answers."""
    strata = candidates.strata[heard.places[sampled]]
    sizes = candidates.stratum_sizes
    if not wanted.all():
        sizes = np.bincount(candidates.strata[wanted], minlength=len(sizes))
    cell_of = _joined(np.bincount(strata, minlength=len(sizes)))
    own, n_cells = cell_of[strata], int(cell_of.max()) + 1

    def summed(places: Ints, values: Numbers) -> Numbers:
        return np.bincount(places, values, n_cells).astype(np.float64)

    n_labels = summed(cell_of, sizes.astype(np.float64))
    log_odds = summed(cell_of, sizes * candidates.stratum_log_odds) / np.maximum(n_labels, 1)
    n_heard, n_present = (summed(own, one) for one in (np.ones(len(own)), heard.present[sampled]))
    return Cells(n_labels, n_heard, n_present, log_odds), own


def _reach(variances: Numbers) -> float:
    """Return how far a sum reaches whose parts have such variances, by Student's t.

    Its degrees of freedom are as many equal parts as would vary as much.
    """
    whole = float(variances.sum())
    n_equal = whole**2 / max(float((variances**2).sum()), 1e-300)
    return float(stdtrit(max(n_equal, LEAST_FREEDOM), 0.95) * np.sqrt(whole))


def _squares(present: Numbers, surprises: Numbers) -> Numbers:
    """Return squared surprises, or the doubt of the chances where that is more in all.

    Answers may all be as expected by luck.
    """
    chances = present - surprises
    doubt, squares = chances * (1 - chances), surprises**2
    return np.asarray(squares if squares.sum() > doubt.sum() else doubt)


def score_ends(cells: Cells, middle: float) -> tuple[float, float]:
    """Return the least and the largest number that an estimate does not speak against."""
    n_labels = cells.n_labels.sum()
    tried = np.append(np.geomspace(0.5, n_labels, N_STEPS), np.linspace(0, n_labels, N_STEPS))
    share = np.minimum(np.multiply.outer(tried, cells.shares()), 1)  # [number, cell]
    each, left = cells.n_labels / cells.n_heard, 1 - cells.n_heard / cells.n_labels
    spread = cells.n_heard * left.clip(0) * share * (1 - share)
    sd = np.sqrt(spread @ each**2)
    skew = spread * (1 - 2 * share) @ each**3 / np.maximum(sd, 1e-9) ** 3
    lean = skew.clip(-MOST_SKEW, MOST_SKEW) * (REACH**2 - 1) / 6
    is_held = middle - tried <= (REACH + lean).clip(LEAST_REACH) * sd
    is_held &= tried - middle <= (REACH - lean).clip(LEAST_REACH) * sd
    held = tried[is_held]
    return (float(held.min()), float(held.max())) if len(held) else (middle, middle)


def _fitted_line(cells: Cells) -> tuple[float, float]:
    """Fit the log-odds of being there to those of the first chance, by Newton's steps."""
    found = np.array([0.0, SLOPE])
    belief = np.array([LEVEL_SD, SLOPE_SD]) ** -2.0
    design = np.stack([np.ones_like(cells.log_odds), cells.log_odds], axis=1)
    for _ in range(30):
        shares = expit(design @ found)
        off = design.T @ (cells.n_present - cells.n_heard * shares)
        off -= belief * (found - [0.0, SLOPE])
        weights = cells.n_heard * shares * (1 - shares)
        step = np.linalg.solve((design.T * weights) @ design + np.diag(belief), off)
        found = found + step.clip([-2, -0.5], [2, 0.5])
    return float(found[0]), float(found[1].clip(0.2, 1.5))


def _joined(n_heard: Ints) -> Ints:
    """Return the cell [stratum] of each: one not heard joins the next that was, or the last.

    >>> _joined(np.array([0, 2, 0, 1, 0])).tolist()
    [0, 0, 1, 1, 1]
    """
    is_heard = (n_heard > 0).astype(np.int64)
    return np.asarray(np.minimum(np.cumsum(is_heard) - is_heard, is_heard.sum() - 1))


N_NEXT = 100
"""Answers that the forecast speaks of."""

N_LATELY, PRIOR_FINDS = 100, 10.0
"""Answers by which chances are corrected in the forecast, and how many finds would agree anyway."""

FEW = 0.15
"""The share of finds among the next answers below which it is time to stop."""


@dataclass(frozen=True)
class Gains:
    """What was found by so many answers, and what is to be expected.

    ``missing`` and ``right_left`` (the share of right ones among the ``n_left`` flags that were not
    heard) are low, middle and high of 90 % intervals; None while too little of the sample was
    heard. ``curve`` and ``forecast`` are points (answers, found).
    """

    n_answered: int
    n_found: int
    missing: Interval | None
    n_next_found: float | None
    n_left: int
    right_left: Interval | None
    curve: tuple[tuple[int, int], ...] = ()
    forecast: tuple[tuple[int, int], ...] = ()
    change: str = ""
    """That another class promises more, in a sentence."""

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
            f"Of the next {N_NEXT} about {round(self.n_next_found)} would be there: most of what "
            "the scores can find is found. This is a good place to stop."
        )

    @property
    def told(self) -> str:
        """All of it in a sentence.

        >>> Gains(300, 214, (1500.0, 1900.0, 2400.0), 71.0, 820, (0.53, 0.58, 0.63)).told
        '214 found of about 1,900 (1,500 to 2,400); the next 100 answers would find about 71; \
precision of what is still flagged 0.58 (0.53 to 0.63)'
        """
        parts = [f"{self.n_found:,} found"]
        if self.missing is not None:
            low, middle, high = (f"{round(end):,}" for end in self.missing)
            is_vague = self.missing[2] > VAGUE * self.missing[0]
            parts[0] += (
                f" of {low} to {high}" if is_vague else f" of about {middle} ({low} to {high})"
            )
        if self.n_next_found is not None:
            parts.append(f"the next {N_NEXT} answers would find about {round(self.n_next_found)}")
        if self.right_left is not None:
            low, middle, high = (f"{end:.2f}" for end in self.right_left)
            parts.append(f"precision of what is still flagged {middle} ({low} to {high})")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the page and other programs read it."""
        return {
            "n_answered": self.n_answered,
            "n_found": self.n_found,
            "missing": self.missing,
            "n_next": N_NEXT,
            "n_next_found": self.n_next_found,
            "n_left": self.n_left,
            "precision_left": self.right_left,
            "curve": self.curve,
            "forecast": self.forecast,
            "advice": self.advice,
            "told": self.told,
        }


def find_gains(
    candidates: Candidates,
    heard: HeardSoFar,
    chances: NDArray[np.floating],
    flags: Ints,
    share: float,
) -> Gains:
    """Say what was found and what is left.

    ``chances`` [label] are those of now, ``flags`` the places of the labels that are flagged, and
    ``share`` that of the sample in what is drawn.
    """
    is_heard = np.zeros(len(candidates), bool)
    is_heard[heard.places] = True
    is_flag = np.zeros(len(candidates), bool)
    is_flag[flags] = True
    n_left = int((is_flag & ~is_heard).sum())
    missing, right = estimate(candidates, heard, [np.ones(len(candidates), bool), is_flag])
    if missing is not None:
        low, middle, high = (max(end, heard.n_found) for end in missing)
        missing = (low, middle, high)
    right_left = None
    if right is not None and n_left:
        n_known = float(heard.present[is_flag[heard.places]].sum())
        low, middle, high = (min(max((end - n_known) / n_left, 0), 1) for end in right)
        right_left = (low, middle, high)
    found = np.cumsum(heard.present > 0.5, dtype=np.int64)
    (ahead_of_us,) = np.nonzero(~is_heard)
    worth = (chances * candidates.worth[candidates.columns])[ahead_of_us]
    by_worth = ahead_of_us[np.argsort(-worth, kind="stable")[: 10 * N_NEXT]]
    expected = _forecast_finds(heard, chances[by_worth], share)
    steps = range(N_NEXT, 10 * N_NEXT + 1, N_NEXT)
    known = (n for n in steps if n <= len(expected))
    ahead = [(len(heard) + n, heard.n_found + round(expected[n - 1])) for n in known]
    return Gains(
        len(heard),
        heard.n_found,
        missing,
        float(expected[N_NEXT - 1]) if len(expected) >= N_NEXT else None,
        n_left,
        right_left,
        _thinned(found),
        tuple(ahead),
    )


def _forecast_finds(heard: HeardSoFar, chances: NDArray[np.floating], share: float) -> Numbers:
    """Return the finds expected by each of the next answers, added up."""
    is_likely = np.isfinite(heard.drawn_at)
    lately = np.flatnonzero(is_likely)[-N_LATELY:]
    n_right, n_expected = heard.present[lately].sum(), heard.drawn_at[lately].sum()
    corrected = (n_right + PRIOR_FINDS) / (n_expected + PRIOR_FINDS)
    n = min(len(chances), 10 * N_NEXT)
    likely = np.minimum(chances[: max(int(n * (1 - share)), 1)] * corrected, 1)
    sample = heard.present[~is_likely]
    by_sample = float((sample.sum() + 1) / (len(sample) + 4))
    steps = np.linspace(0, len(likely), n + 1)[1:]
    cumulated = np.interp(steps, np.arange(len(likely) + 1), np.append(0, np.cumsum(likely)))
    return np.asarray(cumulated + share * by_sample * np.arange(1, n + 1))


def _thinned(found: Ints, n_most: int = 200) -> tuple[tuple[int, int], ...]:
    """Return found against answered, at most so many points."""
    at = np.unique(np.linspace(0, len(found), min(len(found), n_most) + 1).round().astype(int))
    return tuple((int(n), int(found[n - 1]) if n else 0) for n in at)


N_JUST_HEARD = 25
"""Answers that tell which classes somebody is listening to."""

LEAST_HEARD, LEAST_OPEN = 50, 25
"""Answers before anything is advised, and labels left in a class that is advised."""

FALLEN, TIMES_MORE = 0.5, 2.0
"""Another class is advised when less than this share is found, and it promises so much more."""


@dataclass(frozen=True)
class YieldForecast:
    """What to expect of the classes [class of the dataset], each by itself.

    ``n_found`` of the ``n_asked`` likeliest labels that were not heard, at most N_NEXT, would be
    there.
    """

    n_found: Numbers
    n_asked: NDArray[np.int64]


def forecast_yield(
    candidates: Candidates, heard: HeardSoFar, chances: NDArray[np.floating]
) -> YieldForecast:
    """Say what the next labels of every class would hold."""
    is_open = np.ones(len(candidates), bool)
    is_open[heard.places] = False
    (places,) = np.nonzero(is_open)
    columns = candidates.columns[places]
    order = np.lexsort((-chances[places], columns))
    places, columns = places[order], columns[order]
    starts = np.searchsorted(columns, columns)
    is_next = np.arange(len(columns)) - starts < N_NEXT
    own = np.minimum(chances[places[is_next]] * _correction(heard), 1)
    n_asked = np.bincount(columns[is_next], minlength=candidates.n_classes)
    n_found = np.bincount(columns[is_next], own, candidates.n_classes)
    return YieldForecast(n_found.astype(np.float64), n_asked)


def limited_forecast(
    gains: Gains, heard: HeardSoFar, chances: NDArray[np.floating], is_wanted: NDArray[np.bool_]
) -> Gains:
    """Return gains whose forecast speaks of some labels [label] alone, without a sample."""
    is_open = is_wanted.copy()
    is_open[heard.places] = False
    own = np.sort(np.minimum(chances[is_open] * _correction(heard), 1))[::-1][: 10 * N_NEXT]
    found = np.cumsum(own, dtype=np.float64)
    steps = range(N_NEXT, len(found) + 1, N_NEXT)
    ahead = tuple((len(heard) + n, heard.n_found + round(float(found[n - 1]))) for n in steps)
    n_next = float(found[:N_NEXT][-1]) if len(found) else 0.0
    return replace(gains, n_next_found=n_next, forecast=ahead)


def advise_change(
    candidates: Candidates,
    heard: HeardSoFar,
    chances: NDArray[np.floating],
    name: Callable[[int], str],
    only: Collection[int] = (),
) -> str:
    """Name a class that promises far more than those listened to; empty where there is none.

    ``name`` names a class by its number. ``only`` are the classes that are drawn from; without them
    it is those of the last answers.
    """
    if len(heard) < LEAST_HEARD:
        return ""
    just_heard = candidates.columns[heard.places[-N_JUST_HEARD:]]
    own = np.array(sorted(set(only or just_heard.tolist())), np.int64)
    promise = forecast_yield(candidates, heard, chances)
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


def _correction(heard: HeardSoFar) -> float:
    """Return by how much the chances drawn lately were too low, as the forecast does."""
    lately = np.flatnonzero(np.isfinite(heard.drawn_at))[-N_LATELY:]
    n_right, n_expected = heard.present[lately].sum(), heard.drawn_at[lately].sum()
    return float((n_right + PRIOR_FINDS) / (n_expected + PRIOR_FINDS))
