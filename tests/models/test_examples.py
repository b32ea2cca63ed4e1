from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.audio import write_store
from earmark.config import FrontEndParams, ModelParams
from earmark.errors import EarmarkError
from earmark.models import (
    ClipExamples,
    Examples,
    build_model,
    build_probe,
    check_front_end,
    examples_of,
    floats,
)
from scenes import band_workspace, open_store

PROBE = ModelParams(architecture="attention_probe", n_hidden=4)
CNN = ModelParams(width=0.125)
NOTHING = np.empty(0, np.int64)


def test_a_network_sees_patches_and_a_probe_whole_clips(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=4, n_frames=240))
    rows = np.array([3, 1])
    patches, clips = (examples_of(params, store, rows) for params in (CNN, PROBE))
    assert patches.per_clip.tolist() == [4, 4]
    assert clips.per_clip.tolist() == [1, 1]
    (patch,) = patches.gather(np.array([1]), np.array([2]))
    assert torch.equal(patch[0], torch.from_numpy(store.frames(1)[96:192].astype(np.float32)))
    frames, n_frames = clips.gather(np.array([0]), np.array([0]))
    assert torch.equal(frames[0], torch.from_numpy(store.frames(3).astype(np.float32)))
    assert n_frames.tolist() == [240]
    assert patches.names(np.array([1, 1, 0])) == ["clip003", "clip001"]


def test_eight_bits_span_minus_two_to_two(tmp_path: Path) -> None:
    frames = np.array([[0, 255], [51, 102]], np.uint8)
    store = write_store(tmp_path, [("clip", frames)])
    values, _ = ClipExamples(store, np.array([0])).gather(np.array([0]), np.array([0]))
    assert values[0].flatten().tolist() == pytest.approx([-2, 2, -1.2, -0.4])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.uint8])
def test_a_batch_is_numbers_as_numpy_casts_them(tmp_path: Path, kind: type) -> None:
    random = np.random.default_rng(0)
    arrays = [(random.normal(100, 20, (n, 5))).astype(kind) for n in (4, 9, 2, 6)]
    store = write_store(tmp_path, [(str(i), own) for i, own in enumerate(arrays)])
    clips = np.array([2, 0, 3, 0])
    frames, lengths = ClipExamples(store, np.arange(4)).gather(clips, clips)
    for own, clip, n in zip(frames, clips, lengths, strict=True):
        assert torch.equal(own[:n], floats(store.frames(clip)))
    (patches,) = Examples(store, np.arange(4)).gather(clips, np.array([1, 2, 3, 0]))
    expected = [arrays[2][1:2], arrays[0][2:3], arrays[3][3:4], arrays[0][0:1]]
    assert torch.equal(patches, torch.from_numpy(np.stack(expected).astype(np.float32)))


def test_no_examples_pass_through_the_networks(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=4))
    network, probe = build_model(CNN, 3), build_probe(PROBE, 64, 3)
    (patches,) = Examples(store, np.arange(4)).gather(NOTHING, NOTHING)
    assert network(patches).shape == (0, 3)
    logits = probe(*ClipExamples(store, np.arange(4)).gather(NOTHING, NOTHING))
    assert logits.shape == (1, 0, 3)


def test_frames_of_another_front_end_are_refused(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=2))
    recipe, other = FrontEndParams(), FrontEndParams(low_hz=60.0)
    check_front_end(store, recipe)  # frames from elsewhere have none
    made = replace(store, meta=replace(store.meta, front_end=other.model_dump()))
    check_front_end(made, other)
    digests = f"{other.digest()}, the recipe has {recipe.digest()}"
    with pytest.raises(EarmarkError, match=rf"{digests}.*earmark features"):
        check_front_end(made, recipe)
