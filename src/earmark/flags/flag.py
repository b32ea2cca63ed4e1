"""Which implicit labels are suspect: flags, and what else labels and scores tell at once.

The rules are in :mod:`earmark.flags.policies`, the thresholds in :mod:`earmark.flags.thresholds`.
:func:`survey` finds all of it in two passes over the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.errors import EarmarkError, short_repr
from earmark.flags.chances.learnt import Answers
from earmark.flags.counts import Counts
from earmark.flags.policies import (
    Choice,
    Evidence,
    check_policy,
    choose,
    percentile_flags,
)
from earmark.flags.thresholds import Thresholds, n_discarded, n_largest
from earmark.labels import LabelSet, Ontology
from earmark.runs import PAPER_DISCARD_PERCENTS, Engine
from earmark.scores import (
    Passes,
    ScoreMatrix,
    ScoresLike,
    Summary,
    expit,
    open_scores,
    passes_by,
    scores_above,
    top_scores,
)

FLAG_SCHEMA = {
    "clip_id": pl.String,
    "class_id": pl.String,
    "logit": pl.Float32,
    "rank": pl.Int32,
    "chance": pl.Float32,
}


@dataclass(frozen=True)
class Survey:
    """What one look at labels and scores finds.

    ``flags`` as :func:`flag` returns them; ``explicit`` float32: the scores of the explicit labels,
    parallel to the labels' ``columns``; ``counts`` is None where no chance was asked for.
    """

    thresholds: Thresholds
    flags: pl.DataFrame
    explicit: NDArray[np.float32]
    counts: Counts | None

    __repr__ = short_repr


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
    ``percentile`` and in four with others; None asks for the best that the scores allow (see
    :func:`~earmark.flags.policies.choose`). Without chances there are no counts.
    """
    check_policy(policy, options)
    scores = open_scores(logits, labels)
    ranks = n_largest(labels, scores, discard_percents)
    # How many to list is known beforehand under this policy alone, which saves two passes.
    is_known = policy == "percentile"
    n_listed = percentile_flags(labels, scores, **options) if is_known else 0
    passes = passes_by(engine)
    only_ranks = is_known and not with_chance
    found = top_scores(labels, scores, ranks, n_listed, passes, only_ranks=only_ranks)
    points = Thresholds(tuple(discard_percents), found.values, labels.n_implicit, found.n_greater)
    evidence = Evidence(labels, scores, found, None, ontology, answers)
    choice = choose(policy, evidence, options)
    if choice.log_odds is not None:
        flags = _flags_by_chance(choice)
    else:
        chosen = found if is_known else _list_chosen(evidence, choice, passes)
        flags = _flags_by_score(evidence, choice, chosen, with_chance)
    counts = evidence.counts if with_chance else None
    return Survey(points, _named(labels, flags), found.explicit, counts)


def _list_chosen(evidence: Evidence, choice: Choice, passes: Passes) -> Summary:
    """List the labels that a policy chose by their scores."""
    labels, scores = evidence.labels, evidence.scores
    if choice.n_flags is not None:
        no_points = np.empty((0, labels.n_classes), np.int64)
        return top_scores(labels, scores, no_points, choice.n_flags, passes, only_ranks=True)
    assert choice.limits is not None
    return scores_above(labels, scores, choice.limits, passes)


def _flags_by_score(
    evidence: Evidence, choice: Choice, found: Summary, with_chance: bool
) -> pl.DataFrame:
    """Return the listed labels that the choice leaves: column, row, logit, chance."""
    labels = evidence.labels
    columns = np.repeat(np.arange(labels.n_classes, dtype=np.uint32), found.n_listed)
    logits, rows = found.listing()
    flags = pl.DataFrame({"column": columns, "row": rows, "logit": logits})
    if choice.gate is not None:
        flags = flags.filter(_is_related(labels, choice.gate, flags))
    chance = pl.Series([None], dtype=pl.Float32).new_from_index(0, len(flags))
    if with_chance and evidence.counts.knowledge.is_enough:
        found_at = evidence.counts.chances.at(flags["row"].to_numpy(), flags["column"].to_numpy())
        chance = pl.Series(found_at).fill_nan(None)
    return flags.with_columns(chance=chance)


