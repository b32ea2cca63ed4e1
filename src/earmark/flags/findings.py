"""What labels and scores tell: flags, counts of missing labels, wrong positives, and doubts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import SILENT, Engine, Progress
from earmark.errors import first_few, short_repr
from earmark.flags.estimates import N_FIRST, WEAK_SHARE, MissingEstimates
from earmark.flags.flag import Survey, gather_evidence, survey, suspicious_positives
from earmark.flags.knowledge import Knowledge, in_sample_warning
from earmark.flags.p_missing import Answers, PMissing
from earmark.flags.policies import Evidence, describe_default, policy_told
from earmark.flags.suspects import FlagTable, Suspects
from earmark.labels import Implied, LabelSet, Ontology, find_implied
from earmark.metrics import Interval
from earmark.scores import Chunk, ScoreMatrix, ScoresLike, find_unscored

SAMPLE_CLIPS = 1024
"""Clips, spread evenly over all, whose scores show constant classes."""


@dataclass(frozen=True)
class Findings:
    """The tables of a scan and what is said about them.

    ``thresholds``: discard_percent, class_id, n_implicit, n_ignored, threshold. ``flag_table`` (the
    likeliest first) and ``wrong_positives``: clip_id, class_id, name, logit, rank (and the flags'
    chance). ``classes``: one row per class. ``implied``: clip_id, class_id, child_id, kind; None
    without an ontology. ``estimates`` is what is known of the missing labels, ``p_missing`` the
    model behind it; None where the scores do not know the labels.
    """

    thresholds: pl.DataFrame
    flag_table: FlagTable
    classes: pl.DataFrame
    wrong_positives: pl.DataFrame
    implied: pl.DataFrame | None
    knowledge: Knowledge
    estimates: MissingEstimates
    p_missing: PMissing | None
    data_told: str
    policy_told: str
    implied_told: str
    warnings: tuple[str, ...]

    __repr__ = short_repr

    @property
    def flags(self) -> pl.DataFrame:
        """The flags, the likeliest first, as one table."""
        return self.flag_table.table

    @property
    def n_flags(self) -> int:
        """Number of labels suspected to be missing."""
        return self.flag_table.n_flags

    def with_flags(self, flags: pl.DataFrame) -> Findings:
        """Return the same with other flags (clip_id, class_id, logit, rank, chance)."""
        names = self.classes.select("class_id", "name")
        named = flags.drop("name", strict=False).join(
            names, on="class_id", how="left", maintain_order="left"
        )
        named = _likeliest_first(named.select(self.flag_table.rows(0, 0).columns))
        columns = self.classes.columns
        counted = self.classes.drop("n_flags", "lowest_flag").join(
            _flag_counts(flags), on="class_id", how="left", maintain_order="left"
        )
        counted = counted.with_columns(pl.col("n_flags").fill_null(0).cast(pl.Int64))
        classes = counted.select(columns)
        table = FlagTable.of(named)
        estimates = replace(self.estimates, n_flags=table.n_flags, n_left=table.n_flags)
        if table.n_flags != self.n_flags:
            estimates = replace(estimates, n_right=None)
        return replace(self, flag_table=table, classes=classes, estimates=estimates)


def find(
    labels: LabelSet,
    scores: ScoreMatrix,
    ontology: Ontology,
    policy: str | None,
    options: Mapping[str, Any],
    fill_ancestors: bool = False,
    n_wrong_per_class: int = 20,
    progress: Progress = SILENT,
    *,
    answers: Answers | None = None,
    scores_told: str = "the scores are logits",
    heard_told: str = "",
    out_of_fold: bool = False,
    doubts: Sequence[str] = (),
    engine: Engine | None = None,
) -> Findings:
    """Flag labels, list doubtful positives, and say what is known, in a few passes over the scores.

    ``scores_told``, ``heard_told`` and ``doubts`` are what is known of the scores, what was heard,
    and what is doubtful, from reading them; ``out_of_fold`` says that their model never saw these
    labels. With an ``engine`` the passes over an ``.npy`` file are its tasks.
    """
    meter = progress.job("scan", 2, "steps")
    implied = find_implied(labels, ontology) if ontology.parents else None
    filled = implied.fill() if implied is not None and fill_ancestors else labels
    found = survey(
        filled,
        scores,
        policy=policy,
        ontology=ontology,
        answers=answers,
        engine=engine,
        **_with_gate(options, ontology),
    )
    evidence = found.evidence
    knowledge = evidence.knowledge
    meter.advance(1, "flagged")
    explicit = _explicit_of(labels, filled, evidence.explicit)
    wrong = suspicious_positives(labels, explicit, n_per_class=n_wrong_per_class)
    is_constant = _constant_classes(scores)
    table = _class_table(filled, ontology, found, is_constant)
    warnings = [
        *doubts,
        _in_sample_doubt(evidence, out_of_fold),
        knowledge.rows_told,
        *_class_warnings(filled, scores, is_constant, knowledge),
        *_implied_warnings(implied),
    ]
    meter.advance(1, "listed positives and checked")
    return Findings(
        found.thresholds.table(labels.class_ids),
        FlagTable.named(found.suspects, ontology),
        table,
        _with_names(wrong, ontology),
        None if implied is None else implied.table(),
        knowledge,
        estimate_first(found.suspects, evidence),
        evidence.p_missing if knowledge.is_enough else None,
        f"{_data_told(labels)}; {scores_told}.{heard_told}",
        describe_default(knowledge) if policy is None else policy_told(policy, options),
        _implied_told(implied, fill_ancestors),
        tuple(warning for warning in warnings if warning),
    )


def count_missing(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    flags: Suspects | None = None,
    *,
    ontology: Ontology | None = None,
) -> MissingEstimates:
    """Say what labels and scores tell of missing labels before anyone has listened.

    Of the ``flags``, or of those of the default policy, as a range over what is not known. Answers
    say more (see :func:`earmark.review.estimate_from_answers`).
    """
    evidence = gather_evidence(labels, logits, ontology)
    if flags is None:
        flags = survey(evidence.labels, evidence.scores, policy=None, ontology=ontology).suspects
    return estimate_first(flags, evidence)


def estimate_first(flags: Suspects, evidence: Evidence) -> MissingEstimates:
    """Say how many of some flags are right before the answers are counted."""
    n_right = None
    if evidence.knowledge.is_enough and len(flags):
        rows, columns = flags.rows.astype(np.int64), flags.columns(np.arange(len(flags)))
        n_right = evidence.p_missing.count_present(rows, columns)
    return MissingEstimates(len(flags), len(flags), n_right)


def expect_of_first(evidence: Evidence) -> tuple[int, Interval] | None:
    """Return how many flags a newcomer listens to first, and how many of them are right.

    They are a hundred, or fewer where few labels were given. None where the scores do not know the
    labels.
    """
    if not evidence.knowledge.is_enough:
        return None
    n_first = min(N_FIRST, max(int(evidence.labels.n_positives.sum()) // 5, 1))
    likely = evidence.p_missing.best(n_first)
    return len(likely), evidence.p_missing.count_present(likely.rows, likely.columns)


def is_weak(n_first: int, right: Interval) -> bool:
    """Whether scores are too weak for listening: few of the first flags are right, even at best."""
    return right.value < WEAK_SHARE * n_first


def _in_sample_doubt(evidence: Evidence, out_of_fold: bool) -> str | None:
    """Doubt scores that know the labels too well; those that do not know them were not learnt."""
    if not evidence.knowledge.is_enough:
        return None
    return in_sample_warning(
        evidence.labels, evidence.explicit, evidence.count_above, out_of_fold=out_of_fold
    )


def _with_gate(options: Mapping[str, Any], ontology: Ontology) -> dict[str, Any]:
    gate = {"gate": ontology if options["gate"] else None} if "gate" in options else {}
    return {**options, **gate}


def _explicit_of(
    labels: LabelSet, filled: LabelSet, explicit: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the scores of the labels that were explicit before others were filled in."""
    if filled is labels:
        return explicit
    mine, all_ = (one.clip_rows * one.n_classes + one.columns for one in (labels, filled))
    return explicit[np.searchsorted(all_, mine)]


