from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from earmark.audio.frame_store import CLIPS_PER_SHARD, FrameStore, write_store
from earmark.audio.front_end import log_mel, patches
from earmark.datasets import extraction
from earmark.datasets.extraction import extract_frames
from earmark.datasets.quarantine import read_quarantine
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.runs.engine import LocalEngine
from earmark.runs.parameters import FrontEndParams
from noises import PARAMS, RATE, content, make_workspace, noisy_workspace, write_noise


class CountingProgress:
    """Remembers what was announced and done."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, int, str]] = []
        self.n_done = 0

    def job(self, label: str, n_total: int, unit: str) -> CountingProgress:
        self.jobs.append((label, n_total, unit))
        return self

    def advance(self, n_done: int, note: str = "") -> None:
        self.n_done += n_done


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


def test_is_readable_with_numpy_and_polars_alone(tmp_path):
    store = extract_frames(
        noisy_workspace(tmp_path), PARAMS, clips_per_shard=2, engine=LocalEngine(1)
    )
    index = pl.read_parquet(tmp_path / "frames" / "index.parquet")
    row = index.row(3, named=True)
    shard = np.load(tmp_path / "frames" / f"shard-{row['shard']:05d}.npy", mmap_mode="r")
    assert shard.dtype == np.float16
    clip = shard[row["first_frame"] : row["first_frame"] + row["n_frames"]]
    assert np.array_equal(clip, store.frames(3))


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
from earmark.runs.engine import LocalEngine
from earmark.datasets.extraction import extract_frames
from earmark.runs.parameters import FrontEndParams
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


@pytest.mark.parametrize(
    ("n_clips", "n_shards"), [(1, 1), (100, 7), (3_200, 32), (64_000, 32), (640_000, 320)]
)
def test_shards_suit_the_number_of_clips(tmp_path, n_clips, n_shards):
    clips = pl.DataFrame({"clip_id": range(n_clips)}).cast(pl.String)
    clips = clips.with_columns(audio=pl.lit("a.wav"), split=pl.lit("train"), source="clip_id")
    clips.with_columns(start_seconds=None, end_seconds=None).write_parquet(
        tmp_path / "clips.parquet"
    )
    plan = extraction._plan(
        Workspace(tmp_path), extraction.FrontEndEar(PARAMS), (tmp_path,), CLIPS_PER_SHARD
    )
    assert len(plan) == n_shards
    assert sum(len(shard.clips) for shard in plan) == n_clips


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
