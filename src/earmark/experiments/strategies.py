"""Strategies by name, the students trained with them, and the choice of an operating point.

A strategy says which implicit labels are suspect, and how they are treated. It is written
``[LABELS+][chance/][POLICY/]TREATMENT[+LOSS][+adjust][@POINT,...]``. One of the parts is enough:
``mask``, ``precision/soft``, ``budget/mask+adjust``, ``splc``, ``corrected+mask``,
``mask@0.5,1,2``, ``chance/soft@0.1``.

=============  ====================================================================================
part           choices
=============  ====================================================================================
LABELS         ``filled``: with the ancestors that the class tree implies (hierarchical label
               propagation); ``corrected``: as ``earmark relabel`` changed them, under its usual
               name; ``truth``: complete, where known (oracle)
``chance``     policy and treatment go by the learnt chances that labels are missing, and not by
               the teacher's outputs
POLICY         those of :func:`earmark.flag`, ``percentile`` by default, but ``global`` after
               ``chance``; ``psla``: above a quantile of the positives where a parent or child is
               labelled; ``ancestors``: what the class tree implies; ``random``: as many labels,
               drawn at random (control); ``oracle``: the labels that truly are missing
TREATMENT      ``mask``, ``flip``, ``soft``, ``hedge``, ``weight``; ``distil`` is ``soft`` for all
               implicit labels; ``random`` alone is ``random/mask``
LOSS           robust losses that need no teacher: ``ll-r``, ``splc``, ``an-ls``, ``em``,
               ``weak-negatives``, ``consistency``
``adjust``     logit adjustment: scores z_c - tau * log(prior_c), tau chosen on ``tune``
=============  ====================================================================================

Every strategy has operating points, from the mildest to the strongest. The baseline, which changes
no label, is milder than all of them.

Sweeps and comparisons choose a point by one rule (:func:`choose_point`): the best on ``tune``, and
the mildest of equals. The chosen point is then measured on ``eval``, which has other clips, so a
point that was best on ``tune`` by luck gains less there. The milder rule "as good as the best
within one standard error" is not used, because a strong point costs nothing here, and on a small
``tune`` that rule mostly chooses the baseline. In a simulation with a gain of 0.03 at the best of
six points and an error of 0.02 on ``tune``, the best point keeps 82 % of the gain on average, and
the mildest within one error 55 %.

This module does not import torch. :mod:`earmark.experiments.stacks` trains the students.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import polars as pl

from earmark.config import NetworkParams, SweepParams
from earmark.datasets import CORRECTED, FILLED, GIVEN, TRUTH, Split, Workspace
from earmark.errors import EarmarkError, nearest
from earmark.flags import POLICIES
from earmark.losses import TREATMENTS
from earmark.scores import ScoreFolder

Point = TypeVar("Point")

EVALUATED_SPLITS: tuple[Split, ...] = ("tune", "eval")

LOSS_POINTS: dict[str, tuple[float, ...]] = {
    "weak-negatives": (0.01,),
    "an-ls": (0.1,),
    "em": (0.1, 0.2),
    "splc": (0.6,),
    "ll-r": (0.1, 0.2, 0.5),
    "consistency": (1.0,),
}
"""Robust losses (:mod:`earmark.training.robust_losses`) and their operating points, mildest first,
where none are given; ``bce``, the usual loss, is no part of a strategy's name."""

_POLICY_POINTS: dict[str, tuple[float, ...] | None] = {
    **{name: policy.points for name, policy in POLICIES.items()},
    "psla": POLICIES["positives_quantile"].points,
    "random": POLICIES["percentile"].points,
    "ancestors": (1.0,),
    "oracle": (1.0,),
    "all": (1.0,),
}
"""The policies of :func:`earmark.flag` and those of students alone, with their operating points,
mildest first; None: the recipe's percentages."""

_CHANCE = "chance"
"""The part of a name that says that flags go by learnt chances."""

_CHANCE_POINTS = (0.5, 0.3, 0.1, 0.03)
"""Operating points where labels are flagged above a learnt chance."""


@dataclass(frozen=True)
class Strategy:
    """A flag policy, a treatment and a loss, at several operating points.

    ``labels`` names those that a student is trained on (see
    :func:`earmark.datasets.label_versions.read_labels`). ``policy`` and ``treatment`` are both
    None where no label is flagged; with ``by_chance`` they go by the learnt chances and not by the
    teacher. Strategies that differ in their points alone are equal.
    """

    name: str
    labels: str = GIVEN
    policy: str | None = None
    treatment: str | None = None
    loss: str = "bce"
    by_chance: bool = False
    adjusts: bool = False
    points: tuple[float, ...] = field(default=(0.0,), compare=False)

    @property
    def trained(self) -> Strategy:
        """The strategy with which the network is trained: logit adjustment comes after it."""
        if not self.adjusts:
            return self
        name = self.name.removesuffix("adjust").rstrip("+") or BASELINE.name
        return BASELINE if name == BASELINE.name else replace(self, name=name, adjusts=False)

    def loss_point(self, point: float) -> float | None:
        """Return the operating point of the loss; a strategy that flags gives it to its policy."""
        has_own = self.loss != "bce" and self.policy is None
        return point if has_own else None

    @property
    def needs_truth(self) -> bool:
        """Whether only a simulated dataset will do."""
        return self.labels == TRUTH or self.policy == "oracle"


