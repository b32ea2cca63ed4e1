from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile
from PIL import Image

from earmark.audio import MOST_COLUMNS, FrameStore, log_mel, picture_png, seen_frames, write_store
from earmark.audio.decode import UnreadableAudio
from earmark.config import FrontEndParams
from earmark.datasets import Workspace, extract_frames
from earmark.errors import EarmarkWarning
from earmark.review.server.clips import Media
from listening import tone_workspace

FRONT_END = FrontEndParams()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return tone_workspace(tmp_path, n_clips=4, seconds=2.0)


def test_a_clip_is_heard_whole_and_seen_as_long_as_it_sounds(workspace: Workspace) -> None:
    media = Media(workspace, FRONT_END, None)
    played, rate_hz = soundfile.read(io.BytesIO(media.sound("clip000")))
    assert len(played) == pytest.approx(2.0 * rate_hz, abs=2)
    assert Image.open(io.BytesIO(media.picture("clip000"))).width == 200


def test_only_the_clips_own_part_of_a_recording_is_heard(workspace: Workspace) -> None:
    part = workspace.clips.with_columns(
        start_seconds=pl.lit(0.5, pl.Float64), end_seconds=pl.lit(1.25, pl.Float64)
    )
    part.write_parquet(workspace.clips_path)
    played, rate_hz = soundfile.read(
        io.BytesIO(Media(Workspace(workspace.root), FRONT_END, None).sound("clip001"))
    )
    assert len(played) == pytest.approx(0.75 * rate_hz, abs=2)


def test_what_cannot_be_read_is_refused_with_its_reason(workspace: Workspace) -> None:
    (workspace.root / "audio" / "clip002.wav").write_bytes(b"not a sound")
    without = pl.when(pl.col("clip_id") != "clip003").then("audio").alias("audio")
    workspace.clips.with_columns(without).write_parquet(workspace.clips_path)
    media = Media(Workspace(workspace.root), FRONT_END, None)
    with pytest.raises(UnreadableAudio):
        media.sound("clip002")
    with pytest.raises(UnreadableAudio, match="no audio file"):
        media.picture("clip003")


def test_a_file_outside_the_named_folders_is_not_played(
    workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    private = tmp_path_factory.mktemp("private") / "a.wav"
    soundfile.write(private, np.zeros(100), 16_000)
    workspace.clips.with_columns(audio=pl.lit(str(private))).write_parquet(workspace.clips_path)
    media = Media(Workspace(workspace.root), FRONT_END, None)
    for make in (media.sound, media.picture):
        with pytest.raises(UnreadableAudio, match="lies outside"):
            make("clip000")


def test_the_picture_shows_the_stored_frames_if_they_are_log_mel(workspace: Workspace) -> None:
    waveform = np.zeros(32_000, np.float32)
    store = extract_frames(workspace)
    seen = seen_frames(store, "clip000", waveform, FRONT_END)
    np.testing.assert_array_equal(seen, store.frames(0)[:200])
    made = seen_frames(store, "not stored", waveform, FRONT_END)
    np.testing.assert_array_equal(made, log_mel(waveform)[:200])


def test_a_replaced_sound_is_not_shown_by_the_frames_of_the_older_one(
    workspace: Workspace,
) -> None:
    media = Media(workspace, FRONT_END, extract_frames(workspace))
    before = media.picture("clip000")
    soundfile.write(workspace.root / "audio" / "clip000.wav", np.zeros(32_000), 16_000)
    again = Media(workspace, FRONT_END, media.store)
    with pytest.warns(EarmarkWarning, match=r"clip000\.wav: changed since it was scored"):
        assert again.picture("clip000") != before


def test_embeddings_are_not_looked_at(tmp_path: Path) -> None:
    store: FrameStore = write_store(tmp_path, [("a", np.ones((3, 8), np.float32))])
    seen = seen_frames(store, "a", np.zeros(16_000, np.float32), FRONT_END)
    assert seen.shape == (100, FRONT_END.n_bands)


def test_a_long_clip_fits_on_the_page() -> None:
    picture = Image.open(io.BytesIO(picture_png(np.zeros((9_000, 64), np.float32))))
    assert picture.width == MOST_COLUMNS
