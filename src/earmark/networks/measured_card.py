"""A model card with figures: what a finished network scores on clips that it was not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from earmark.datasets import Split, Workspace, open_frames, readable_clips
from earmark.metrics import evaluate
from earmark.networks.clip_scores import score_clips
from earmark.networks.examples import examples_of
from earmark.networks.model_card import ModelCard, named_metrics, write_card
from earmark.networks.saved import load_network
from earmark.runs import NetworkParams


def write_measured_card(
    workspace: Workspace, network: NetworkParams, folder: Path, split: Split = "tune"
) -> ModelCard:
    """Measure a finished network on a split, and write its card with the results.

    The metrics are those of :data:`earmark.metrics.evaluation.METRICS`, named after the split
    (``tune_lwlrap``), those that could be measured; none where the split has no clips, or the
    folder holds a stack of students.
    """
    store = open_frames(workspace, network.model)
    found: Mapping[str, float] = {}
    trained = load_network(folder, store, workspace.labels.class_ids)
    if len(workspace.rows(split)):
        clips = readable_clips(workspace, store, split)
        logits = score_clips(trained, examples_of(network.model, store, clips.store_rows))
        if len(logits) == 1:
            found = evaluate(clips.labels, logits[0]).overall
    return write_card(folder, workspace.ontology, named_metrics(split, found))
