"""A small workspace that can be checked: labels of which some are missing, scores, and answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from earmark import pipeline
from earmark.config import ReviewParams
from earmark.datasets import Workspace, write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.scores import write_score_folder
from suspects import world

NAMES = ("Bark", "Rain", "Male speech, man speaking", "Odd | name", "Bell")
CLASS_IDS = tuple(f"/m/{number}" for number in range(len(NAMES)))


def checkable_workspace(root: Path, n_clips: int = 800) -> tuple[Workspace, np.ndarray]:
    """Write clips with labels and scores that know them; return which labels are missing, too."""
    states, scores, missing = world(0.97, n_clips, len(NAMES), priors=(0.1, 0.2))
    clip_ids = [f"clip{number:03}" for number in range(n_clips)]
    clips = pl.DataFrame({"clip_id": clip_ids, "source": clip_ids}).with_columns(
        audio=pl.lit(None, pl.String),
        start_seconds=pl.lit(None, pl.Float64),
        end_seconds=pl.lit(10.0),
        split=pl.lit("train"),
    )
    ontology = Ontology(CLASS_IDS, names=dict(zip(CLASS_IDS, NAMES, strict=True)))
    labels = LabelSet.from_dense(states, clip_ids, CLASS_IDS)
    workspace = write_dataset(root, clips, ontology, labels)
    write_score_folder(
        workspace.scores_folder("teacher"),
        pl.Series(clip_ids),
        CLASS_IDS,
        scores,
        np.zeros(scores.shape, np.uint16),
        out_of_fold=True,
        digest="scores",
    )
    return workspace, missing


MEASURED = ReviewParams(aim="measure", flags_per_block=20, blocks_per_class=2)


def hear_all(
    workspace: Workspace,
    missing: np.ndarray,
    raters: tuple[str, ...] = ("ann",),
    params: ReviewParams = MEASURED,
) -> None:
    """Draw a queue and answer it from the truth, each rater in turn.

    Of a queue that learns, the blocks that are drawn ahead.
    """
    items = pipeline.draw_queue(workspace, params=params).queue.items
    is_present = missing | (workspace.labels.states() > 0)
    rows = {clip_id: row for row, clip_id in enumerate(workspace.clips["clip_id"])}
    pairs = items.select("clip_id", "class_id").unique(maintain_order=True).rows()
    answers = [
        {
            "clip_id": clip_id,
            "class_id": class_id,
            "answer": "present"
            if is_present[rows[clip_id], CLASS_IDS.index(class_id)]
            else "not_present",
            "rater": raters[number % len(raters)],
            "whole_clip": number % 2 == 0,
        }
        for number, (clip_id, class_id) in enumerate(pairs)
    ]
    path = workspace.root / "answers.parquet"
    pl.DataFrame(answers).write_parquet(path)
    pipeline.import_judgements(workspace, path)
