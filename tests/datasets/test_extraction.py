from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from earmark.audio import FrameFormat, FrameStore, frame_store, log_mel, patches, write_store
from earmark.compute import LocalEngine
from earmark.config import FrontEndParams
from earmark.datasets import Workspace, extract_frames, extraction, read_quarantine, write_frames
from earmark.errors import EarmarkError
from earmark.storage import read_table
from noises import (
    PARAMS,
    RATE,
    CountingProgress,
    content,
    make_workspace,
    noisy_workspace,
    write_noise,
)


def test_stores_the_log_mel_frames_of_every_clip_in_half_precision(tmp_path):
    workspace = noisy_workspace(tmp_path)
    store = extract_frames(workspace, PARAMS, clips_per_shard=2, engine=LocalEngine(1))
    assert store.clip_ids.to_list() == workspace.clips["clip_id"].to_list()
    for i in range(6):
        sound, _ = soundfile.read(tmp_path / "audio" / f"{i}.wav", dtype="float32")
        expected = log_mel(sound)
        assert store.frames(i).dtype == np.float16
        assert store.n_frames[i] == len(expected)
        assert store.n_patches[i] == len(patches(expected))
        np.testing.assert_allclose(store.frames(i), expected, atol=2e-3, rtol=0)


def test_segments_of_one_long_file_are_clips_of_their_own(tmp_path):
    sound = write_noise(tmp_path / "long.wav", 4.0, seed=0)
    workspace = make_workspace(tmp_path, ["long.wav", "long.wav"])
    places = {"start_seconds": [0.5, 2.0], "end_seconds": [2.0, 3.0]}
    clips = workspace.clips.with_columns(**{k: pl.Series(v) for k, v in places.items()})
    clips.write_parquet(tmp_path / "clips.parquet")
    store = extract_frames(Workspace(tmp_path), PARAMS, engine=LocalEngine(1))
    np.testing.assert_allclose(store.frames(1), log_mel(sound[32_000:48_000]), atol=2e-3)
    assert store.n_patches.tolist() == [3, 2]


def test_bad_files_are_quarantined_and_the_rest_goes_on(tmp_path):
    write_noise(tmp_path / "good 1.wav", 1.0, seed=1)
    write_noise(tmp_path / "good 2.wav", 1.0, seed=2)
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("no sound")
    soundfile.write(tmp_path / "no_samples.wav", np.zeros(0), RATE)
    soundfile.write(tmp_path / "nan.wav", np.full(9, np.nan), RATE, subtype="FLOAT")
    bad: list[str | None] = ["empty.wav", "text.wav", "no_samples.wav", "nan.wav", "gone.wav", None]
    workspace = make_workspace(tmp_path, ["good 1.wav", *bad, "good 2.wav"])
    store = extract_frames(workspace, PARAMS, clips_per_shard=3, engine=LocalEngine(1))
    quarantine = read_quarantine(workspace)
    assert store.clip_ids.to_list() == ["clip0", "clip7"]
    assert quarantine["audio"].to_list() == bad
    assert len(store.clip_ids) + len(quarantine) == len(workspace.clips)
    reasons = dict(zip(quarantine["audio"], quarantine["reason"], strict=True))
    expected = ("0 bytes", "not a sound file", "no samples", "NaN", "no such file", "no audio file")
    assert all(part in reasons[name] for name, part in zip(bad, expected, strict=True))
    assert store.rows_of(workspace.clips["clip_id"]).tolist() == [0, -1, -1, -1, -1, -1, -1, 1]


def test_a_file_that_was_put_right_is_read_at_the_next_call(tmp_path):
    workspace = noisy_workspace(tmp_path, 3)
    (tmp_path / "audio" / "1.wav").rename(tmp_path / "elsewhere.wav")
    before = extract_frames(workspace, PARAMS, clips_per_shard=1, engine=LocalEngine(1))
    (tmp_path / "elsewhere.wav").rename(tmp_path / "audio" / "1.wav")
    after = extract_frames(workspace, PARAMS, clips_per_shard=1, engine=LocalEngine(1))
    assert (len(before.clip_ids), len(after.clip_ids)) == (2, 3)
    assert before.digest != after.digest
    assert len(read_quarantine(workspace)) == 0


def test_not_one_readable_clip_is_an_error_that_names_the_reason(tmp_path):
    workspace = make_workspace(tmp_path, ["a.wav", "b.wav"])
    with pytest.raises(EarmarkError, match=r"none of the 2 clips.*a\.wav: no such file"):
        extract_frames(workspace, PARAMS, engine=LocalEngine(1))
    with pytest.raises(EarmarkError, match="no finished frame store"):
        FrameStore.open(workspace.frames_folder)


