from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from audioset_files import BALANCED, DOG, MUSIC, ROCK, SPEECH, write_official, write_sound
from earmark.audio import read_clip
from earmark.datasets import ImportSummary, Workspace, import_audioset
from earmark.errors import EarmarkError
from sound_folders import write_tar

DOTS = "--PJHxphWEs"  # listed from 30 to 40 s
WHY = "Yabcdefghij"  # listed from 0 to 10 s
BAR = "_abcdefghi_"  # listed from 3.327 to 10 s


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_official(tmp_path / "in")


def clip(summary: ImportSummary, source: str) -> dict:
    (row,) = summary.workspace.clips.filter(pl.col("source") == source).to_dicts()
    return row


def times(summary: ImportSummary, source: str) -> tuple[float | None, float | None]:
    row = clip(summary, source)
    return row["start_seconds"], row["end_seconds"]


def test_labels_alone(root: Path, tmp_path: Path) -> None:
    summary = import_audioset(root, tmp_path / "work", tune_share=0)
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (4, 0, 4)
    assert summary.split_counts == {"train": 3, "tune": 0, "eval": 1}
    workspace = Workspace.open(tmp_path / "work")
    assert workspace.clips["audio"].to_list() == [None] * 4
    assert times(summary, DOTS) == (30.0, 40.0)
    labels = workspace.labels.rows()
    assert labels.filter(clip_id="-0SdAVK79lg_30000")["class_id"].to_list() == [MUSIC, ROCK]
    assert labels["present"].all()
    lines = summary.lines()
    assert lines[0] == "4 clips listed = 0 found + 4 missing"
    assert any("no audio found" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (f"{DOTS}_30.flac", DOTS),
        (f"{DOTS}_30.000.wav", DOTS),
        (f"{DOTS}_30000.wav", DOTS),
        (f"{DOTS}_30_40.wav", DOTS),
        (f"{DOTS}_30000_40000.wav", DOTS),
        (f"Y{DOTS}_30.000_40.000.wav", DOTS),
        (f"deep/er/Y{DOTS}_30.wav", DOTS),
        (f"{WHY}_0_10.wav", WHY),
        (f"Y{WHY}_0_10.wav", WHY),
        (f"{BAR}_3.327_10.wav", BAR),
        (f"{BAR}_3_10.wav", BAR),
        (f"Y{BAR}_3327.wav", BAR),
    ],
)
def test_names_with_a_start_are_cut_clips(
    root: Path, tmp_path: Path, name: str, source: str
) -> None:
    path = write_sound(root / "audio" / name, 0.2)
    summary = import_audioset(root, tmp_path / "work")
    assert (summary.n_found, summary.n_missing) == (1, 3)
    row = clip(summary, source)
    assert row["audio"] == str(path.resolve())
    assert (row["start_seconds"], row["end_seconds"]) == (None, None)
    waveform = read_clip(summary.workspace.audio_path(row["audio"]), 8_000)
    assert len(waveform) == 1_600


@pytest.mark.parametrize(
    "name", [f"{DOTS}_60.wav", f"{DOTS[:-1]}.wav", f"x{DOTS}.wav", f"{DOTS}_30_40_50.wav"]
)
def test_names_of_other_clips_are_not_taken(root: Path, tmp_path: Path, name: str) -> None:
    write_sound(root / name)
    assert import_audioset(root, tmp_path / "work").n_found == 0


@pytest.mark.parametrize("prefix", ["", "Y"])
@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(10.0, (None, None)), (10.9, (None, None)), (39.0, (30.0, 40.0)), (15.0, (None, None))],
    ids=["cut", "cut and padded", "whole video", "does not reach the segment"],
)
def test_a_bare_name_is_judged_by_its_length(
    root: Path, tmp_path: Path, prefix: str, seconds: float, expected: tuple
) -> None:
    write_sound(root / f"{prefix}{DOTS}.wav", seconds, rate_hz=1_000)
    summary = import_audioset(root, tmp_path / "work")
    assert times(summary, DOTS) == expected


