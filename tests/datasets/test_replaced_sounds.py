"""Sounds that are not those which frames were made of: told by size, time and digest."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earmark.audio import SuspectFile, log_mel, sources
from earmark.compute import HERE
from earmark.datasets import Workspace, extract_frames, replaced_sounds, stamps, tell_replaced
from earmark.errors import EarmarkWarning
from noises import PARAMS, CountingProgress, noisy_workspace, write_noise


def replace_sound(path: Path, seed: int) -> None:
    """Put another sound in a file's place, an hour from now."""
    write_noise(path, 1.0, seed=seed)
    os.utime(path, (time.time() + 3_600,) * 2)


def test_a_sound_that_was_replaced_is_noticed_and_its_frames_made_anew(tmp_path):
    workspace = noisy_workspace(tmp_path)
    before = extract_frames(workspace, PARAMS, clips_per_shard=2, engine=HERE).digest
    assert replaced_sounds(workspace, workspace.frames_folder) == {}
    replace_sound(tmp_path / "audio" / "3.wav", seed=99)
    (tmp_path / "audio" / "5.wav").unlink()
    found = replaced_sounds(workspace, workspace.frames_folder)
    assert found == {"audio/3.wav": True, "audio/5.wav": False}
    with pytest.warns(EarmarkWarning, match=r"1 sound file changed since .*3\.wav"):
        store = extract_frames(workspace, PARAMS, clips_per_shard=2, engine=HERE)
    assert store.digest != before, "what was made of the older frames has to be refused"
    sound, _ = soundfile.read(tmp_path / "audio" / "3.wav", dtype="float32")
    np.testing.assert_allclose(store.frames(3), log_mel(sound), atol=2e-3, rtol=0)
    assert "5" in store.clip_ids[5], "frames of a file that is gone are kept"


def test_a_replaced_sound_is_said_to_verbs_that_read_frames_alone(tmp_path):
    workspace = noisy_workspace(tmp_path)
    store = extract_frames(workspace, PARAMS, clips_per_shard=2, engine=HERE)
    path = tmp_path / "audio" / "4.wav"
    path.write_bytes(path.read_bytes())
    tell_replaced(workspace, store)  # the same sound, in place again
    write_noise(path, 1.0, seed=99)
    with pytest.warns(EarmarkWarning, match=r"1 sound file changed .*4\.wav.*earmark features"):
        tell_replaced(workspace, store)


def older_sound(path: Path) -> None:
    """Put another sound in a file's place, with an older time, as ``rsync -a`` does."""
    write_noise(path, 1.3, seed=99)
    os.utime(path, (1_000_000_000,) * 2)


def exchange_folders(folder: Path) -> None:
    """Put in a folder's place one that was made before, so that no file's own notes are late."""
    folder.rename(folder.with_name("first"))
    folder.with_name("second").rename(folder)


@pytest.mark.parametrize("is_exchanged", [False, True])
def test_sounds_that_are_older_than_their_frames_are_noticed(tmp_path, is_exchanged):
    workspace = noisy_workspace(tmp_path)
    shutil.copytree(tmp_path / "audio", tmp_path / "second")
    write_noise(tmp_path / "second" / "3.wav", 1.0, seed=99)
    store = extract_frames(workspace, PARAMS, clips_per_shard=2, engine=HERE)
    if is_exchanged:
        exchange_folders(tmp_path / "audio")
    else:
        older_sound(tmp_path / "audio" / "3.wav")
    with pytest.warns(EarmarkWarning, match=r"1 sound file changed .*3\.wav"):
        tell_replaced(workspace, store)
    with pytest.warns(EarmarkWarning, match=r"1 sound file changed .*3\.wav.*"):
        again = extract_frames(workspace, PARAMS, clips_per_shard=2, engine=HERE)
    assert again.digest != store.digest
    tell_replaced(workspace, again)


def test_all_sounds_are_looked_at_and_few_of_many_suspects_are_read(tmp_path, monkeypatch):
    workspace = noisy_workspace(tmp_path)
    store = extract_frames(workspace, PARAMS, clips_per_shard=2, engine=HERE)
    read: list[str] = []
    monkeypatch.setattr(SuspectFile, "is_other", lambda self: bool(read.append(self.audio)))
    monkeypatch.setattr(stamps, "MOST_READ", 3)
    tell_replaced(workspace, store)
    assert read == [], "nothing happened to any"
    for path in (tmp_path / "audio").iterdir():
        path.touch()
    tell_replaced(workspace, store)
    assert read == ["audio/0.wav", "audio/2.wav", "audio/4.wav"]


def test_files_of_a_moved_workspace_are_read_once(tmp_path, monkeypatch):
    workspace = noisy_workspace(tmp_path / "first")
    extract_frames(workspace, PARAMS, clips_per_shard=2, engine=HERE)
    shutil.copytree(tmp_path / "first", tmp_path / "second", copy_function=shutil.copyfile)
    moved = Workspace(tmp_path / "second")
    extract_frames(moved, PARAMS, clips_per_shard=2, engine=HERE)
    monkeypatch.setattr(sources, "file_fingerprint", lambda at: pytest.fail(f"{at} is read again"))
    tell_replaced(moved, extract_frames(moved, PARAMS, clips_per_shard=2, engine=HERE))


def test_a_copied_workspace_is_not_extracted_again(tmp_path):
    workspace = noisy_workspace(tmp_path / "first")
    before = extract_frames(workspace, PARAMS, clips_per_shard=2, engine=HERE).digest
    shutil.copytree(tmp_path / "first", tmp_path / "second", copy_function=shutil.copyfile)
    for path in (tmp_path / "second" / "audio").iterdir():
        os.utime(path, (time.time() + 3_600,) * 2)
    moved, done = Workspace(tmp_path / "second"), CountingProgress()
    store = extract_frames(moved, PARAMS, clips_per_shard=2, engine=HERE, progress=done)
    assert (store.digest, done.jobs) == (before, [])
