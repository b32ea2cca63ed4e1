"""Students that are linear probes: what ignoring or hedging flags does to them, in seconds.

No torch and no chance in the fit: a student is the answer to a convex problem. What varies is the
data. A *draw* takes a part of the train clips and hides labels anew; its teacher, cross-fitted on
what is left, flags; its students are told of the flags in one way each, and measured on clips that
nobody trained on, by a complete truth. Point and treatment are chosen on ``tune`` by the labels as
they are given there, which any owner has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from earmark.compute import Meter
from earmark.config import HidingParams
from earmark.datasets import hide
from earmark.flags import flag
from earmark.labels import IMPLICIT, LabelSet, Ontology, folds
from earmark.losses import treat
from earmark.metrics import (
    Draws,
    Interval,
    fit_class_offsets,
    lwlrap,
    mean_over_classes,
    resample_weights,
    resampled_lwlrap_per_class,
    smoothed_priors,
    with_seeds,
)
from earmark.training import LinearProbe, ScaledFeatures, cross_fit_probe, fit_probe

PERCENTS = (1.0, 2.0, 4.0)
"""Operating points: so many per cent of all implicit labels, the likeliest ones, are flagged."""

N_FOLDS, RIDGE, N_RESAMPLES = 4, 0.03, 300

WayTold = tuple[str, float]
"""How a student is told of flags, and the operating point."""

AS_GIVEN: WayTold = ("as given", 0.0)
TESTED = tuple((name, point) for name in ("mask", "hedge") for point in PERCENTS)
RANDOM = tuple(("random", point) for point in PERCENTS)
JUDGED: WayTold = ("heard", 0.0)
JUDGED_AT_RANDOM: WayTold = ("heard at random", 0.0)
WAYS = (AS_GIVEN, *TESTED, *RANDOM, JUDGED, JUDGED_AT_RANDOM)

Listen = Callable[[LabelSet, NDArray[np.float32], LabelSet, int], NDArray[np.int64]]
"""Labels, scores, their truth and a seed to the places (clip * classes + class) of what is asked.

A function at the top of a module, so that other processes can call it.
"""


@dataclass(frozen=True)
class ProbeData:
    """All that draws are made from: features [clip, feature], the truth, and who is where.

    ``rows`` are the clips of train, tune and eval; a draw trains on ``n_drawn`` of train's.
    """

    features: NDArray[np.float32]
    truth: LabelSet
    ontology: Ontology
    rows: Mapping[str, NDArray[np.int64]]
    hiding: HidingParams
    n_drawn: int
    listen: Listen


@dataclass(frozen=True)
class DrawResults:
    """The results of one draw's students: by measure [way, 1 + resample], the value first.

    ``lwlrap`` and ``lwlrap_calibrated`` (every class given its best offset on tune, by the truth)
    are on eval by the truth; ``lwlrap_tune`` is on tune by the labels as given. ``n_found``
    counts the missing labels that answers found, and the answers: by the queue, and at random.
    """

    measured: Mapping[str, NDArray[np.float64]]

    def draws(self, measure: str, way: WayTold) -> Draws:
        """Return a student's number, as measured and on every resample."""
        row = self.measured[measure][WAYS.index(way)]
        return Draws(float(row[0]), row[1:])

    def gain(self, measure: str, way: WayTold) -> Draws:
        """Return a student's paired difference from the baseline of its draw."""
        return self.draws(measure, way) - self.draws(measure, AS_GIVEN)


def evaluate_draw(data: ProbeData, seed: int, meter: Meter) -> DrawResults:
    """Make a draw, train its students and measure them."""
    train = data.rows["train"]
    drawn = np.random.default_rng([seed, 1]).choice(train, min(data.n_drawn, len(train)), False)
    labels = hide(data.truth, data.ontology, data.hiding.model_copy(update={"seed": seed}))
    draw = _Draw.make(data, labels, np.sort(drawn), seed)
    measure = _held_out_measures(data, labels, np.sort(drawn))
    measured = []
    for way in WAYS:
        measured.append(measure(draw.train(way)))
        meter.advance(1)
    by_name = {name: np.stack([one[name] for one in measured]) for name in measured[0]}
    return DrawResults({**by_name, "n_found": draw.n_found})


