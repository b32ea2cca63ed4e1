"""What raters said of implicit labels: answers to learn from, and what is known by them.

Every label that was judged counts once: present, not present, or between the two where raters were
unsure or disagreed. A queue that grows and a queue that measures draw labels with known
probabilities, so totals follow from their answers; other answers, such as imported ones, only teach
the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from earmark.datasets import PAIR, Workspace
from earmark.flags import LEAST_ANSWERS, LEAST_RANDOM, Answers, MissingEstimates, PMissing, bound
from earmark.labels import LabelSet
from earmark.metrics import Interval
from earmark.review.estimates import estimate, judged_labels
from earmark.review.judgements import DECIDED, HOW_PRESENT, JudgementStore, after_adjudication
from earmark.review.precision import Scope, precision_table
from earmark.review.queue_files import open_drawn, read_population, read_queue
from earmark.review.queue_items import GROWING
from earmark.storage import read_noted

LEVEL = 0.9
"""Of the intervals of a total."""


@dataclass(frozen=True)
class HeardLabels:
    """Answers about labels, and what is to be said of them."""

    answers: Answers
    n_at_odds: int
    """Labels about which raters were unsure, or contradicted each other."""
    n_gone: int
    """Labels of clips or classes that the dataset no longer has."""

    @property
    def is_enough(self) -> bool:
        """Whether the model learns from them."""
        return len(self.answers) >= LEAST_ANSWERS

    def describe(self) -> str:
        """Return what became of the answers, in a sentence."""
        if not self.is_enough:
            described = f"p_missing learns from {LEAST_ANSWERS} answers on"
        else:
            described = f"p_missing is fitted to {len(self.answers):,} answers"
            if (self.answers.present > 0.5).all() or (self.answers.present <= 0.5).all():
                described += ", all alike, so that they teach little"
        if self.n_at_odds:
            described += f"; raters were unsure or disagreed about {self.n_at_odds:,}"
        if self.n_gone:
            described += f"; {self.n_gone:,} of clips or classes that are gone are left out"
        return described


def read_heard(workspace: Workspace, labels: LabelSet) -> HeardLabels | None:
    """Read what raters heard in a workspace of labels that nobody had been asked about.

    Clips and classes are those of ``labels``, given or corrected. None where nothing was heard.
    """
    if not workspace.judgements_path.exists():
        return None
    with JudgementStore(workspace.judgements_path, must_exist=True) as store:
        current = after_adjudication(store.current()).filter(pl.col("answer").is_in(DECIDED))
    current = current.join(workspace.labels.rows(), on=PAIR, how="anti")
    if current.is_empty():
        return None
    present = pl.col("answer").replace_strict(HOW_PRESENT, return_dtype=pl.Float64)
    heard = current.group_by(PAIR, maintain_order=True).agg(present=present.mean())
    places = heard.join(_places(labels.clip_ids, "clip_id", "row"), on="clip_id", how="left")
    class_ids = pl.Series(labels.class_ids, dtype=pl.String)
    places = places.join(_places(class_ids, "class_id", "column"), on="class_id", how="left")
    there = places.drop_nulls(["row", "column"])
    answers = Answers(
        there["row"].to_numpy().astype(np.int64),
        there["column"].to_numpy().astype(np.int64),
        there["present"].to_numpy(),
    )
    n_at_odds = int((~there["present"].is_in([0.0, 1.0])).sum())
    return HeardLabels(answers, n_at_odds, len(places) - len(there))


def _places(names: pl.Series, key: str, place: str) -> pl.DataFrame:
    return pl.DataFrame({key: names, place: np.arange(len(names))})


def estimate_from_answers(
    workspace: Workspace, labels: LabelSet, flags: pl.DataFrame, p_missing: PMissing | None
) -> MissingEstimates:
    """State what is known of the missing labels of a workspace: by scores, flags and answers.

    ``labels`` are the labels as given of the scored clips, ``flags`` (clip_id, class_id) those that
    were written, and ``p_missing`` is fitted to both and to the answers; None where the scores do
    not know the labels.
    """
    flags = flags.select(PAIR)
    heard = read_heard(workspace, labels)
    has_queue = workspace.queue_seal_path.exists()
    aim = read_noted(workspace.queue_seal_path).get("aim") if has_queue else None
    if aim in GROWING and heard is not None:
        known = _by_growing_queue(workspace, labels, flags)
        if known is not None:
            return known
    judged = pl.DataFrame(schema={"clip_id": pl.String, "class_id": pl.String})
    answers = None if heard is None else heard.answers
    if answers is not None:
        class_ids = pl.Series(labels.class_ids, dtype=pl.String)
        clip_ids = labels.clip_ids.gather(answers.rows)
        judged = pl.DataFrame({"clip_id": clip_ids, "class_id": class_ids.gather(answers.columns)})
    left = flags.join(judged, on=PAIR, how="anti", maintain_order="left")
    known = MissingEstimates(len(flags), len(left))
    if p_missing is not None and len(left):
        known = replace(known, n_right=p_missing.count_present(*_places_of(labels, left)))
    if answers is None:
        return known
    n_confirmed = int((answers.present > 0.5).sum())
    known = replace(known, n_answers=len(answers), n_confirmed=n_confirmed)
    return _by_random_queue(workspace, labels, known) if aim == "measure" else known


def _places_of(labels: LabelSet, pairs: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return clip and class of labels by their names."""
    class_ids = pl.Series(labels.class_ids, dtype=pl.String)
    rows = pairs.join(_places(labels.clip_ids, "clip_id", "row"), on="clip_id", how="left")
    rows = rows.join(_places(class_ids, "class_id", "column"), on="class_id", how="left")
    there = rows.drop_nulls()
    return (
        there["row"].to_numpy().astype(np.int64),
        there["column"].to_numpy().astype(np.int64),
    )


