"""Which implicit labels are suspect: flags, and what else labels and scores tell at once.

The rules are in :mod:`earmark.flags.policies`, the thresholds in :mod:`earmark.flags.thresholds`.
:func:`survey` finds all of it together, in few passes over the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from earmark.compute import Engine
from earmark.config import PAPER_DISCARD_PERCENTS
from earmark.errors import EarmarkError, short_repr
from earmark.flags.chances.learnt import Answers
from earmark.flags.chances.sums import Listed
from earmark.flags.counts import Counts
from earmark.flags.policies import (
    Choice,
    Evidence,
    check_policy,
    choose,
    n_to_list,
)
from earmark.flags.suspects import UNKNOWN, Suspects, are_among, lowest_places, sort_with_places
from earmark.flags.thresholds import Thresholds, n_discarded, n_largest
from earmark.labels import LabelSet, Ontology
from earmark.scores import (
    Passes,
    ScoreMatrix,
    ScoresLike,
    Summary,
    open_scores,
    passes_by,
    scores_above,
    top_scores,
)


@dataclass(frozen=True)
class Survey:
    """What one look at labels and scores finds.

    ``suspects`` are the flags; ``explicit`` float32: the scores of the explicit labels, parallel to
    the labels' ``columns``; ``counts`` is None where no chance was asked for.
    """

    thresholds: Thresholds
    suspects: Suspects
    explicit: NDArray[np.float32]
    counts: Counts | None

    __repr__ = short_repr

    @property
    def flags(self) -> pl.DataFrame:
        """The flags as :func:`flag` returns them."""
        return self.suspects.table()


def flag(
    labels: LabelSet | ArrayLike,
    logits: ScoresLike | ScoreMatrix,
    policy: str = "percentile",
    with_chance: bool = True,
    *,
    ontology: Ontology | None = None,
    answers: Answers | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> pl.DataFrame:
    """List the implicit labels that are suspected to be missing.

    ``labels`` are a label set or states [clip, class]; ``logits`` [clip, class] the teacher's.
    Returns clip_id, class_id, logit, rank (within the class, from 1, by score or by chance, as the
    policy goes; equals in the clips' order) and chance (the estimated probability that the label
    is missing; null where the class is not estimable), sorted by class and rank. An explicit label
    is never flagged. With an ``ontology``, labels of classes below count as evidence; with
    ``answers`` (twenty or more), chances are learnt by ear. With an ``engine`` the passes over an
    ``.npy`` file that go by scores are its tasks, a shard each.

    Policies and their options:

    - ``percentile`` (discard_percent=1.0): the highest per cent of each class; the paper's rule
    - ``count``: as many as are estimated to be missing
    - ``precision`` (target=0.5): those whose chance is at least the target
    - ``budget`` (n_flags=None, balance=0.0): the best overall by chance; what a team can listen to.
      Without a number, as many as are expected to be missing, 1,000 at most, of a chance of 10 %
      or more. With balance 1,
      recall overall and the mean recall over classes count alike; with more, small classes count
      more
    - ``positives_quantile`` (quantile="mean" or a number, gate=None): above a quantile of the
      class's own positives; with an ontology as gate, only where a parent or child is labelled
    - ``confident``: probable (p > 0.5) and above the positives' mean, as the confident joint has it
    - ``global`` (probability=0.6): above one probability for all classes

    >>> labels = LabelSet.from_dense([[0], [0], [0], [1], [0]])
    >>> scores = np.array([[4.0], [1.0], [3.0], [9.0], [2.0]])
    >>> flag(labels, scores, discard_percent=25)["clip_id"].to_list()
    ['0']
    """
    deepest = [max(PAPER_DISCARD_PERCENTS)]
    heard: dict[str, Any] = {"ontology": ontology, "answers": answers, "engine": engine}
    known = LabelSet.of(labels)
    return survey(known, logits, deepest, policy, with_chance, **heard, **options).flags


def survey(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    discard_percents: Sequence[float] = PAPER_DISCARD_PERCENTS,
    policy: str | None = "percentile",
    with_chance: bool = True,
    *,
    ontology: Ontology | None = None,
    answers: Answers | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> Survey:
    """Find thresholds at all operating points, flags, and counts of missing labels, together.

    The same as :func:`thresholds` and :func:`flag`, in two passes over the scores with the policy
    ``percentile`` if no chances are asked for, and in three or more otherwise; None asks for the
    best that the scores allow (see :func:`~earmark.flags.policies.choose`). Without chances there
    are no counts.
    """
    check_policy(policy, options)
    scores = open_scores(logits, labels)
    ranks = n_largest(labels, scores, discard_percents)
    is_known = policy == "percentile"  # what is listed is what is flagged
    n_listed = n_to_list(policy, labels, scores, options, ranks.max(axis=0, initial=0))
    passes = passes_by(engine)
    only_ranks = is_known and not with_chance
    found = top_scores(labels, scores, ranks, n_listed, passes, only_ranks=only_ranks)
    listed, found = _listed(labels, found), found.without_lists()
    points = Thresholds(tuple(discard_percents), found.values, labels.n_implicit, found.n_greater)
    evidence = Evidence(labels, scores, found, listed, ontology, answers)
    choice = choose(policy, evidence, options)
    if choice.log_odds is not None or choice.listed is not None:
        suspects = _chosen_by_chance(labels, choice)
    else:
        chosen = listed if is_known else _listed(labels, _list_chosen(evidence, choice, passes))
        gated = chosen if choice.gate is None else _related(chosen, choice.gate)
        suspects = _with_chances(gated, evidence) if with_chance else gated
    counts = evidence.counts if with_chance else None
    return Survey(points, suspects, found.explicit, counts)


def _list_chosen(evidence: Evidence, choice: Choice, passes: Passes) -> Summary:
    """List the labels that a policy chose by their scores."""
    labels, scores = evidence.labels, evidence.scores
    if choice.n_flags is not None:
        no_points = np.empty((0, labels.n_classes), np.int64)
        return top_scores(labels, scores, no_points, choice.n_flags, passes, only_ranks=True)
    assert choice.limits is not None
    return scores_above(labels, scores, choice.limits, passes)


def _listed(labels: LabelSet, found: Summary) -> Suspects:
    """Return the labels that were listed by their scores, without chances."""
    starts = np.append(0, np.cumsum(found.n_listed))
    logits, rows = np.empty(starts[-1], np.float32), np.empty(starts[-1], np.uint32)
    for one, own in zip(found.classes, map(slice, starts[:-1], starts[1:]), strict=True):
        # A class at a time: to unpack a list takes five times its memory.
        logits[own], rows[own] = one.listing()
    return Suspects(labels, starts, rows, logits, np.broadcast_to(UNKNOWN, len(rows)))


def _with_chances(suspects: Suspects, evidence: Evidence) -> Suspects:
    """Look up how likely each is; nobody knows where the scores do not know the labels."""
    if not evidence.counts.knowledge.is_enough:
        return suspects
    columns = np.repeat(np.arange(len(suspects.n_each), dtype=np.uint32), suspects.n_each)
    chances = evidence.counts.chances.of_scored(suspects.rows, columns, suspects.logits)
    return replace(suspects, chances=chances)


def _chosen_by_chance(labels: LabelSet, choice: Choice) -> Suspects:
    """Return the labels that a policy chose by their chances, the likeliest of a class first."""
    assert choice.counts is not None
    listed = choice.listed
    if listed is None:
        assert choice.log_odds is not None
        listed = choice.counts.chances.above(choice.log_odds)
    n_listed = np.bincount(listed.columns, minlength=labels.n_classes)
    n_each = n_listed if choice.n_each is None else np.minimum(n_listed, choice.n_each)
    suspects = _by_chance(labels, listed, n_listed, n_each)
    if choice.n_most is None or len(suspects) <= choice.n_most:
        return suspects
    return _best(suspects, choice.n_most, choice.weights)


def _by_chance(
    labels: LabelSet, listed: Listed, n_listed: NDArray[np.int64], n_each: NDArray[np.int64]
) -> Suspects:
    """Return the likeliest of each class: so many [class] of those that are listed [class].

    By chance, then by score, then by clip; a class at a time, because the list may be long.
    """
    by_class = sort_with_places(listed.columns.astype(np.uint32)).astype(np.uint32)
    starts, ends = np.append(0, np.cumsum(n_each)), np.cumsum(n_listed)
    rows = np.empty(starts[-1], np.uint32)
    logits, chances = np.empty((2, starts[-1]), np.float32)
    for column, own in enumerate(map(slice, starts[:-1], starts[1:])):
        mine = by_class[ends[column] - n_listed[column] : ends[column]]
        by = (listed.rows[mine], -listed.logits[mine], -listed.log_odds[mine])
        mine = mine[np.lexsort(by)[: n_each[column]]]
        rows[own], logits[own] = listed.rows[mine], listed.logits[mine]
        chances[own] = expit(listed.log_odds[mine])
    return Suspects(labels, starts, rows, logits, chances)


def _best(suspects: Suspects, n_most: int, weights: NDArray[np.float64] | None) -> Suspects:
    """Keep those of the highest chance times weight [class]."""
    chances = pl.Series(suspects.chances)
    worth = chances if weights is None else chances * np.repeat(weights, suspects.n_each)
    places = pl.DataFrame({"worth": worth, "logit": suspects.logits}).with_row_index("place")
    likeliest = places.sort("worth", "logit", descending=True, nulls_last=True, maintain_order=True)
    best = likeliest.head(n_most)
    is_kept = np.zeros(len(suspects), bool)
    is_kept[best["place"].to_numpy()] = True
    return suspects.where(is_kept)


def _related(suspects: Suspects, ontology: Ontology) -> Suspects:
    """Keep flags of clips of which a parent or a child of the class is an explicit positive."""
    labels = suspects.labels
    positives = (labels.clip_rows * labels.n_classes + labels.columns)[labels.present]  # ascending
    is_related = np.zeros(len(suspects), bool)
    index = {class_id: column for column, class_id in enumerate(labels.class_ids)}
    for column, class_id in enumerate(labels.class_ids):
        mine = slice(*suspects.starts[column : column + 2])
        firsts = suspects.rows[mine].astype(np.int64) * labels.n_classes
        related = {*ontology.parents.get(class_id, ()), *ontology.children(class_id)}
        for other in related & index.keys():
            is_related[mine] |= are_among(firsts + index[other], positives)
    return suspects.where(is_related)


def suspicious_positives(
    labels: LabelSet,
    explicit: NDArray[np.float32],
    n_per_class: int | None = None,
    percent: float | None = None,
) -> pl.DataFrame:
    """List the lowest-scored explicit positives of each class: labels that may be wrong.

    ``explicit`` float32: the scores of the explicit labels (``survey(...).explicit``). Give a
    number per class or a per cent of the class's positives (rounded down). Returns clip_id,
    class_id, logit, rank (from 1, the lowest), sorted by class and rank.
    """
    if (n_per_class is None) == (percent is None):
        raise EarmarkError("give either n_per_class or percent")
    chosen = np.flatnonzero(labels.present & ~np.isnan(explicit))
    by_class = chosen[sort_with_places(labels.columns[chosen].astype(np.uint32)).astype(np.uint32)]
    n_positives = np.bincount(labels.columns[chosen], minlength=labels.n_classes)
    if percent is not None:
        n_most = n_discarded(n_positives, [percent])[0]
    else:
        n_most = np.full(labels.n_classes, max(int(n_per_class or 0), 0))
    parts = np.split(by_class, np.cumsum(n_positives)[:-1]) if labels.n_classes else []
    lowest_of = [lowest_places(own, explicit[own], n) for own, n in zip(parts, n_most, strict=True)]
    order = np.concatenate([by_class[:0], *lowest_of])
    starts = np.append(0, np.cumsum([len(own) for own in lowest_of], dtype=np.int64))
    rows = labels.clip_rows[order].astype(np.uint32)
    unknown = np.broadcast_to(UNKNOWN, len(order))
    return Suspects(labels, starts, rows, explicit[order], unknown).table().drop("chance")