def test_an_id_that_begins_with_y_is_no_prefix(root: Path, tmp_path: Path) -> None:
    write_sound(root / f"{WHY}.wav")
    summary = import_audioset(root, tmp_path / "work")
    assert clip(summary, WHY)["audio"] is not None
    assert times(summary, WHY) == (0.0, 10.0)  # the same in a cut clip and in the video


def test_an_unreadable_file_is_left_to_the_quarantine(root: Path, tmp_path: Path) -> None:
    (root / f"{DOTS}.wav").write_bytes(b"no sound at all")
    summary = import_audioset(root, tmp_path / "work")
    assert summary.n_found == 1
    assert times(summary, DOTS) == (None, None)


def test_the_cut_clip_is_preferred_and_spare_files_are_counted(root: Path, tmp_path: Path) -> None:
    write_sound(root / "a" / f"{DOTS}.wav")
    cut = write_sound(root / "b" / f"{DOTS}_30.wav")
    summary = import_audioset(root, tmp_path / "work")
    assert clip(summary, DOTS)["audio"] == str(cut.resolve())
    assert any(note.startswith("1 files not used") for note in summary.notes)


def test_audio_in_a_tar_elsewhere(root: Path, tmp_path: Path) -> None:
    sound = write_sound(tmp_path / "x.wav", 0.5).read_bytes()
    names = (f"audio/{DOTS}_30.wav", "audio/unlisted_id.wav", f"../{BAR}_3.wav")
    archive = write_tar(tmp_path / "bal.tar", dict.fromkeys(names, sound))
    summary = import_audioset(root, tmp_path / "work", audio=archive)
    assert (summary.n_found, summary.n_missing) == (1, 3)
    audio = clip(summary, DOTS)["audio"]
    assert audio == f"audio/bal.tar/audio/{DOTS}_30.wav"
    assert len(read_clip(summary.workspace.audio_path(audio), 8_000)) == 4_000
    assert any("refused" in note for note in summary.notes)


def test_tune_is_taken_from_train_by_whole_videos(tmp_path: Path) -> None:
    lines = "".join(
        f'{i:011d}, {start}.000, {start + 10}.000, "{SPEECH if i % 2 else DOG}"\n'
        for i in range(100)
        for start in (0, 10)
    )
    root = write_official(tmp_path / "in", lines)
    summary = import_audioset(root, tmp_path / "work", tune_share=0.2)
    assert summary.split_counts == {"train": 160, "tune": 40, "eval": 1}
    clips = summary.workspace.clips
    assert clips.group_by("source").agg(pl.col("split").n_unique())["split"].max() == 1
    again = import_audioset(root, tmp_path / "again", tune_share=0.2)
    assert again.workspace.clips.equals(clips)


def test_a_root_without_segments(tmp_path: Path) -> None:
    write_official(tmp_path / "in", None, None)
    with pytest.raises(EarmarkError, match="none of eval_segments"):
        import_audioset(tmp_path / "in", tmp_path / "work")


def test_an_import_without_an_ontology_says_so(root: Path, tmp_path: Path) -> None:
    (root / "ontology.json").unlink()
    summary = import_audioset(root, tmp_path / "work")
    assert any(note.startswith("no ontology.json") for note in summary.notes)
    assert summary.workspace.ontology.name(ROCK) == "Rock music"


def test_segments_of_one_video_share_the_whole_file(tmp_path: Path) -> None:
    second = BALANCED + f'{DOTS}, 10.000, 20.000, "{MUSIC}"\n'
    root = write_official(tmp_path / "in", second)
    path = write_sound(root / f"{DOTS}.wav", 60, rate_hz=1_000)
    summary = import_audioset(root, tmp_path / "work")
    clips = summary.workspace.clips.filter(source=DOTS).sort("start_seconds")
    assert clips["start_seconds"].to_list() == [10.0, 30.0]
    assert clips["audio"].to_list() == [str(path.resolve())] * 2
