from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.evaluation import evaluate
from earmark.examples import Examples
from earmark.measured_card import write_measured_card
from earmark.model_card import read_card
from earmark.networks import load_network
from earmark.scoring import readable_clips, score_clips
from scenes import band_workspace, open_store
from sounds import model_folder


def test_the_card_has_the_networks_figures_on_the_tune_split(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w")
    folder, store = tmp_path / "m", open_store(workspace)
    network = model_folder(folder, store).network
    card = write_measured_card(workspace, network, folder)
    assert card == read_card(folder)
    clips = readable_clips(workspace, store, "tune")
    (logits,), _ = score_clips(load_network(folder), Examples(store, clips.store_rows))
    overall = evaluate(clips.labels, logits).overall
    assert card.metrics["tune_lwlrap"] == pytest.approx(overall["lwlrap"])
    assert card.metrics["tune_map"] == pytest.approx(overall["map"])
    assert all(np.isfinite(value) for value in card.metrics.values())


def test_a_stack_has_a_card_without_figures(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w", n_clips=12)
    network = model_folder(tmp_path / "m", open_store(workspace), n_students=2).network
    assert write_measured_card(workspace, network, tmp_path / "m").metrics == {}