def test_bytes_and_progress_do_not_depend_on_the_number_of_workers(tmp_path):
    for n_workers in (1, 2):
        workspace, progress = noisy_workspace(tmp_path / str(n_workers)), CountingProgress()
        extract_frames(
            workspace, PARAMS, clips_per_shard=2, engine=LocalEngine(n_workers), progress=progress
        )
        assert progress.jobs == [("features", 6, "clips")]
        assert progress.n_done == 6
    assert content(tmp_path / "1" / "frames") == content(tmp_path / "2" / "frames")


STALLING_EXTRACTION = """
import sys, time
from pathlib import Path
from earmark.compute.engine import HERE, LocalEngine
from earmark.datasets.extraction import extract_frames, write_frames
from earmark.config.parameters import FrontEndParams
from earmark.datasets.workspace import Workspace

class Stall:
    def job(self, label, n_total, unit):
        return self

    def advance(self, n_done, note=""):
        while Path(sys.argv[2]).exists():
            time.sleep(1)

workspace = Workspace.open(sys.argv[1])
one = LocalEngine(1)
extract_frames(workspace, FrontEndParams(), clips_per_shard=2, engine=one, progress=Stall())
"""


def kill_extraction_after(path: Path, root: Path) -> None:
    """Start an extraction in a process of its own and kill -9 it in the shard after this one."""
    command = [sys.executable, "-c", STALLING_EXTRACTION, str(root), str(path)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not (path.exists() and list(path.parent.glob(".*.partial"))):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_a_killed_extraction_goes_on_and_ends_with_the_same_bytes(tmp_path):
    whole = noisy_workspace(tmp_path / "whole", 12)
    extract_frames(whole, PARAMS, clips_per_shard=2, engine=LocalEngine(1))
    killed = noisy_workspace(tmp_path / "killed", 12)
    folder = killed.frames_folder
    for number in (1, 3):
        kill_extraction_after(folder / f"shard-{number:05d}.parquet", killed.root)
        with pytest.raises(EarmarkError, match="no finished frame store"):
            FrameStore.open(folder)
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("shard-*.parquet")}
    assert len(finished) == 4
    progress = CountingProgress()
    extract_frames(killed, PARAMS, clips_per_shard=2, engine=LocalEngine(1), progress=progress)
    assert content(folder) == content(whole.frames_folder)
    assert killed.quarantine_path.read_bytes() == whole.quarantine_path.read_bytes()
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())
    assert progress.n_done == 12


def test_a_current_store_is_opened_and_not_touched(tmp_path):
    workspace = noisy_workspace(tmp_path)
    extract_frames(workspace, PARAMS, engine=LocalEngine(1))
    before = {path: path.stat().st_mtime_ns for path in workspace.frames_folder.iterdir()}
    progress = CountingProgress()
    extract_frames(workspace, PARAMS, engine=LocalEngine(1), progress=progress)
    assert before == {path: path.stat().st_mtime_ns for path in workspace.frames_folder.iterdir()}
    assert progress.jobs == []


def test_other_parameters_make_another_store_in_its_place(tmp_path):
    workspace = noisy_workspace(tmp_path)
    first = extract_frames(workspace, PARAMS, clips_per_shard=1, engine=LocalEngine(1))
    params = FrontEndParams(n_bands=32)
    second = extract_frames(workspace, params, clips_per_shard=2, engine=LocalEngine(1))
    assert second.frames(0).shape[1] == 32
    assert first.digest != second.digest
    assert len(list(workspace.frames_folder.glob("shard-*.npy"))) == 3


def test_a_truncated_shard_is_named_with_its_sizes_and_made_again(tmp_path):
    workspace = noisy_workspace(tmp_path)
    extract_frames(workspace, PARAMS, clips_per_shard=2, engine=LocalEngine(1))
    before = content(workspace.frames_folder)
    shard = workspace.frames_folder / "shard-00001.npy"
    n_bytes = shard.stat().st_size
    os.truncate(shard, n_bytes - 100)
    message = rf"shard-00001\.npy.* {n_bytes - 100:,} bytes.*{n_bytes:,}.*`earmark features`"
    with pytest.raises(EarmarkError, match=message):
        FrameStore.open(workspace.frames_folder)
    extract_frames(workspace, PARAMS, clips_per_shard=2, engine=LocalEngine(1))
    assert content(workspace.frames_folder) == before


def test_frames_from_elsewhere_are_never_replaced(tmp_path):
    workspace = make_workspace(tmp_path, [None, None])
    clip_ids = workspace.clips["clip_id"].to_list()
    frames = np.arange(20, dtype=np.uint8).reshape(10, 2)
    write_store(workspace.frames_folder, ((clip_id, frames) for clip_id in clip_ids))
    before = content(workspace.frames_folder)
    store = extract_frames(workspace, PARAMS, engine=LocalEngine(1))
    assert store.clip_ids.to_list() == clip_ids
    assert content(workspace.frames_folder) == before
    assert not workspace.quarantine_path.exists()


