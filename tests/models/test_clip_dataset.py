from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import earmark
from earmark.audio import FrameStore
from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.models import ClipDataset
from told_workspace import N_TRAIN, N_TUNE, told_workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return told_workspace(tmp_path_factory.mktemp("clips"))[0]


@pytest.mark.parametrize("n_workers", [0, 2])
def test_patches_come_with_the_row_of_their_clip(workspace: Workspace, n_workers: int) -> None:
    data = ClipDataset(workspace.root)
    store = FrameStore.open(workspace.frames_folder)
    loader = DataLoader(data, batch_size=50, shuffle=True, num_workers=n_workers)
    rows_seen = []
    for inputs, rows in loader:
        assert inputs.dtype == torch.float32
        assert inputs.shape[1:] == (4, 8)
        assert rows.dtype == torch.int64
        rows_seen += rows.tolist()
    n_patches = store.n_patches[:N_TRAIN]
    assert sorted(rows_seen) == np.repeat(np.arange(N_TRAIN), n_patches).tolist()
    patch, row = data[int(n_patches[0])]
    assert row == 1
    np.testing.assert_array_equal(patch, store.patches([1], [0])[0].astype(np.float32))


def test_whole_clips_of_all_lengths_make_a_batch(workspace: Workspace) -> None:
    data = ClipDataset(workspace, "tune", "frames")
    assert len(data) == N_TUNE
    batch = next(iter(DataLoader(data, batch_size=5, collate_fn=data.collate, num_workers=1)))
    inputs, lengths, rows = batch
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert inputs.shape == (5, int(lengths.max()), 8)
    for shown, length, row in zip(inputs, lengths, rows, strict=True):
        np.testing.assert_array_equal(shown[:length], data[int(row)][0])
        assert not shown[length:].any()


def test_rows_are_those_of_labels_and_supervision(workspace: Workspace) -> None:
    data = ClipDataset(workspace.root, inputs="frames")
    told = earmark.Supervision.from_workspace(workspace.root, "hedge@10")
    assert data.clip_ids == told.labels.clip_ids.to_list()
    assert data.labels.states().tolist() == told.labels.states().tolist()
    by_hand = earmark.Supervision(
        data.labels, workspace.scores_folder("teacher") / "logits.npy", "hedge@10"
    )
    rows = [row for _, row in (data[3], data[-1])]
    assert rows == [3, N_TRAIN - 1]
    assert torch.equal(by_hand.targets(rows)[0], told.targets(rows)[0])


def test_it_can_be_sent_to_another_process(workspace: Workspace) -> None:
    data = ClipDataset(workspace.root)
    sent = pickle.dumps(data)
    assert len(sent) < 100_000, "frames are read there, and not sent"
    again = pickle.loads(sent)
    assert torch.equal(again[7][0], data[7][0])
    assert repr(again) == repr(data)
    assert f"items of {N_TRAIN} clips" in repr(data)


def test_it_ends_where_its_clips_end(workspace: Workspace) -> None:
    data = ClipDataset(workspace, "tune", "frames")
    assert len(list(data)) == N_TUNE
    with pytest.raises(IndexError, match=f"item {N_TUNE} of {N_TUNE}"):
        data[N_TUNE]


def test_what_is_not_there_is_named(workspace: Workspace) -> None:
    with pytest.raises(EarmarkError, match="did you mean 'patches'"):
        ClipDataset(workspace, inputs="patch")  # type: ignore[arg-type]
    with pytest.raises(EarmarkError, match="no finished frame store"):
        ClipDataset(workspace, inputs="embeddings")
    with pytest.raises(EarmarkError, match="names no sound file"):
        ClipDataset(workspace, inputs="waveforms")
    with pytest.raises(EarmarkError, match="no clip is in it"):
        ClipDataset(workspace, "eval")


@pytest.mark.parametrize("with_frames", [False, True])
def test_waveforms_are_read_where_they_are_asked_for(tmp_path: Path, with_frames: bool) -> None:
    pytest.importorskip("soundfile")
    from sounds import sound, sound_workspace

    workspace = sound_workspace(tmp_path, n_clips=4)
    if not with_frames:
        shutil.rmtree(workspace.frames_folder)
    data = ClipDataset(workspace, inputs="waveforms", seconds=2.0)
    assert len(data) == 3
    loader = DataLoader(data, batch_size=3, num_workers=1)
    ((inputs, rows),) = list(loader)
    assert inputs.shape == (3, 32_000)
    for waveform, row in zip(inputs, rows.tolist(), strict=True):
        expected = sound(row)
        np.testing.assert_allclose(waveform[: len(expected)], expected, atol=1e-3)
        assert not waveform[len(expected) :].any()
    assert ClipDataset(workspace, inputs="waveforms", seconds=0.5)[0][0].shape == (8_000,)
    assert ClipDataset(workspace, inputs="waveforms")[0][0].shape == (24_000,)
