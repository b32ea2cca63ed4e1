from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.config import ModelParams, NetworkParams
from earmark.datasets import Workspace, readable_clips
from earmark.metrics import METRICS, evaluate
from earmark.models import (
    Examples,
    build,
    load_network,
    read_card,
    score_clips,
    write_measured_card,
    write_network,
)
from scenes import CLASS_IDS, band_workspace, open_store

NETWORK = NetworkParams(name="m", model=ModelParams(width=0.125))


def untrained(workspace: Workspace, folder: Path, n_students: int = 1) -> Path:
    store = open_store(workspace)
    network = build(NETWORK.model, store.n_bands, len(CLASS_IDS), n_students)
    write_network(folder, NETWORK, network, CLASS_IDS, store, "run")
    return folder


def test_the_card_has_the_networks_figures_on_the_tune_split(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w")
    folder, store = untrained(workspace, tmp_path / "m"), open_store(workspace)
    card = write_measured_card(workspace, NETWORK, folder)
    assert card == read_card(folder)
    clips = readable_clips(workspace, store, "tune")
    (logits,) = score_clips(load_network(folder), Examples(store, clips.store_rows))
    overall = evaluate(clips.labels, logits).overall
    assert set(card.metrics) <= {f"tune_{name}" for name in METRICS}
    assert card.metrics["tune_lwlrap"] == pytest.approx(overall["lwlrap"])
    assert card.metrics["tune_map"] == pytest.approx(overall["map"])
    assert all(np.isfinite(value) for value in card.metrics.values())
