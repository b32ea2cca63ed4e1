"""What labels and scores tell: flags, counts of missing labels, wrong positives, and doubts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import logit

from earmark.compute import SILENT, Engine, Progress
from earmark.errors import first_few, short_repr
from earmark.flags.chances.chances import Chances
from earmark.flags.chances.learnt import Answers
from earmark.flags.chances.sums import Listed
from earmark.flags.counts import Counts
from earmark.flags.counts_by_ear import reach_after
from earmark.flags.flag import Survey, survey, suspicious_positives
from earmark.flags.in_sample import in_sample_warning
from earmark.flags.knowledge import Knowledge
from earmark.flags.policies import default_told, policy_told
from earmark.flags.suspects import FLAGS_AT_ONCE, FlagTable, Suspects
from earmark.labels import Implied, LabelSet, Ontology, find_implied
from earmark.scores import Chunk, ScoreMatrix, find_unscored

ANSWERS_MORE = 200
"""Answers by ear of which it is said what they would bring."""

SAMPLE_CLIPS = 1024
"""Clips, spread evenly over all, whose scores show constant classes."""


@dataclass(frozen=True)
class Findings:
    """The tables of a scan and what is said about them.

    ``thresholds``: discard_percent, class_id, n_implicit, n_ignored, threshold. ``flag_table`` (the
    likeliest first) and ``wrong_positives``: clip_id, class_id, name, logit, rank (and the flags'
    chance). ``classes``: one row per class. ``implied``: clip_id, class_id, child_id, kind; None
    without an ontology. ``n_right``: between which numbers those of the right flags lie, and
    ``total``: low, middle and high of the missing labels of all classes that can be estimated;
    ``reach_heard``: about how far off, either way, it would be after ANSWERS_MORE more answers by
    ear; None where that is not known. ``chances`` are those of all labels.
    """

    thresholds: pl.DataFrame
    flag_table: FlagTable
    classes: pl.DataFrame
    wrong_positives: pl.DataFrame
    implied: pl.DataFrame | None
    knowledge: Knowledge
    n_right: tuple[float, float] | None
    total: tuple[float, float, float] | None
    reach_heard: float | None
    chances: Chances
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

    @property
    def is_heard(self) -> bool:
        """Whether chances and numbers were learnt by ear."""
        return self.chances.is_learnt

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
        return replace(self, flag_table=FlagTable.of(named), classes=classes, n_right=None)


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
    """Flag, count and list, in three passes over the scores: four with a class tree, or more.

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
    meter.advance(1, "flagged and counted")
    explicit = _explicit_of(labels, filled, found.explicit)
    wrong = suspicious_positives(labels, explicit, n_per_class=n_wrong_per_class)
    is_constant = _constant_classes(scores)
    table = _class_table(filled, ontology, found, is_constant)
    warnings = [
        *doubts,
        _in_sample_doubt(filled, _counts(found), out_of_fold),
        _counts(found).knowledge.rows_told,
        *_class_warnings(filled, scores, is_constant, _counts(found).knowledge),
        *_implied_warnings(implied),
    ]
    is_known = _counts(found).knowledge.is_enough
    meter.advance(1, "listed positives and checked")
    return Findings(
        found.thresholds.table(labels.class_ids),
        FlagTable.named(found.suspects, ontology),
        table,
        _with_names(wrong, ontology),
        None if implied is None else implied.table(),
        _counts(found).knowledge,
        _n_right(found),
        _counts(found).total if is_known else None,
        reach_after(_counts(found).chances, ANSWERS_MORE) if is_known else None,
        _counts(found).chances,
        f"{_data_told(labels)}; {scores_told}.{heard_told}",
        default_told(_counts(found)) if policy is None else policy_told(policy, options),
        _implied_told(implied, fill_ancestors),
        tuple(warning for warning in warnings if warning),
    )


def _n_right(found: Survey) -> tuple[float, float] | None:
    """Return between which numbers those of the right flags lie; None where nobody knows."""
    counts = _counts(found)
    if not counts.knowledge.is_enough:
        return None
    low = high = 0.0
    for part in _parts(found.suspects):
        own_low, own_high = counts.chances.n_right(part)
        low, high = low + own_low, high + own_high
    return low, high


def _parts(suspects: Suspects) -> Iterator[Listed]:
    """Yield flags, some at a time, with their log-odds; nothing here goes by the clip."""
    for start in range(0, len(suspects), FLAGS_AT_ONCE):
        places = np.arange(start, min(start + FLAGS_AT_ONCE, len(suspects)))
        chances = suspects.chances[places].astype(np.float64)
        log_odds = logit(chances.clip(1e-9, 1 - 1e-9))
        columns = suspects.columns(places).astype(np.int32)
        yield Listed(np.zeros_like(places), columns, suspects.logits[places], log_odds)


def _in_sample_doubt(labels: LabelSet, counts: Counts, out_of_fold: bool) -> str | None:
    """Doubt scores that know the labels too well; those that do not know them were not learnt."""
    if not counts.knowledge.is_enough:
        return None
    return in_sample_warning(labels, counts.histograms, out_of_fold=out_of_fold)


def _counts(found: Survey) -> Counts:
    assert found.counts is not None  # the survey was asked for chances
    return found.counts


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
    """Return one row per class: labels, flags, estimated missing labels, AUC.

    ``threshold`` is the paper's at 1 %, ``lowest_flag`` the lowest score that was flagged. Where
    the number of missing labels is not estimable, ``note`` says why. ``auc`` holds positives
    against implicit labels and comes from a histogram: good to about 0.01.
    """
    counts, points = _counts(found), found.thresholds
    table = counts.table.with_columns(
        reason=pl.when(pl.Series(is_constant))
        .then(pl.lit("all scores are equal"))
        .otherwise("reason"),
        name=pl.Series([ontology.name(class_id) for class_id in labels.class_ids]),
        n_negatives=labels.n_negatives,
        prior=labels.priors,
        threshold=points.values[points.discard_percents.index(1.0)],
        auc=pl.Series(counts.knowledge.auc).fill_nan(None).round(4),
        lowest_flag=found.suspects.lowest,
        n_flags=found.suspects.n_each,
    )
    is_known = pl.col("reason").is_null()
    numbers = ("n_missing", "low", "high", "upper_bound")
    return table.with_columns(
        *(pl.when(~pl.Series(is_constant)).then(pl.col(name).round(1)) for name in numbers),
        note=pl.when(is_known).then(pl.lit("")).otherwise("not estimable: " + pl.col("reason")),
    ).select(
        "class_id", "name", "n_positives", "n_negatives", "n_implicit", "prior", "threshold",
        "lowest_flag", "n_flags", *numbers, "method", "note", "auc",
    )  # fmt: skip


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
