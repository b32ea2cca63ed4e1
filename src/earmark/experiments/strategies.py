"""Strategies by name: which implicit labels are suspect, and what becomes of them.

A strategy is written ``[LABELS+][chance/][POLICY/]TREATMENT[+LOSS][+adjust][@POINT,...]``. One of
the parts is enough: ``mask``, ``precision/soft``, ``count/mask+adjust``, ``hill``,
``corrected+mask``, ``mask@0.5,1,2``, ``chance/soft@0.1``.

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
LOSS           the rivals that need no teacher: ``ll-r``, ``ll-ct``, ``ll-cp``, ``splc``, ``hill``,
               ``asl``, ``an-ls``, ``em``, ``weak-negatives``, ``consistency``
``adjust``     logit adjustment: scores z_c - tau * log(prior_c), tau chosen on ``tune``
=============  ====================================================================================

Every strategy has operating points, from the mildest to the strongest; the baseline, which does
nothing, is milder than all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from earmark.datasets import CORRECTED, FILLED, GIVEN, TRUTH
from earmark.errors import EarmarkError, nearest
from earmark.flags import POLICIES
from earmark.losses import Treatment
from earmark.training import BY_PERCENT, LOSS_NAMES, OWN_POLICIES

POINTS: dict[str, tuple[float, ...]] = {
    "precision": (0.9, 0.7, 0.5, 0.3),
    "positives_quantile": (0.5, 0.25, 0.1, 0.05),
    "psla": (0.5, 0.25, 0.1, 0.05),
    "global": (0.9, 0.6, 0.3),
    "weak-negatives": (0.01,),
    "an-ls": (0.1,),
    "em": (0.1, 0.2),
    "asl": (1.0,),
    "hill": (1.0,),
    "splc": (0.6,),
    "ll-r": (0.1, 0.2, 0.5),
    "ll-ct": (0.1, 0.2, 0.5),
    "ll-cp": (0.1, 0.2, 0.5),
    "consistency": (1.0,),
}
"""Operating points of policies and losses, mildest first, where none are given.

What they mean: see :func:`earmark.flags.flag.flag` and :func:`earmark.training.rivals.make_loss`.
A policy that is not listed has one point, 1.
"""

_CHANCE = "chance"
"""The part of a name that says that flags go by learnt chances."""

_CHANCE_POINTS = (0.5, 0.3, 0.1, 0.03)
"""Operating points where labels are flagged above a learnt chance."""

_RIVALS = tuple(name for name in LOSS_NAMES if name != "bce")
"""The rivals of :mod:`earmark.training.rivals`; ``bce`` is no part of a strategy's name."""


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
    treatment: Treatment | None = None
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


def one_point(text: str, discard_percents: Sequence[float] = ()) -> tuple[Strategy, float]:
    """Read a strategy that has exactly one operating point.

    >>> one_point("hedge@1")[1], one_point("hill")[1]
    (1.0, 1.0)
    """
    strategy = parse_strategy(text, discard_percents)
    if len(strategy.points) != 1:
        mildest = 1.0 if strategy.policy in BY_PERCENT else strategy.points[0]
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
    if part in _RIVALS:
        _refuse_second(strategy.loss != "bce", "loss", text)
        return replace(strategy, loss=part)
    _refuse_second(strategy.treatment is not None, "treatment", text)
    by_chance = part.startswith(f"{_CHANCE}/")
    policy, treatment = _flag_and_treat(part.removeprefix(f"{_CHANCE}/"), text, by_chance)
    return replace(strategy, policy=policy, treatment=treatment, by_chance=by_chance)


def _flag_and_treat(part: str, text: str, by_chance: bool) -> tuple[str, Treatment]:
    if part == "distil":
        return "all", "soft"
    if part == "random" and not by_chance:
        return "random", "mask"
    policy, slash, treatment = part.rpartition("/")
    if by_chance and policy == "random":
        raise EarmarkError(f"strategy {text!r}: what is drawn at random goes by no chance")
    policies = [*POLICIES, *OWN_POLICIES]
    if slash and policy not in policies:
        raise EarmarkError(f"strategy {text!r}: no policy {policy!r}{nearest(policy, policies)}")
    if treatment not in get_args(Treatment):
        known = (*get_args(Treatment), "distil", "random", *_RIVALS)
        known += (CORRECTED, FILLED, TRUTH, "adjust", _CHANCE)
        raise EarmarkError(f"strategy {text!r}: no {treatment!r}{nearest(treatment, known)}")
    default = "global" if by_chance else "percentile"
    return policy or default, treatment  # type: ignore[return-value]


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
    if strategy.policy in BY_PERCENT:
        return tuple(float(percent) for percent in discard_percents if percent > 0)
    if strategy.by_chance and strategy.policy == "global":
        return _CHANCE_POINTS
    if strategy.policy is not None:
        return POINTS.get(strategy.policy, (1.0,))
    return POINTS[strategy.loss] if strategy.loss != "bce" else (0.0,)
