from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from earmark import pipeline
from earmark.config import FrontEndParams, Recipe
from earmark.datasets import Workspace, extract_frames
from earmark.errors import EarmarkWarning
from earmark.flags import MissingEstimates
from earmark.metrics import Interval
from earmark.pipeline import MOST_SECONDS, check_frames, heard_flags, report
from earmark.report import flags_to_hear
from earmark.review import Gains
from earmark.scores import ScoreFolder
from listening import tone_workspace
from made_up import Page

pytest.importorskip("PIL")
FRONT_END = FrontEndParams()
RECIPE = Recipe(front_end=FRONT_END)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return tone_workspace(tmp_path_factory.mktemp("heard") / "w")


def a_flag(clip_id: str, class_id: str = "hum") -> pl.DataFrame:
    row = {"clip_id": clip_id, "class_id": class_id, "logit": 1.5, "rank": 2, "chance": 0.25}
    return pl.DataFrame([row])


def teacher_of(workspace: Workspace) -> ScoreFolder:
    return ScoreFolder.open(workspace.scores_folder("teacher"))


def test_a_clip_is_heard_whole(workspace: Workspace) -> None:
    (heard,) = heard_flags(workspace, RECIPE, teacher_of(workspace), a_flag("clip000"))
    assert (heard.class_name, heard.rank, heard.chance, heard.note) == ("Hum", 2, 0.25, "")
    assert heard.waveform is not None
    assert len(heard.waveform) == 5 * FRONT_END.sample_rate_hz
    assert heard.frames is not None
    assert len(heard.frames) == 500
    assert heard.is_missing is not None
    assert heard.best_patch is None  # without frames nobody knows how long a patch is


def test_a_clip_whose_file_changed_says_so(tmp_path: Path) -> None:
    workspace = tone_workspace(tmp_path / "w", n_clips=6)
    extract_frames(workspace)
    path = workspace.root / "audio" / "clip000.wav"
    soundfile.write(path, np.zeros(5 * 16_000), 16_000)
    (heard,) = heard_flags(workspace, RECIPE, teacher_of(workspace), a_flag("clip000"))
    assert heard.note == "its file changed since it was scored"
    assert heard.frames is not None
    assert np.ptp(heard.frames) == 0, "the silence that is there now"


def test_a_queue_of_sounds_that_changed_says_so(tmp_path: Path) -> None:
    workspace = tone_workspace(tmp_path / "w")
    extract_frames(workspace)
    soundfile.write(workspace.root / "audio" / "clip001.wav", np.zeros(16_000), 16_000)
    with pytest.warns(EarmarkWarning, match=r"1 sound file changed since .*clip001\.wav"):
        pipeline.draw_queue(workspace)


def test_a_teacher_of_sounds_that_changed_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    workspace = tone_workspace(tmp_path / "w", n_clips=6)
    extract_frames(workspace)
    soundfile.write(workspace.root / "audio" / "clip001.wav", np.zeros(16_000), 16_000)
    with pytest.warns(EarmarkWarning, match=r"1 sound file changed since .*clip001\.wav"):
        check_frames(workspace, RECIPE)


def test_a_long_clip_is_heard_in_part_and_says_so(tmp_path: Path) -> None:
    workspace = tone_workspace(tmp_path / "w", n_clips=6)
    path = workspace.root / "audio" / "clip000.wav"
    soundfile.write(path, np.zeros(40 * 16_000, np.float32) + 0.1, 16_000)
    (heard,) = heard_flags(workspace, RECIPE, teacher_of(workspace), a_flag("clip000"))
    assert heard.waveform is not None
    assert len(heard.waveform) == MOST_SECONDS * 16_000
    assert heard.note == "30 s from 0:00"


def test_a_clip_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    workspace = tone_workspace(tmp_path / "w", n_clips=6)
    (workspace.root / "audio" / "clip000.wav").write_bytes(b"no sound")
    (heard,) = heard_flags(workspace, RECIPE, teacher_of(workspace), a_flag("clip000"))
    assert heard.waveform is None
    assert heard.note.startswith("cannot be played: ")


def test_without_students_the_report_is_the_page_of_flags(workspace: Workspace) -> None:
    flagged = pipeline.write_flags(workspace, policy="budget", n_flags=12)
    path = pipeline.make_report(workspace)
    text = path.read_text()
    page = Page(text)
    assert flagged.findings.estimates.describe() in page.text
    assert "Flagged: the 12 likeliest of all classes." in page.text
    assert page.tags.count("audio") == 12
    assert text.count("data:image/png;base64") == 12
    assert f"earmark review {workspace.root}" in page.text
    listed = pl.read_csv(path.parent / "flags.csv")
    assert listed["clip_id"].to_list() == flagged.flags["clip_id"].to_list()
    assert (path.parent / "classes.csv").exists()
    chances = [
        f"chance {100 * chance:.0f} %"
        for chance in flagged.flags["chance"].sort(descending=True)[:3]
    ]
    places = [page.text.index(told) for told in chances]
    assert places == sorted(places)


def test_the_page_of_flags_says_what_listening_found(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "What listening found" not in pipeline.make_report(workspace).read_text()
    known = MissingEstimates(1_000, 820, Interval(475.0, 434.0, 517.0), 300, 214)
    gains = Gains(known, 7.0, ((0, 0), (300, 214)), ((400, 221),))
    monkeypatch.setattr(report, "gains_so_far", lambda *_: gains)
    page = Page(pipeline.make_report(workspace).read_text())
    assert "What listening found" in page.text
    assert gains.describe() in page.text
    assert gains.advice in page.text


def test_the_page_is_of_the_flags_that_were_written_last(workspace: Workspace) -> None:
    pipeline.write_flags(workspace, policy="budget", n_flags=5)
    pipeline.write_flags(workspace, discard_percent=20)
    page = Page(pipeline.make_report(workspace).read_text())
    assert "the highest-scored 20 % of each class's implicit labels" in page.text


def test_a_workspace_without_sound_has_a_page_too(tmp_path: Path) -> None:
    workspace = tone_workspace(tmp_path / "w")
    clips = workspace.clips.with_columns(audio=pl.lit(None, pl.String))
    clips.write_parquet(workspace.clips_path)
    page = Page(pipeline.make_report(workspace.root).read_text())
    assert page.tags.count("audio") == 0
    assert "earmark review" not in page.text
    assert "earmark export" in page.text


def test_a_notebook_plays_the_likeliest_flags(workspace: Workspace) -> None:
    flagged = pipeline.write_flags(workspace, policy="budget", n_flags=12)
    text = flagged._repr_html_()
    page = Page(text)
    assert flagged.findings.estimates.describe() in page.text
    assert page.tags.count("audio") == 6
    assert "6 more in .flags" in page.text
    for clip_id in flags_to_hear(flagged.flags, 6)["clip_id"]:
        assert clip_id in page.text
    assert len(text) < 1_000_000


def test_a_notebook_lists_flags_that_cannot_be_played(tmp_path: Path) -> None:
    workspace = tone_workspace(tmp_path / "w")
    flagged = pipeline.write_flags(workspace, policy="budget", n_flags=3)
    shutil.rmtree(workspace.root / "audio")
    page = Page(flagged._repr_html_())
    assert page.tags.count("audio") == 0
    assert page.tags.count("tr") == 4
    assert "cannot be played" in page.text


def test_a_notebook_needs_no_sound_library(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    flagged = pipeline.write_flags(workspace, policy="budget", n_flags=3)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    page = Page(flagged._repr_html_())
    assert page.tags.count("tr") == 4
    assert page.tags.count("audio") == 0