@dataclass(frozen=True)
class ToldGain:
    """What a way of telling students gave on eval, by the truth, with 90 % intervals over draws.

    ``treatment`` and ``percent`` say which way; ``baseline`` and ``value`` are lwlrap without and
    with it, ``calibrated`` is the gain where every student has its best offset for each class,
    and ``random`` that of ignoring as many labels at random.
    """

    treatment: str
    percent: float
    baseline: Interval
    value: Interval
    gain: Interval
    calibrated: Interval
    random: Interval


def best_on_tune(
    draws: Sequence[DrawResults], treatments: Sequence[str] = ("mask", "hedge")
) -> WayTold:
    """Return the way with the best mean lwlrap on tune, by the labels as given there.

    Nothing told counts among them; the mildest of equals is taken.
    """
    ways = [AS_GIVEN, *(way for way in TESTED if way[0] in treatments)]
    return max(ways, key=lambda way: sum(one.draws("lwlrap_tune", way).value for one in draws))


def told_gain(draws: Sequence[DrawResults], way: WayTold) -> ToldGain:
    """Return what a way gave, as the mean over draws."""
    random = ("random", way[1]) if way in TESTED else AS_GIVEN
    return ToldGain(
        *way,
        baseline=with_seeds([one.draws("lwlrap", AS_GIVEN) for one in draws]).interval(),
        value=with_seeds([one.draws("lwlrap", way) for one in draws]).interval(),
        gain=_gain(draws, "lwlrap", way),
        calibrated=_gain(draws, "lwlrap_calibrated", way),
        random=_gain(draws, "lwlrap", random),
    )


@dataclass(frozen=True)
class JudgedGain:
    """What answers found, in the mean over draws, and what they gave a student (lwlrap on eval).

    Once in the order of the queue, once at random.
    """

    n_answers: float
    n_found: float
    n_found_at_random: float
    gain: Interval
    gain_at_random: Interval


def judged_gain(draws: Sequence[DrawResults]) -> JudgedGain:
    """Return what answers by ear found and gave."""
    (n_found, n_answers), (at_random, _) = np.mean([one.measured["n_found"] for one in draws], 0)
    return JudgedGain(
        float(n_answers),
        float(n_found),
        float(at_random),
        _gain(draws, "lwlrap", JUDGED),
        _gain(draws, "lwlrap", JUDGED_AT_RANDOM),
    )


def _gain(draws: Sequence[DrawResults], measure: str, way: WayTold) -> Interval:
    return with_seeds([one.gain(measure, way) for one in draws]).interval()


