from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.audio import FrameStore
from earmark.datasets import read_quarantine
from earmark.errors import EarmarkError
from own_tables import LONG, imported


@pytest.mark.parametrize("shape", [(3, 8), (3, 5, 8)])
def test_one_array_of_embeddings(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).random(shape)
    np.save(tmp_path / "e.npy", array)
    summary = imported(tmp_path, LONG, embeddings=tmp_path / "e.npy")
    store = FrameStore.open(summary.workspace.frames_folder)
    assert store.clip_ids.to_list() == ["a", "b", "c"]
    assert store.meta.dtype == "float32"
    assert store.frames(1) == pytest.approx(array[1].reshape(-1, 8), rel=1e-6)
    assert (summary.n_found, summary.n_missing) == (3, 0)


def test_one_array_needs_clips_in_an_order_and_says_which(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", np.ones((3, 8)))
    with pytest.raises(EarmarkError, match=r"several rows for a clip.*\(--clips FILE\)"):
        imported(tmp_path, LONG, None, embeddings=tmp_path / "e.npy")
    assert not (tmp_path / "w").exists()
    labels = "clip_id,label\na,dog\nb,cat\nc,cat\n"
    notes = imported(tmp_path, labels, None, embeddings=tmp_path / "e.npy").notes
    told = "The first row of e.npy is taken for clip 'a', the last for 'c', as in labels.csv."
    assert told in notes


def test_a_folder_of_embeddings_quarantines_what_cannot_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    folder.mkdir()
    good = np.arange(12, dtype=np.float32).reshape(3, 4)
    faulty = {"b": good[:, :2], "d": np.array([{}], dtype=object), "e": good[:0]}
    faulty["g"] = np.full((3, 4), np.nan, np.float32)
    for name, array in {"a": good, "f": good[0], **faulty}.items():
        np.save(folder / f"{name}.npy", array)
    labels = "clip_id,label\n" + "".join(f"{name},dog\n" for name in "abcdefg")
    summary = imported(tmp_path, labels, None, embeddings=folder)
    store = FrameStore.open(summary.workspace.frames_folder)
    assert store.clip_ids.to_list() == ["a", "f"]
    assert store.n_frames.tolist() == [3, 1]
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (7, 2, 5)
    reasons = dict(read_quarantine(summary.workspace).select("clip_id", "reason").iter_rows())
    assert "[frame, 2] where the first clip has" in reasons["b"]
    assert reasons["c"] == "no embedding file c.npy"
    assert "not an .npy file of numbers" in reasons["d"]
    assert reasons["g"] == "the embedding holds NaN or infinity"
    assert reasons["e"] == "expected an array [frame, dim], got [0, 4]"


def test_no_clip_name_leads_to_an_array_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    np.save(tmp_path / "private" / "voice.npy", np.ones((2, 3), np.float32))
    folder = tmp_path / "data" / "e"
    folder.mkdir(parents=True)
    np.save(folder / "here.npy", np.zeros((2, 3), np.float32))
    (folder / "link.npy").symlink_to("../../private/voice.npy")
    names = ("here", "link", "../../private/voice", str(tmp_path / "private/voice"))
    labels = "".join(("clip_id,class_id\n", *(f"{name},dog\n" for name in names)))
    summary = imported(tmp_path / "data", labels, None, embeddings=folder)
    assert [summary.n_found, summary.n_missing] == [1, 3]
    reasons = read_quarantine(summary.workspace)["reason"]
    assert all("lies outside" in reason for reason in reasons)
    assert not FrameStore.open(summary.workspace.frames_folder).frames(0).any()


def test_embeddings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", np.ones((2, 4)))
    with pytest.raises(EarmarkError, match="embeddings of 2 clips, the dataset 3"):
        imported(tmp_path, LONG, embeddings=tmp_path / "e.npy")
    (tmp_path / "none").mkdir()
    with pytest.raises(EarmarkError, match="not one of the 3 clips has a usable embedding"):
        imported(tmp_path, LONG, embeddings=tmp_path / "none")
    with pytest.raises(EarmarkError, match="no such file or folder"):
        imported(tmp_path, LONG, embeddings=tmp_path / "nowhere")
