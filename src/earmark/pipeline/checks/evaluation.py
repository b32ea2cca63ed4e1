"""Scores checked: how good they are, held against a file of labels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

from earmark.errors import EarmarkWarning
from earmark.labels import Ontology, read_label_file, refuse_no_labels
from earmark.metrics import Evaluation, evaluate
from earmark.options import Argument
from earmark.scores import ScoreFolder, arrange, leave_out_unscored, open_score_file


def evaluate_scores(
    labels: Annotated[str | Path, Argument("Labels: Parquet or CSV rows.")],
    scores: Annotated[str | Path, Argument("A folder of scores with its clips and classes.")],
) -> Evaluation:
    """Measure a folder of scores against a file of labels: d', lwlrap and average precision."""
    opened = ScoreFolder.open(scores)
    file, scored = read_label_file(labels), open_score_file(scores)
    refuse_no_labels(file.labels, labels)
    kept, left_out = leave_out_unscored(file, opened.clip_ids)
    for warning in left_out:
        warnings.warn(warning, EarmarkWarning, stacklevel=2)
    known = arrange(kept, scored, opened.clip_ids, Ontology(opened.class_ids))
    return evaluate(known, opened.logits, opened.class_ids)
