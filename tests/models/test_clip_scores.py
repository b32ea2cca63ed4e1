from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.config import ModelParams
from earmark.models import ClipExamples, Examples, build, build_model, score_and_locate, score_clips
from scenes import band_workspace, event_workspace, open_store


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


def test_scores_do_not_depend_on_whether_places_are_asked_for(tmp_path: Path) -> None:
    workspace, _ = event_workspace(tmp_path, n_clips=9)
    examples = ClipExamples(open_store(workspace), np.arange(9))
    probe = build(ModelParams(architecture="attention_probe", n_hidden=8), 24, 3, 2).eval()
    logits, best = score_and_locate(probe, examples)
    assert np.array_equal(logits, score_clips(probe, examples))
    assert best.shape == logits.shape == (2, 9, 3)