BASELINE = Strategy("mask", policy="percentile", treatment="mask")
"""The paper's mask at 0 per cent: nothing is ignored."""


def parse_strategy(text: str, discard_percents: Sequence[float]) -> Strategy:
    """Read a strategy (see the module's text); points of percentages are ``discard_percents``.

    >>> parse_strategy("precision/soft+adjust@0.9,0.5", [1.0]).points
    (0.9, 0.5)
    >>> parse_strategy("mask", [0, 0.1, 1]).points
    (0.1, 1.0)
    """
    name, _, listed = text.partition("@")
    parts = name.split("+")
    if len(set(parts)) < len(parts):
        raise EarmarkError(f"strategy {text!r}: a part is named twice")
    strategy = Strategy(name)
    for part in parts:
        strategy = _with_part(strategy, part, text)
    if listed and strategy.treatment is None and strategy.loss == "bce":
        raise EarmarkError(f"strategy {text!r}: nothing in it has operating points, but {listed}")
    points = _read_points(listed, text) if listed else _default_points(strategy, discard_percents)
    return replace(strategy, points=points)


def one_point(text: str) -> tuple[Strategy, float]:
    """Read a strategy that has exactly one operating point.

    >>> one_point("hedge@1")[1], one_point("splc")[1]
    (1.0, 0.6)
    """
    strategy = parse_strategy(text, ())
    if len(strategy.points) != 1:
        mildest = strategy.points[0] if strategy.points else 1.0
        raise EarmarkError(
            f"strategy {text!r}: one operating point is needed; write it as in "
            f"'{strategy.name}@{mildest:g}'"
        )
    return strategy, strategy.points[0]


def _with_part(strategy: Strategy, part: str, text: str) -> Strategy:
    if part in (CORRECTED, FILLED, TRUTH):
        return replace(strategy, labels=part)
    if part == "adjust":
        if not text.partition("@")[0].endswith("adjust"):
            raise EarmarkError(f"strategy {text!r}: 'adjust' comes last")
        return replace(strategy, adjusts=True)
    if part in LOSS_POINTS:
        _refuse_second(strategy.loss != "bce", "loss", text)
        return replace(strategy, loss=part)
    _refuse_second(strategy.treatment is not None, "treatment", text)
    by_chance = part.startswith(f"{_CHANCE}/")
    policy, treatment = _flag_and_treat(part.removeprefix(f"{_CHANCE}/"), text, by_chance)
    return replace(strategy, policy=policy, treatment=treatment, by_chance=by_chance)


def _flag_and_treat(part: str, text: str, by_chance: bool) -> tuple[str, str]:
    if part == "distil":
        return "all", "soft"
    if part == "random" and not by_chance:
        return "random", "mask"
    policy, slash, treatment = part.rpartition("/")
    if by_chance and policy == "random":
        raise EarmarkError(f"strategy {text!r}: what is drawn at random goes by no chance")
    if slash and policy not in _POLICY_POINTS:
        near = nearest(policy, _POLICY_POINTS)
        raise EarmarkError(f"strategy {text!r}: no policy {policy!r}{near}")
    if treatment not in TREATMENTS:
        known = (*TREATMENTS, "distil", "random", *LOSS_POINTS)
        known += (CORRECTED, FILLED, TRUTH, "adjust", _CHANCE)
        raise EarmarkError(f"strategy {text!r}: no {treatment!r}{nearest(treatment, known)}")
    default = "global" if by_chance else "percentile"
    return policy or default, treatment


def _refuse_second(has_one: bool, what: str, text: str) -> None:
    if has_one:
        raise EarmarkError(f"strategy {text!r}: there is more than one {what} in it")


def _read_points(listed: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(point) for point in listed.split(","))
    except ValueError:
        raise EarmarkError(
            f"strategy {text!r}: after @ come numbers with commas between, got {listed!r}"
        ) from None


def _default_points(strategy: Strategy, discard_percents: Sequence[float]) -> tuple[float, ...]:
    if strategy.policy is None:
        return LOSS_POINTS.get(strategy.loss, (0.0,))
    if strategy.by_chance and strategy.policy == "global":
        return _CHANCE_POINTS
    points = _POLICY_POINTS[strategy.policy]
    if points is None:
        return tuple(float(percent) for percent in discard_percents if percent > 0)
    return points


