"""Small reviews with known truth: labels, scores, a queue, and raters who answer from the truth."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import polars as pl

from earmark.config import ReviewParams
from earmark.labels import LabelSet, Ontology
from earmark.review import JUDGEMENT_SCHEMA, Judgement, QueueSnapshot, make_queue

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SMALL = ReviewParams(
    aim="measure", discard_percents=(0, 5, 10, 20), flags_per_block=12, blocks_per_class=3
)


def make_scores(
    n_clips: int = 400, n_classes: int = 3, seed: int = 0
) -> tuple[LabelSet, LabelSet, np.ndarray]:
    """Return labels, truth and scores: positives score higher, and half of them are missing."""
    rng = np.random.default_rng(seed)
    is_present = rng.random((n_clips, n_classes)) < 0.2
    states = np.where(is_present, 1, -1).astype(np.int8)
    scores = rng.normal(2.0 * is_present, 1).astype(np.float32)
    was_asked = rng.random(states.shape) < np.where(is_present, 0.5, 0.1)
    names = [f"clip{i}" for i in range(n_clips)], [f"class{i}" for i in range(n_classes)]
    labels = LabelSet.from_dense(np.where(was_asked, states, 0), *names)
    return labels, LabelSet.from_dense(states, *names), scores


def small_queue(params: ReviewParams = SMALL, **kwargs: int) -> tuple[QueueSnapshot, LabelSet]:
    """Return a queue and the truth that it is about."""
    labels, truth, scores = make_scores(**kwargs)
    return make_queue(labels, scores, Ontology(labels.class_ids), params), truth


def uuid(number: int) -> UUID:
    return UUID(int=number, version=4)


def judgement(number: int, answer: str | None = "present", **changes: object) -> Judgement:
    """Return a judgement; its number gives id, time and item unless they are given."""
    values: dict[str, object] = {
        "id": uuid(number),
        "at": START + timedelta(seconds=number),
        "rater": "ann",
        "item": f"item{number}",
        "clip_id": f"clip{number}",
        "class_id": "class0",
        "answer": answer,
        "heard_seconds": 1.5,
    }
    return Judgement.model_validate(values | changes)


def table(*judgements: Judgement) -> pl.DataFrame:
    """Return judgements as a store returns them."""
    return pl.DataFrame([one.row() for one in judgements], JUDGEMENT_SCHEMA, orient="row")


def answer_all(
    items: pl.DataFrame,
    truth: LabelSet,
    rater: str = "ann",
    *,
    first: int = 0,
    slip: Callable[[str], str] = lambda answer: answer,
    **changes: object,
) -> pl.DataFrame:
    """Answer items from the truth; ``slip`` turns the right answer into what the rater says."""
    present = {(clip, name): yes for clip, name, yes in truth.rows().iter_rows()}
    return table(
        *(
            judgement(
                first + number,
                slip("present" if present[clip_id, class_id] else "not_present"),
                rater=rater,
                item=item,
                clip_id=clip_id,
                class_id=class_id,
                **changes,
            )
            for number, (item, clip_id, class_id) in enumerate(
                items.select("item", "clip_id", "class_id").iter_rows()
            )
        )
    )
