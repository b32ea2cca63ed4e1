"""A model card with figures: what a finished network scores on clips that it was not trained on."""

from __future__ import annotations

from pathlib import Path

from earmark.evaluation import METRICS, evaluate
from earmark.examples import examples_of
from earmark.frames import FrameStore
from earmark.model_card import ModelCard, write_card
from earmark.networks import load_network
from earmark.params import NetworkParams
from earmark.scoring import readable_clips, score_clips
from earmark.workspace import Split, Workspace


def write_measured_card(
    workspace: Workspace, network: NetworkParams, folder: Path, split: Split = "tune"
) -> ModelCard:
    """Measure a finished network on a split, and write its card with the results.

    The metrics are those of :data:`earmark.evaluation.METRICS`, named after the split
    (``tune_lwlrap``), those that could be measured; none where the split has no clips, or the
    folder holds a stack of students.
    """
    store = FrameStore.open(workspace.frames_folder)
    found: dict[str, float] = {}
    trained = load_network(folder, store)
    if len(workspace.rows(split)):
        clips = readable_clips(workspace, store, split)
        logits, _ = score_clips(trained, examples_of(network.model, store, clips.store_rows))
        if len(logits) == 1:
            overall = evaluate(clips.labels, logits[0]).overall
            found = {f"{split}_{name}": overall[name] for name in METRICS}
    known = {name: value for name, value in found.items() if value == value}  # not NaN
    return write_card(folder, workspace.ontology, known)