def _flags_by_chance(choice: Choice) -> pl.DataFrame:
    """Return the labels that a policy chose by their chances, the likeliest of a class first."""
    assert choice.log_odds is not None
    assert choice.counts is not None
    listed = choice.counts.chances.above(choice.log_odds)
    flags = pl.DataFrame(
        {
            "column": listed.columns.astype(np.uint32),
            "row": listed.rows,
            "logit": listed.logits,
            "log_odds": listed.log_odds,
            "chance": expit(listed.log_odds),
        }
    ).sort("column", -pl.col("log_odds"), -pl.col("logit"), "row")
    if choice.n_each is not None:
        place = pl.int_range(pl.len()).over("column")
        n_most = pl.Series(choice.n_each[flags["column"].to_numpy()])
        flags = flags.with_columns(place=place).filter(pl.col("place") < n_most).drop("place")
    if choice.n_most is not None:
        flags = _best(flags, choice.n_most, choice.weights)
    return flags.drop("log_odds")


def _best(flags: pl.DataFrame, n_most: int, weights: NDArray[np.float64] | None) -> pl.DataFrame:
    """Keep the flags of the highest chance times weight, in their order."""
    weight = 1.0 if weights is None else pl.Series(weights[flags["column"].to_numpy()])
    worth = flags.with_columns(worth=flags["chance"] * weight).with_row_index("place")
    best = worth.sort("worth", "logit", descending=True, nulls_last=True).head(n_most)
    return best.sort("place").drop("place", "worth")


def _is_related(labels: LabelSet, ontology: Ontology, flags: pl.DataFrame) -> pl.Series:
    """Tell whether a parent or a child of each flag's class is an explicit positive of its clip."""
    places = labels.clip_rows * labels.n_classes + labels.columns  # ascending
    positives = places[labels.present]
    columns, rows = flags["column"].to_numpy(), flags["row"].to_numpy().astype(np.int64)
    is_related = np.zeros(len(flags), bool)
    index = {class_id: column for column, class_id in enumerate(labels.class_ids)}
    for column, class_id in enumerate(labels.class_ids):
        related = {*ontology.parents.get(class_id, ()), *ontology.children(class_id)}
        mine = np.flatnonzero(columns == column)
        for other in related & index.keys():
            is_related[mine] |= np.isin(rows[mine] * labels.n_classes + index[other], positives)
    return pl.Series(is_related)


def _named(labels: LabelSet, flags: pl.DataFrame) -> pl.DataFrame:
    """Replace numbers by identifiers, and rank the flags of each class."""
    columns = flags["column"].to_numpy()
    return pl.DataFrame(
        {
            "clip_id": labels.clip_ids.gather(flags["row"]),
            "class_id": pl.Series(labels.class_ids, dtype=pl.String).gather(flags["column"]),
            "logit": flags["logit"],
            "rank": _ranks(columns, labels.n_classes),
            "chance": flags["chance"],
        },
        schema=FLAG_SCHEMA,
    )


def _ranks(columns: NDArray[np.integer], n_classes: int) -> NDArray[np.int32]:
    """Number the labels of each class from 1; ``columns`` ascend."""
    edges = np.searchsorted(columns, np.arange(n_classes + 1)).astype(np.int32)
    return np.arange(1, len(columns) + 1, dtype=np.int32) - np.repeat(edges[:-1], np.diff(edges))


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
    by_class = chosen[np.argsort(labels.columns[chosen], kind="stable")]
    n_positives = np.bincount(labels.columns[chosen], minlength=labels.n_classes)
    if percent is not None:
        n_most = n_discarded(n_positives, [percent])[0]
    else:
        n_most = np.full(labels.n_classes, max(int(n_per_class or 0), 0))
    parts = np.split(by_class, np.cumsum(n_positives)[:-1]) if labels.n_classes else []
    lowest_of = [_lowest(own, explicit[own], n) for own, n in zip(parts, n_most, strict=True)]
    order = np.concatenate([by_class[:0], *lowest_of])
    lowest = pl.DataFrame(
        {
            "column": labels.columns[order],
            "row": labels.clip_rows[order],
            "logit": explicit[order],
            "chance": pl.Series([None], dtype=pl.Float32).new_from_index(0, len(order)),
        }
    )
    return _named(labels, lowest).drop("chance")


def _lowest(
    places: NDArray[np.int64], scores: NDArray[np.float32], n_most: int
) -> NDArray[np.int64]:
    """Return the places of the lowest scores, from the lowest on; of equal ones the first."""
    if 0 < n_most < len(places):
        is_low = scores <= np.partition(scores, n_most - 1)[n_most - 1]
        places, scores = places[is_low], scores[is_low]
    return places[np.argsort(scores, kind="stable")[:n_most]]