def _by_growing_queue(
    workspace: Workspace, labels: LabelSet, flags: pl.DataFrame
) -> MissingEstimates | None:
    """State what is known by a queue that grows; None where it is of other labels."""
    population = read_population(workspace).with_flags(flags)
    class_ids = [labels.class_ids[column] for column in population.class_ids]
    classes = pl.DataFrame({"class_id": class_ids}, {"class_id": pl.String})
    if _n_implicit(workspace, labels, classes) != population.candidates.n_labels:
        return None
    with (
        open_drawn(workspace, population) as drawn,
        JudgementStore(workspace.judgements_path, must_exist=True) as store,
    ):
        judged = judged_labels(population, drawn.since(0), store.current())
    return estimate(population, judged)


def _by_random_queue(
    workspace: Workspace, labels: LabelSet, known: MissingEstimates
) -> MissingEstimates:
    """Add the total of the classes of a queue that measures, cell by cell."""
    queue = read_queue(workspace)
    sizes = queue.sizes.filter(pl.col("n_labels") > 0)
    classes = sizes.select("class_id").unique()
    n_labels = int(sizes["n_labels"].sum())
    if n_labels != _n_implicit(workspace, labels, classes):
        return known  # a queue of some of the clips alone says nothing of the others
    with JudgementStore(workspace.judgements_path, must_exist=True) as store:
        table = precision_table(queue, after_adjudication(store.current()), _EVERY_LABEL, LEVEL)
    per_class = table.filter(pl.col("class_id").is_not_null(), scope="all")
    whole = table.filter(pl.col("class_id").is_null(), scope="all").row(0, named=True)
    n_random = whole["n_judged"]
    column_of = {class_id: column for column, class_id in enumerate(labels.class_ids)}
    columns = [column_of[class_id] for class_id in classes["class_id"]]
    known = replace(
        known,
        n_random=n_random,
        n_labels=n_labels,
        n_classes=len(columns),
        n_positives=int(labels.n_positives[columns].sum()),
    )
    if n_random < LEAST_RANDOM or whole["precision_low"] is None:
        return known
    middle = (whole["precision_low"] + whole["precision_high"]) / 2
    ends = (middle * n_labels, whole["low"] * n_labels, whole["high"] * n_labels)
    total = bound(Interval(*ends), known.n_confirmed, n_labels)
    each = {
        row["class_id"]: (row["precision_low"] + row["precision_high"]) / 2 * row["n_labels"]
        for row in per_class.iter_rows(named=True)
        if row["precision_low"] is not None
    }
    scale = total.value / max(sum(each.values()), 1e-300)
    return replace(
        known, total=total, class_totals={name: part * scale for name, part in each.items()}
    )


_EVERY_LABEL = Scope("all labels")


def _n_implicit(workspace: Workspace, labels: LabelSet, classes: pl.DataFrame) -> int:
    """Count the labels of some classes that were implicit in these clips when they were given."""
    clips = pl.DataFrame({"clip_id": labels.clip_ids})
    explicit = workspace.labels.rows().join(clips, on="clip_id", how="semi")
    n_explicit = len(explicit.join(classes, on="class_id", how="semi"))
    return len(classes) * labels.n_clips - n_explicit
