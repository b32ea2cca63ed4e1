from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.config import ModelParams
from earmark.models import Examples, build_model, score_and_locate, score_clips
from scenes import band_workspace, open_store


def test_a_clips_score_is_the_logit_of_its_mean_output(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=9, n_frames=240))
    network = build_model(ModelParams(width=0.125), 3).eval()
    rows = np.array([4, 0, 7])
    (logits,), (best,) = score_and_locate(network, Examples(store, rows))
    assert np.array_equal(logits, score_clips(network, Examples(store, rows))[0])
    for place, row in enumerate(rows):
        patches = store.patches(np.full(4, row), np.arange(4))
        with torch.inference_mode():
            outputs = torch.sigmoid(network(torch.from_numpy(patches).float()).double()).numpy()
        mean = outputs.mean(axis=0)
        assert logits[place] == pytest.approx(np.log(mean / (1 - mean)), rel=1e-5)
        assert np.array_equal(best[place], outputs.argmax(axis=0))


def test_tiny_outputs_keep_their_order(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=3))
    network = build_model(ModelParams(width=0.125), 3).eval()
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([-60.0, -61.0, 60.0]))
    (logits,) = score_clips(network, Examples(store, np.array([0])))
    assert logits[0] == pytest.approx([-60.0, -61.0, 60.0])