@dataclass(frozen=True)
class _Draw:
    """The train clips of a draw, and the places of labels that students are told of.

    ``likeliest`` are the flags, in order; ``shuffled`` all implicit labels; ``judged`` those that
    were answered, by the queue.
    """

    features: ScaledFeatures
    states: NDArray[np.int8]
    is_present: NDArray[np.bool_]
    outputs: NDArray[np.float32]
    likeliest: NDArray[np.int64]
    shuffled: NDArray[np.int64]
    judged: NDArray[np.int64]

    @classmethod
    def make(cls, data: ProbeData, every: LabelSet, rows: NDArray[np.int64], seed: int) -> _Draw:
        labels, truth, features = every.select(rows), data.truth.select(rows), data.features[rows]
        fold_of = folds(labels, labels.clip_ids, N_FOLDS, seed)
        scores = cross_fit_probe(features, labels, fold_of, ridge=RIDGE)
        implicit = np.flatnonzero(labels.states() == IMPLICIT)
        return cls(
            ScaledFeatures.of(features),
            labels.states(),
            truth.states() > 0,
            expit(scores),
            likeliest_labels(labels, scores, data.ontology, max(PERCENTS)),
            np.random.default_rng([seed, 2]).permutation(implicit),
            data.listen(labels, scores, truth, seed),
        )

    @property
    def n_found(self) -> NDArray[np.float64]:
        """Labels that answers found, and answers: by the queue, and at random."""
        present = self.is_present.ravel()
        asked = (self.judged, self.shuffled[: len(self.judged)])
        return np.array([[present[places].sum(), len(places)] for places in asked], np.float64)

    def train(self, way: WayTold) -> LinearProbe:
        """Train a student."""
        target = (self.states > 0).astype(np.float32)
        weight = np.ones_like(target)
        if way in (JUDGED, JUDGED_AT_RANDOM):
            places = self.judged if way == JUDGED else self.shuffled[: len(self.judged)]
            target.ravel()[places] = self.is_present.ravel()[places]
        else:
            ordered = self.shuffled if way[0] == "random" else self.likeliest
            flagged = np.sort(ordered[: n_of_percent(self.states, way[1])])
            treatment = "hedge" if way[0] == "hedge" else "mask"
            outputs = self.outputs.ravel()[flagged]
            target, treated = treat(treatment, flagged, outputs, target, weight)
            weight = treated.astype(np.float32, copy=False)
        return fit_probe(self.features, target, weight, ridge=RIDGE)


def n_of_percent(states: NDArray[np.int8], percent: float) -> int:
    """Return how many labels so many per cent of the implicit ones are, rounded down."""
    return int(percent / 100 * (states == IMPLICIT).sum())


def likeliest_labels(
    labels: LabelSet, scores: NDArray[np.float32], ontology: Ontology, percent: float
) -> NDArray[np.int64]:
    """Return the places (clip * classes + class) of the likeliest implicit labels, in order."""
    n_flags = n_of_percent(labels.states(), percent)
    flags = flag(labels, scores, "budget", ontology=ontology, n_flags=n_flags)
    flags = flags.sort("chance", "logit", descending=True, maintain_order=True)
    row_of = {clip_id: row for row, clip_id in enumerate(labels.clip_ids)}
    column_of = {class_id: column for column, class_id in enumerate(labels.class_ids)}
    rows = np.array([row_of[clip_id] for clip_id in flags["clip_id"]], np.int64)
    columns = np.array([column_of[class_id] for class_id in flags["class_id"]], np.int64)
    return rows * labels.n_classes + columns


def _held_out_measures(
    data: ProbeData, labels: LabelSet, train_rows: NDArray[np.int64]
) -> Callable[[LinearProbe], dict[str, NDArray[np.float64]]]:
    """Return the function that measures a student on the tune and eval clips."""
    tune, held, train = data.rows["tune"], data.rows["eval"], labels.select(train_rows)
    features = data.features[np.concatenate([tune, held])]
    given_tune = labels.states(tune) > 0
    true_tune, true_eval = data.truth.states(tune) > 0, data.truth.states(held) > 0
    priors = smoothed_priors(train.n_positives, train.n_clips)
    weights = resample_weights(len(held), N_RESAMPLES, seed=0)

    def on_eval(logits: NDArray[np.float32]) -> NDArray[np.float64]:
        resampled = resampled_lwlrap_per_class(true_eval, logits, weights)
        return np.append(lwlrap(true_eval, logits), mean_over_classes(resampled))

    def measure(student: LinearProbe) -> dict[str, NDArray[np.float64]]:
        of_tune, of_eval = np.split(student.logits(features), [len(tune)])
        offsets = fit_class_offsets(true_tune, of_tune, priors).astype(np.float32)
        return {
            "lwlrap": on_eval(of_eval),
            "lwlrap_calibrated": on_eval(of_eval + offsets),
            "lwlrap_tune": np.array([lwlrap(given_tune, of_tune)]),
        }

    return measure
