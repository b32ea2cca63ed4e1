"""What raters heard of implicit labels, as answers that chances learn from.

Every label that was judged counts once: present, not present, or between the two where raters were
unsure or at odds. Of a queue in random order it is known how many labels an answer stands for: the
labels of its cell (class and band) for each answer there; the labels of its band in all classes
while some cells were not heard yet, because blocks come in a random order of the classes. Answers
of other queues, those chosen by their chances, or brought from elsewhere, teach as well, but they
stand for nobody knows how many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from earmark.datasets import PAIR, Workspace
from earmark.errors import counted
from earmark.flags import LEAST_ANSWERS, Answers
from earmark.labels import LabelSet
from earmark.review.estimates import heard_of, stands_for
from earmark.review.judgements import DECIDED, HOW_PRESENT, JudgementStore, after_adjudication
from earmark.review.queue_files import open_drawn, read_population
from earmark.review.queue_items import GROWING
from earmark.storage import read_noted, read_table


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
        """Whether chances learn from them."""
        return len(self.answers) >= LEAST_ANSWERS

    @property
    def told(self) -> str:
        """What was heard, and what became of it, in a sentence."""
        answers = self.answers
        n_present = int((answers.present > 0.5).sum())
        told = f"by ear {n_present:,} of {counted(len(answers), 'label')} were there"
        if self.n_at_odds:
            told += f", raters unsure or at odds about {self.n_at_odds:,}"
        if self.n_gone:
            told += f"; {self.n_gone:,} of clips or classes that are gone are left out"
        if not self.is_enough:
            return f"{told}; chances learn from {LEAST_ANSWERS} on"
        if n_present in (0, len(answers)):
            told += "; all alike, so that they teach little"
        return f"{told}; chances learnt from them"


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
    stands_for = _stands_for(workspace, labels, there)
    there = there.join(stands_for, on=PAIR, how="left", maintain_order="left")
    # A label that an answer has made explicit is no longer one of those it stands for.
    is_settled = there.join(labels.rows(), on=PAIR, how="left", maintain_order="left")[
        "present_right"
    ]
    settled = is_settled.is_not_null().cast(pl.Float64)
    there = there.with_columns(stands_for=pl.col("stands_for") - settled)
    answers = Answers(
        there["row"].to_numpy().astype(np.int64),
        there["column"].to_numpy().astype(np.int64),
        there["present"].to_numpy(),
        there["stands_for"].fill_null(np.nan).to_numpy(),
    )
    n_at_odds = int((~there["present"].is_in([0.0, 1.0])).sum())
    return HeardLabels(answers, n_at_odds, len(places) - len(there))


def _places(names: pl.Series, key: str, place: str) -> pl.DataFrame:
    return pl.DataFrame({key: names, place: np.arange(len(names))})


def _stands_for(workspace: Workspace, labels: LabelSet, heard: pl.DataFrame) -> pl.DataFrame:
    """Return how many labels each answer stands for, of those that a queue drew at random.

    A queue of some of the clips alone (``earmark review --held-out``) tells nothing of the others.
    """
    if not workspace.queue_seal_path.exists():
        return _unknown(heard)
    aim = read_noted(workspace.queue_seal_path).get("aim")
    if aim in GROWING:
        return _in_sample(workspace, labels, heard)
    return _in_cells(workspace, labels, heard) if aim == "measure" else _unknown(heard)


def _in_sample(workspace: Workspace, labels: LabelSet, heard: pl.DataFrame) -> pl.DataFrame:
    """Return how many labels each answer of a growing queue's sample stands for."""
    population = read_population(workspace)
    with (
        open_drawn(workspace, population) as drawn,
        JudgementStore(workspace.judgements_path, must_exist=True) as store,
    ):
        answered = heard_of(population, drawn.since(0), store.current())
    candidates = population.candidates
    class_ids = [labels.class_ids[column] for column in np.flatnonzero(candidates.worth)]
    classes = pl.DataFrame({"class_id": class_ids}, {"class_id": pl.String})
    if _n_implicit(workspace, labels, classes) != candidates.n_labels:
        return _unknown(heard)
    found = population.names[answered.places].with_columns(
        stands_for=pl.Series(stands_for(candidates, answered)[answered.places])
    )
    return found.filter(pl.col("stands_for").is_finite()).join(heard.select(PAIR), on=PAIR)


def _in_cells(workspace: Workspace, labels: LabelSet, heard: pl.DataFrame) -> pl.DataFrame:
    """Return how many labels each answer of a queue that measures stands for."""
    items = read_table(workspace.queue_path).filter(pl.col("kind").is_in(["flag", "unflagged"]))
    drawn = heard.join(items.select(*PAIR, "band_high"), on=PAIR)
    sizes = read_table(workspace.queue_sizes_path).filter(pl.col("n_labels") > 0)
    if sizes["n_labels"].sum() != _n_implicit(workspace, labels, sizes.select("class_id").unique()):
        return _unknown(heard)
    n_heard = drawn.group_by("class_id", "band_high").agg(n_heard=pl.len())
    cells = sizes.join(n_heard, on=["class_id", "band_high"], how="left")
    by = ["class_id", "band_high"] if cells["n_heard"].null_count() == 0 else ["band_high"]
    share = pl.col("n_labels").sum() / pl.col("n_heard").sum()
    each = cells.group_by(by).agg(stands_for=share)
    return drawn.join(each, on=by, how="left").select(*PAIR, "stands_for")


def _n_implicit(workspace: Workspace, labels: LabelSet, classes: pl.DataFrame) -> int:
    """Count the labels of some classes that were implicit in these clips when they were given."""
    clips = pl.DataFrame({"clip_id": labels.clip_ids})
    explicit = workspace.labels.rows().join(clips, on="clip_id", how="semi")
    n_explicit = len(explicit.join(classes, on="class_id", how="semi"))
    return len(classes) * labels.n_clips - n_explicit


def _unknown(heard: pl.DataFrame) -> pl.DataFrame:
    return heard.select(*PAIR, stands_for=pl.lit(None, pl.Float64))