def test_a_workspace_without_clips_is_a_users_mistake(tmp_path):
    with pytest.raises(EarmarkError, match="no clips"):
        extract_frames(make_workspace(tmp_path, []), PARAMS)


@dataclass(frozen=True)
class TwoEars:
    """Hears how loud a clip is, second by second, and as whole numbers how long it is."""

    digest: str = "two ears"
    sample_rate_hz: int = RATE
    forbidden: int = -1
    """A number of samples at which it breaks down."""

    @property
    def formats(self) -> tuple[FrameFormat, ...]:
        return tuple(
            FrameFormat(
                n_bands=1, dtype=dtype, patch_frames=1, patch_hop_frames=1, network_facts={}
            )
            for dtype in ("float32", "int64")
        )

    def frames(self, waveform: np.ndarray) -> tuple[np.ndarray, ...]:
        if len(waveform) == self.forbidden:
            raise EarmarkError("a sound that nobody can bear")
        seconds = [waveform[i : i + RATE] for i in range(0, len(waveform), RATE)]
        levels = np.array([[np.abs(one).mean()] for one in seconds], np.float32)
        return levels, np.array([[len(waveform)]], np.int64)


EARS = TwoEars()


def two_stores(
    workspace: Workspace, extractor: TwoEars = EARS, **options
) -> tuple[FrameStore, ...]:
    folders = (workspace.root / "levels", workspace.root / "lengths")
    said = {"clips_per_shard": 2, "engine": LocalEngine(1), **options}
    return write_frames(workspace, extractor, folders, label="ears", **said)


def test_two_stores_are_written_at_once(tmp_path):
    workspace, progress = noisy_workspace(tmp_path), CountingProgress()
    levels, lengths = two_stores(workspace, progress=progress)
    for i in range(6):
        sound, _ = soundfile.read(tmp_path / "audio" / f"{i}.wav", dtype="float32")
        assert lengths.frames(i).tolist() == [[len(sound)]]
        assert len(levels.frames(i)) == -(-len(sound) // RATE)
        assert levels.frames(i)[0, 0] == pytest.approx(np.abs(sound[:RATE]).mean(), rel=1e-5)
    assert levels.digest != lengths.digest
    assert progress.jobs == [("ears", 6, "clips")]
    assert progress.n_done == 6


def test_every_clip_is_decoded_once_for_both(tmp_path, monkeypatch):
    workspace, read = noisy_workspace(tmp_path), []
    decode = extraction.read_clip
    monkeypatch.setattr(extraction, "read_clip", lambda *given: read.append(1) or decode(*given))
    two_stores(workspace)
    assert len(read) == 6


@pytest.mark.parametrize("gone", ["levels/shard-00001.parquet", "lengths/shard-00001.parquet",
                                  "lengths/shard-00001.npy", "levels/meta.json"])  # fmt: skip
def test_what_one_of_two_stores_lacks_is_made_again(tmp_path, gone):
    workspace = noisy_workspace(tmp_path)
    two_stores(workspace)
    before = [content(tmp_path / name) for name in ("levels", "lengths")]
    kept = tmp_path / "levels" / "shard-00000.npy"
    written = kept.stat().st_mtime_ns
    (tmp_path / gone).unlink()
    two_stores(workspace)
    assert [content(tmp_path / name) for name in ("levels", "lengths")] == before
    assert kept.stat().st_mtime_ns == written, "whole shards are left alone"


def test_an_ear_that_breaks_down_names_the_clip_and_leaves_whole_shards(tmp_path):
    workspace = noisy_workspace(tmp_path)
    n_samples = len(soundfile.read(tmp_path / "audio" / "3.wav")[0])
    with pytest.raises(EarmarkError, match="clip 'clip3': a sound that nobody can bear"):
        two_stores(workspace, TwoEars(forbidden=n_samples))
    for name in ("levels", "lengths"):
        left = sorted(path.name for path in (tmp_path / name).iterdir())
        assert left == ["shard-00000.npy", "shard-00000.parquet"]


def test_a_finished_store_reads_the_table_of_each_shard_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = noisy_workspace(tmp_path)
    extract_frames(workspace, PARAMS, clips_per_shard=2, engine=LocalEngine(1))
    reads: list[str] = []

    def counted_read(path: Path, *args: object) -> pl.DataFrame:
        reads.append(Path(path).name)
        return read_table(path, *args)

    for module in (frame_store, extraction):
        monkeypatch.setattr(module, "read_table", counted_read, raising=False)
    extract_frames(workspace, PARAMS, clips_per_shard=2, engine=LocalEngine(1))
    of_shards = [name for name in reads if name.startswith("shard-")]
    assert of_shards == [f"shard-{number:05d}.parquet" for number in range(3)]