def _class_table(
    labels: LabelSet, ontology: Ontology, found: Survey, is_constant: NDArray[np.bool_]
) -> pl.DataFrame:
    """Return one row per class: labels, flags and AUC.

    ``threshold`` is the paper's at 1 %, ``lowest_flag`` the lowest score that was flagged. ``auc``
    holds positives against implicit labels of some clips: good to about 0.01. ``note`` says why
    p_missing is not known in a class.
    """
    points, knowledge = found.thresholds, found.evidence.knowledge
    scores = found.evidence.scores
    note = (
        pl.when(pl.Series(find_unscored(scores)))
        .then(pl.lit("no scores"))
        .when(pl.Series(is_constant))
        .then(pl.lit("all scores are equal"))
        .when(not knowledge.is_enough)
        .then(pl.lit("the scores do not know the labels"))
        .when(pl.Series(labels.n_positives == 0))
        .then(pl.lit("no explicit positives"))
        .otherwise(pl.lit(""))
    )
    return pl.DataFrame(
        {
            "class_id": pl.Series(labels.class_ids, dtype=pl.String),
            "name": pl.Series(
                [ontology.name(class_id) for class_id in labels.class_ids], dtype=pl.String
            ),
            "n_positives": labels.n_positives,
            "n_negatives": labels.n_negatives,
            "n_implicit": labels.n_implicit,
            "prior": labels.priors,
            "threshold": points.values[points.discard_percents.index(1.0)],
            "lowest_flag": found.suspects.lowest,
            "n_flags": found.suspects.n_each,
            "auc": pl.Series(knowledge.auc).fill_nan(None).round(4),
        }
    ).with_columns(note=note)


