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
from earmark.flags.p_missing import Answers, LikelyLabels
from earmark.flags.policies import Choice, Evidence, check_policy, choose, percentile_flags
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

    ``suspects`` are the flags; ``evidence`` has what else was looked at.
    """

    thresholds: Thresholds
    suspects: Suspects
    evidence: Evidence

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
    is missing; null where that is not known), sorted by class and rank. An explicit label is never
    flagged. With an ``ontology``, labels of classes below count as evidence; with ``answers``
    (twenty or more), the model of missing labels learns from them. With an ``engine`` the passes
    over an ``.npy`` file that go by scores are its tasks, a shard each.

    Policies and their options:

    - ``percentile`` (discard_percent=1.0): the highest per cent of each class; the paper's rule
    - ``precision`` (target=0.5): those whose p_missing is at least the target
    - ``budget`` (n_flags=None, balance=0.0): the likeliest of all classes; what a team can listen
      to. Without a number, 1,000 at most, with p_missing of 10 % or more. With balance 1, recall
      overall and the mean recall over classes count alike; with more, small classes count more
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
    """Find thresholds at all operating points and flags together.

    The same as :func:`thresholds` and :func:`flag`, in two passes over the scores with the policy
    ``percentile`` if no p_missing is asked for, and in three or more otherwise; None asks for the
    best that the scores allow (see :func:`~earmark.flags.policies.choose`).
    """
    check_policy(policy, options)
    scores = open_scores(logits, labels)
    ranks = n_largest(labels, scores, discard_percents)
    is_known = policy == "percentile"  # what is listed is what is flagged
    n_listed = percentile_flags(labels, scores, **options) if is_known else 0
    passes = passes_by(engine)
    only_ranks = is_known and not with_chance
    summary = top_scores(labels, scores, ranks, n_listed, passes, only_ranks=only_ranks)
    points = Thresholds(
        tuple(discard_percents), summary.values, labels.n_implicit, summary.n_greater
    )
    evidence = Evidence(labels, scores, summary.explicit, summary.sample, ontology, answers)
    choice = choose(policy, evidence, options)
    if choice.likely is not None:
        return Survey(points, _by_chance(labels, choice.likely), evidence)
    suspects = _listed(labels, summary if is_known else _list_chosen(evidence, choice, passes))
    if choice.gate is not None:
        suspects = _related(suspects, choice.gate)
    return Survey(points, _with_chances(suspects, evidence) if with_chance else suspects, evidence)


def gather_evidence(
    labels: LabelSet | ArrayLike,
    logits: ScoresLike | ScoreMatrix,
    ontology: Ontology | None = None,
    answers: Answers | None = None,
) -> Evidence:
    """Look at labels and scores without flagging: what the scores know, and p_missing."""
    known = LabelSet.of(labels)
    nothing = survey(known, logits, (), discard_percent=0.0, ontology=ontology, answers=answers)
    return nothing.evidence


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
    """Add p_missing; it is unknown where the scores do not know the labels."""
    if not evidence.knowledge.is_enough or not len(suspects):
        return suspects
    columns = np.repeat(np.arange(len(suspects.n_each)), suspects.n_each)
    log_odds = evidence.p_missing.log_odds_of(suspects.rows.astype(np.int64), columns)
    return replace(suspects, chances=expit(log_odds))


def _by_chance(labels: LabelSet, likely: LikelyLabels) -> Suspects:
    """Return likely labels by class, then by p_missing, then by score, then by clip."""
    by = (likely.rows, -likely.logits, -likely.log_odds, likely.columns)
    own = likely.select(np.lexsort(by))
    n_each = np.bincount(own.columns, minlength=labels.n_classes)
    starts = np.append(0, np.cumsum(n_each))
    rows = own.rows.astype(np.uint32)
    return Suspects(labels, starts, rows, own.logits, expit(own.log_odds))


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

    ``explicit`` are the scores of the explicit labels (``survey(...).evidence.explicit``). Give a
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
