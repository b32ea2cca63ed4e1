"""A rater made of a truth, who answers the queue that learns: what listening would bring."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from earmark.review.judgements import Judgement, JudgementStore
from earmark.review.queues.drawn import DrawnBlock, DrawnBlocks
from earmark.review.queues.live import LiveQueue
from earmark.review.queues.population import Population
from earmark.runs import ReviewParams

_RATER = "scripted"


def answer_from_truth(
    population: Population,
    params: ReviewParams,
    n_answers: int,
    is_present: Callable[[str, str], bool],
) -> NDArray[np.int64]:
    """Let a rater who knows the truth of (clip, class) answer so many labels, block by block.

    Chances are learnt anew after every block, as on the page, and nothing stays on disk. Returns
    the places, among the population's candidates, of the labels that were asked about.
    """
    asked = params.model_copy(update={"n_items": n_answers})
    with (
        tempfile.TemporaryDirectory() as folder,
        JudgementStore(":memory:") as store,
        DrawnBlocks(Path(folder) / "drawn.sqlite", "") as drawn,
        LiveQueue(population, asked, drawn, store, [_RATER]) as live,
    ):
        while (block := live.next_block(_RATER)) is not None:
            store.add_all(_answers(block, is_present))
            live.learn()
        return live.heard().places


def _answers(block: DrawnBlock, is_present: Callable[[str, str], bool]) -> list[Judgement]:
    now = datetime.now(UTC)
    return [
        Judgement(
            id=uuid4(),
            at=now,
            rater=_RATER,
            item=row["item"],
            clip_id=row["clip_id"],
            class_id=row["class_id"],
            answer="present" if is_present(row["clip_id"], row["class_id"]) else "not_present",
        )
        for row in block.items.iter_rows(named=True)
    ]