def _flag_counts(flags: pl.DataFrame) -> pl.DataFrame:
    return flags.group_by("class_id").agg(n_flags=pl.len(), lowest_flag=pl.col("logit").min())


def _constant_classes(scores: ScoreMatrix) -> NDArray[np.bool_]:
    """Tell which classes [class] have the same score for all clips."""
    sample = scores.sample(spread_rows(scores))
    suspects = np.flatnonzero((sample == sample[:1]).all(axis=0))
    is_constant = np.zeros(scores.n_classes, bool)
    if not len(suspects):
        return is_constant

    def are_same(chunks: Iterator[Chunk]) -> NDArray[np.bool_]:
        is_same = np.ones(len(suspects), bool)
        for _, values in chunks:
            is_same &= (values[:, suspects] == sample[0, suspects]).all(axis=0)
        return is_same

    is_constant[suspects] = np.all(scores.map(are_same), axis=0)
    return is_constant


def spread_rows(scores: ScoreMatrix) -> NDArray[np.int64]:
    """Return some clips that are spread evenly over all."""
    n_rows = min(SAMPLE_CLIPS, scores.n_clips)
    return np.linspace(0, scores.n_clips, n_rows, endpoint=False, dtype=np.int64)


def _class_warnings(
    labels: LabelSet,
    scores: ScoreMatrix,
    is_constant: NDArray[np.bool_],
    knowledge: Knowledge,
) -> list[str]:
    kinds = {
        "the scores do not know the labels (is their order right?)": knowledge.is_class_doubtful
        & knowledge.is_enough,
        "all scores are equal, so that nothing can be flagged": is_constant,
        "there are no scores (NaN throughout)": find_unscored(scores),
        "no label is implicit, so that none can be missing": labels.n_implicit == 0,
        "there is no explicit positive": labels.n_positives == 0,
    }
    names = np.array(labels.class_ids, object)
    return [
        f"in {int(chosen.sum()):,} of {labels.n_classes:,} classes {what}: "
        f"{first_few(names[chosen].tolist())}"
        for what, chosen in kinds.items()
        if chosen.any()
    ]


def _implied_warnings(implied: Implied | None) -> list[str]:
    if implied is None:
        return []
    warnings = []
    if implied.n_contradictions:
        warnings.append(
            f"{implied.n_contradictions:,} labels contradict the class tree: a class is marked "
            "absent though a class below it is present (implied.csv)"
        )
    return warnings


def _implied_told(implied: Implied | None, is_filled: bool) -> str:
    if implied is None or not (implied.n_implied or implied.n_contradictions):
        return ""
    done = "taken as positives" if is_filled else "counted as evidence; people hear about half"
    return (
        f"The class tree implies {implied.n_implied:,} labels that nobody gave ({done}) and "
        f"contradicts {implied.n_contradictions:,}."
    )


def _data_told(labels: LabelSet) -> str:
    return (
        f"{labels.n_clips:,} clips, {labels.n_classes:,} classes, "
        f"{int(labels.n_positives.sum()):,} explicit positives, "
        f"{int(labels.n_negatives.sum()):,} explicit negatives"
    )


def _likeliest_first(flags: pl.DataFrame) -> pl.DataFrame:
    """Sort by chance, those without one last; what is as likely stays by class and rank."""
    ordered = flags.sort("chance", descending=True, nulls_last=True, maintain_order=True)
    return ordered.with_columns(pl.col("chance").round(4))


def _with_names(table: pl.DataFrame, ontology: Ontology) -> pl.DataFrame:
    """Insert the classes' names after their identifiers."""
    names = {class_id: ontology.name(class_id) for class_id in ontology.class_ids}
    name = pl.col("class_id").replace_strict(names, return_dtype=pl.String).alias("name")
    return table.select("clip_id", "class_id", name, pl.exclude("clip_id", "class_id"))
