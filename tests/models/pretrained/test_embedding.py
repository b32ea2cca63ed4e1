"""What a pretrained network hears in a workspace is kept, once, in two stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from earmark.audio import FrameStore, read_clip
from earmark.compute import LocalEngine
from earmark.config import PretrainedParams
from earmark.errors import EarmarkError
from earmark.models.pretrained import (
    ModelOutput,
    NetworkExtractor,
    NetworkFacts,
    NetworkFeatures,
    PretrainedNetwork,
    embed_clips,
    embedding,
    open_network,
)
from made_up_onnx import loudness
from meters import CountingMeter
from noises import content, make_workspace, noisy_workspace

ONE = LocalEngine(1)


@pytest.fixture(scope="module")
def yamnet(yamnet_files: Path) -> PretrainedParams:
    return PretrainedParams(network=str(yamnet_files / "yamnet.h5"))


@pytest.fixture(scope="module")
def network(yamnet: PretrainedParams) -> PretrainedNetwork:
    return open_network(yamnet)


def stores_of(heard: NetworkFeatures) -> tuple[FrameStore, FrameStore]:
    assert heard.embeddings is not None
    assert heard.outputs is not None
    return heard.embeddings, heard.outputs


def test_both_stores_hold_what_the_network_hears(
    tmp_path: Path, yamnet: PretrainedParams, network: PretrainedNetwork
) -> None:
    workspace, progress = noisy_workspace(tmp_path), CountingMeter()
    heard = embed_clips(workspace, yamnet, engine=ONE, progress=progress)
    embeddings, outputs = stores_of(heard)
    assert heard.facts == network.facts
    assert (embeddings.folder, outputs.folder) == (tmp_path / "embeddings", tmp_path / "outputs")
    for i in range(6):
        (expected,) = network.infer([read_clip(tmp_path / "audio" / f"{i}.wav", 16_000)])
        assert expected.embeddings is not None
        assert embeddings.frames(i).dtype == np.float16
        assert outputs.frames(i).dtype == np.float32
        assert np.array_equal(embeddings.frames(i), expected.embeddings.astype(np.float16))
        assert np.array_equal(outputs.frames(i), expected.logits)
    assert embeddings.patch_seconds == outputs.patch_seconds == pytest.approx((0.48, 0.96))
    assert progress.jobs == [("embed with yamnet", 6, "clips")]
    assert progress.n_done == 6
    assert not workspace.has_frames(), "log-mel frames are another store"


def test_what_was_heard_is_found_again(tmp_path: Path, yamnet: PretrainedParams) -> None:
    workspace = noisy_workspace(tmp_path, 3)
    first = stores_of(embed_clips(workspace, yamnet, engine=ONE))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*")}
    progress = CountingMeter()
    again = stores_of(embed_clips(workspace, yamnet, engine=ONE, progress=progress))
    assert [one.digest for one in again] == [one.digest for one in first]
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*")}
    assert progress.jobs == []


def test_another_network_hears_again(tmp_path: Path, yamnet: PretrainedParams) -> None:
    workspace = noisy_workspace(tmp_path / "w", 3)
    embed_clips(workspace, yamnet, engine=ONE)
    other = PretrainedParams(network=str(loudness(tmp_path / "loud.onnx")))
    heard = embed_clips(workspace, other, engine=ONE)
    assert heard.embeddings is None
    assert heard.outputs is not None
    assert heard.outputs.n_bands == 2
    assert heard.outputs.patch_seconds is None, "a whole clip has no patches"
    assert heard.outputs.meta.network_facts is not None
    assert heard.outputs.meta.network_facts["name"] == "loud"


def test_an_interrupt_costs_one_shard_and_changes_no_byte(
    tmp_path: Path, yamnet: PretrainedParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "CLIPS_PER_SHARD", 2)
    whole = noisy_workspace(tmp_path / "whole")
    embed_clips(whole, yamnet, engine=ONE)
    stopped = noisy_workspace(tmp_path / "stopped")
    heard_before = NetworkExtractor.frames
    seen: list[int] = []

    def interrupted(self: NetworkExtractor, waveform: np.ndarray) -> tuple[np.ndarray, ...]:
        seen.append(len(waveform))
        if len(seen) == 4:  # in the second of three shards
            raise KeyboardInterrupt
        return heard_before(self, waveform)

    monkeypatch.setattr(NetworkExtractor, "frames", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embed_clips(stopped, yamnet, engine=ONE)
    for folder in (stopped.embeddings_folder, stopped.outputs_folder):
        left = sorted(path.name for path in folder.iterdir())
        assert left == ["shard-00000.npy", "shard-00000.parquet"], "nothing half-written"
    embed_clips(stopped, yamnet, engine=ONE)
    assert len(seen) == 4 + 4, "two clips of six were kept"
    for name in ("embeddings", "outputs"):
        assert content(stopped.root / name) == content(whole.root / name)


def test_a_workspace_without_sound_is_told_what_to_do(
    tmp_path: Path, yamnet: PretrainedParams
) -> None:
    workspace = make_workspace(tmp_path, [None, None])
    with pytest.raises(EarmarkError, match=r"no clip has a sound file.*--audio FOLDER.*--from"):
        embed_clips(workspace, yamnet, engine=ONE)


def test_sounds_come_at_the_rate_that_the_network_takes(tmp_path: Path) -> None:
    path = tmp_path / "w" / "tone.wav"
    path.parent.mkdir()
    soundfile.write(path, 0.5 * np.sin(np.arange(44_100) / 7), 44_100)
    workspace = make_workspace(tmp_path / "w", ["tone.wav"])
    loud = str(loudness(tmp_path / "loud.onnx"))
    params = PretrainedParams(network=loud, sample_rate_hz=8_000, scale="logits")
    seen: list[int] = []
    heard = embedding._opened(params, ("A",)).infer

    def counted(waveforms: list[np.ndarray]) -> list[ModelOutput]:
        seen.extend(len(one) for one in waveforms)
        return heard(waveforms)

    embedding._opened(params, ("A",)).infer = counted  # type: ignore[method-assign]
    embed_clips(workspace, params, engine=ONE)
    assert seen == [8_000]


FACTS = NetworkFacts(
    name="made up",
    digest="d",
    sample_rate_hz=16_000,
    frame_seconds=1.0,
    hop_seconds=1.0,
    n_features=2,
    n_outputs=1,
)


@pytest.mark.parametrize("value", [1e6, np.nan, -np.inf])
def test_numbers_that_cannot_be_kept_are_refused(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    class Loud:
        facts = FACTS

        def infer(self, waveforms: list[np.ndarray]) -> list[ModelOutput]:
            embeddings = np.array([[1.0, value]], np.float32)
            return [ModelOutput(embeddings, np.zeros((1, 1), np.float32)) for _ in waveforms]

    monkeypatch.setattr(embedding, "_opened", lambda *_: Loud())
    extractor = NetworkExtractor(PretrainedParams(network="loud.onnx"), (), FACTS)
    with pytest.raises(EarmarkError, match=r"loud\.onnx: it gives .*no number.*--embedding"):
        extractor.frames(np.zeros(4, np.float32))
