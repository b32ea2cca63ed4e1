from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.audio import log_mel, patches
from earmark.config import ModelParams
from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.models import (
    Examples,
    Strip,
    Tagger,
    load_network,
    score_and_locate,
    stream_patches,
    tagging,
)
from scenes import band_workspace, open_store
from sounds import CLASS_IDS, model_folder, sound, sound_workspace


@pytest.fixture
def model(tmp_path: Path) -> Path:
    workspace = sound_workspace(tmp_path / "w", n_clips=2)
    folder = workspace.model_folder("teacher")
    model_folder(folder, open_store(workspace))
    return folder


@settings(deadline=None, max_examples=30)
@given(
    n_samples=st.integers(0, 60_000),
    block=st.integers(1, 20_000),
    at_once=st.integers(1, 5),
)
def test_streamed_patches_are_those_of_the_whole_waveform(
    n_samples: int, block: int, at_once: int
) -> None:
    waveform = sound(0, n_samples / 16_000)
    blocks = [waveform[first : first + block] for first in range(0, n_samples, block)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tagging, "PATCHES_AT_ONCE", at_once)
        streamed = np.concatenate(list(stream_patches(blocks)))
    assert streamed == pytest.approx(patches(log_mel(waveform)), abs=1e-5)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 40), max_size=20), n_most=st.sampled_from([1, 2, 7, 16]))
def test_a_strip_stays_small_and_keeps_its_means(lengths: list[int], n_most: int) -> None:
    steps = np.random.default_rng(0).normal(size=(sum(lengths), 2)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tagging, "MAX_COLUMNS", n_most)
        strip = Strip(2)
        for part in np.split(steps, np.cumsum(lengths)[:-1]) if lengths else []:
            strip.add(part)
    columns, n = strip.columns, strip.steps_per_column
    assert len(columns) <= n_most + 1
    assert len(columns) == -(-len(steps) // n)
    for column, first in zip(columns, range(0, len(steps), n), strict=True):
        assert column == pytest.approx(steps[first : first + n].mean(axis=0), abs=1e-4)


def test_a_file_gets_the_scores_of_its_clip_in_a_workspace(model: Path) -> None:
    workspace = model.parent.parent
    tags = Tagger.open(model).tag(workspace / "audio" / "clip1.wav")
    store = open_store(Workspace.open(workspace))
    (logits,), (best,) = score_and_locate(load_network(model), Examples(store, np.array([1])))
    assert np.log(tags.scores / (1 - tags.scores)) == pytest.approx(logits[0], abs=1e-3)
    assert tags.best_seconds == pytest.approx(best[0] * 0.48 + 0.4875)
    assert tags.seconds == 1.5
    ranked = [tag.class_id for tag in tags.top(2)]
    assert ranked == [CLASS_IDS[i] for i in np.argsort(-logits[0])[:2]]
    assert tags.top(1)[0].name in ("Hum", "Beep", "Hiss")
    assert tags.outputs.columns.mean(axis=0) == pytest.approx(tags.scores, abs=1e-6)
    timeline = tags.timeline(2)
    assert timeline["class_id"].unique(maintain_order=True).to_list() == ranked
    first = timeline.filter(class_id=ranked[0])
    assert first["start_seconds"].to_list() == pytest.approx([0, 0.48, 0.96])
    assert first["end_seconds"].to_list() == pytest.approx([0.975, 1.455, 1.5])
    assert first["probability"].mean() == pytest.approx(tags.top(1)[0].score, abs=1e-6)


def test_long_files_need_no_more_memory_than_short_ones(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagging, "MAX_COLUMNS", 64)
    monkeypatch.setattr(tagging, "PATCHES_AT_ONCE", 4)
    pieces = []
    monkeypatch.setattr(
        tagging,
        "log_mel",
        lambda waveform, params: pieces.append(len(waveform)) or log_mel(waveform),
    )
    soundfile.write(tmp_path / "long.flac", np.tile(sound(0, 10), 9), 48_000)
    tags = Tagger.open(model).tag(tmp_path / "long.flac")
    assert tags.seconds == pytest.approx(30, abs=0.01)
    assert max(pieces) == 15_600 + 3 * 7_680
    assert tags.outputs.steps_per_column == 1


def test_a_probe_cannot_tag_audio(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path / "w", n_clips=3))
    model_folder(tmp_path / "p", store, ModelParams(architecture="linear_probe"))
    with pytest.raises(EarmarkError, match="linear_probe was trained on embeddings"):
        Tagger.open(tmp_path / "p")