@dataclass(frozen=True)
class Student:
    """A network told about its labels by one strategy at one operating point."""

    network: NetworkParams
    train_set: str
    seed: int
    strategy: Strategy = BASELINE
    point: float = 0.0

    @property
    def name(self) -> str:
        """The name of the folder with the scores of the trained network."""
        told = self.trained
        return f"{told.stack_name}-{told.strategy.name.replace('/', '-')}{told.point:g}"

    @property
    def stack_name(self) -> str:
        """What the students have in common that may train at once."""
        labels = "" if self.strategy.labels == GIVEN else f"-{self.strategy.labels}"
        return f"{self.network.name}-{self.train_set}-seed{self.seed}{labels}"

    @property
    def seeded_network(self) -> NetworkParams:
        """The network with the student's seed in place of the recipe's."""
        train = self.network.train.model_copy(update={"seed": self.seed})
        return self.network.model_copy(update={"train": train})

    @property
    def keys(self) -> dict[str, str | int | float]:
        """The columns that identify the student in the result tables."""
        return {
            "student": self.network.name,
            "train_set": self.train_set,
            "seed": self.seed,
            "kind": self.strategy.name,
            "discard_percent": float(self.point),
        }

    @property
    def trained(self) -> Student:
        """The student whose weights this one has: logit adjustment only changes its scores."""
        strategy = self.strategy.trained
        if strategy == BASELINE and self.point == 0:
            return self.baseline
        return replace(self, strategy=strategy)

    @property
    def baseline(self) -> Student:
        """The student that takes labels as they are, to which this one is compared."""
        return Student(self.network, self.train_set, self.seed)


def students_of_sweep(networks: Sequence[NetworkParams], params: SweepParams) -> list[Student]:
    """List the students of a sweep, baselines first within each network, train set and seed.

    Those on corrected labels, whatever the name of the set, follow the strategies ``corrected``
    and ``corrected+mask``.
    """
    strategies = [
        parse_strategy("mask", params.discard_percents),
        parse_strategy("random", params.random_control_percents),
    ]
    if params.labels != GIVEN:
        corrected = [
            parse_strategy(CORRECTED, ()),
            parse_strategy(f"{CORRECTED}+mask", params.discard_percents),
        ]
        strategies += [replace(one, labels=params.labels) for one in corrected]
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    return combine(networks, params.train_sets, params.seeds, [(BASELINE, 0.0), *points])


def combine(
    networks: Sequence[NetworkParams],
    train_sets: Mapping[str, float],
    seeds: Sequence[int],
    points: Sequence[tuple[Strategy, float]],
) -> list[Student]:
    """List a student for every network, train set, seed and point, in that order.

    The smallest train set comes first, however they were named.
    """
    return [
        Student(network, train_set, seed, strategy, float(point))
        for network in networks
        for train_set in sorted(train_sets, key=train_sets.__getitem__)
        for seed in seeds
        for strategy, point in points
    ]


def student_scores(workspace: Workspace, student: Student) -> ScoreFolder:
    """Open the scores of the tune and eval splits by a student's network."""
    return ScoreFolder.open(scores_folder(workspace, student))


def scores_folder(workspace: Workspace, student: Student) -> Path:
    """Return where the scores of a student lie, or will lie."""
    return workspace.student_scores_folder(student.name)


def choose_point(values: Mapping[Point, float]) -> Point:
    """Return the point with the best value; points stand from mild to strong, NaN is passed over.

    >>> choose_point({None: 0.0, 1.0: 0.02, 5.0: 0.02, 10.0: float("nan")})
    1.0
    """
    measured = {point: value for point, value in values.items() if math.isfinite(value)}
    if not measured:
        raise EarmarkError("no operating point could be measured: are there labels to measure by?")
    return max(measured, key=lambda point: measured[point])


def best_point(
    results: pl.DataFrame, metric: str, split: str = "tune", labels: str = "given"
) -> float:
    """Choose the discard percent of one student and train set from the results of a sweep.

    The value of a point is the mean over all of its rows, which are its seeds.
    """
    rows = results.filter(kind="mask", metric=metric, split=split, labels=labels)
    means = rows.group_by("discard_percent").agg(pl.col("value").mean())
    means = means.filter(pl.col("value").is_finite()).sort("discard_percent")
    if means.is_empty():
        raise EarmarkError(
            f"no operating point can be chosen: the results hold no {metric} on the split "
            f"{split!r} by the labels {labels!r}; does the dataset have clips of that split?"
        )
    return float(choose_point(dict(means.iter_rows())))
