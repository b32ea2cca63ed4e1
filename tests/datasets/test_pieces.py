from __future__ import annotations

from pathlib import Path

import pytest

from earmark.datasets import import_sounds
from earmark.errors import EarmarkError
from own_tables import states, write
from sound_folders import clip_ids, heard, note, present_in, sounds_in, wav

STRETCHES = (
    "filename,onset,offset,event_label\n"
    "long.wav,1,2,dog\nlong.wav,1,3.5,cat\nlong.wav,12,13,dog\nshort.wav,0,0.4,owl\n"
)


def test_stretches_of_long_recordings_are_clips(tmp_path: Path) -> None:
    sounds_in(tmp_path / "sounds", "long.wav", seconds=25)
    sounds_in(tmp_path / "sounds", "short.wav", "other.wav", "whole.wav")
    summary = heard(tmp_path, STRETCHES + "whole.wav,,,owl\n")
    assert note(summary, "clips are the stretches that the rows name")
    assert present_in(summary) == {
        "long.wav@1-2": {"dog"},
        "long.wav@1-3.5": {"cat"},
        "long.wav@12": {"dog"},
        "short.wav@0": {"owl"},
        "whole.wav": {"owl"},
        "other.wav": set(),
    }
    clips = summary.workspace.clips
    assert clips["source"].to_list()[:3] == ["long.wav"] * 3
    assert clips["end_seconds"].to_list() == [2, 3.5, 13, 0.4, None, None]


def test_long_recordings_are_cut(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    sounds_in(tmp_path / "sounds", "long.wav", seconds=25)
    sounds_in(tmp_path / "sounds", "short.wav", "other.wav")
    labels = STRETCHES + (
        "long.wav,9.95,10.5,owl\n"  # 0.05 s before the cut
        "long.wav,19,25,rain\n"
        "long.wav,9.98,10.02,click\n"  # half of it on either side
        "long.wav,90,91,dog\n"
        "gone.wav,1,2,dog\n"
    )
    summary = heard(tmp_path, labels, clip_seconds=10)
    assert present_in(summary) == {
        "long_0000": {"dog", "cat", "click"},
        "long_0010": {"dog", "owl", "rain", "click"},
        "long_0020": {"rain"},
        "short.wav": {"owl"},
        "other.wav": set(),
        "gone.wav@1": {"dog"},
    }
    clips = summary.workspace.clips
    assert clips["start_seconds"].to_list() == [0, 10, 20, None, None, 1]
    assert clips["end_seconds"].to_list() == [10, 20, 25, None, None, 2]
    assert clips["source"].to_list()[:3] == ["long.wav"] * 3
    assert "1 recording longer than 10 s cut into 3 clips" in note(summary, "cut into")
    assert note(summary, "1 label beyond the end")


def test_pieces_have_labels_as_a_slow_twin_says(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    sounds_in(tmp_path / "sounds", "x.wav", seconds=31)
    events = [
        (start / 7, start / 7 + length / 9) for start in range(0, 200, 3) for length in (1, 5, 60)
    ]
    rows = [f"x.wav,{start},{end},c{i}" for i, (start, end) in enumerate(events)]
    summary = heard(tmp_path, "\n".join(["file,start,end,label", *rows]), clip_seconds=2.5)
    present = present_in(summary)
    starts = summary.workspace.clips["start_seconds"].to_list()
    assert starts == [2.5 * i for i in range(13)]  # a rest of 1 s is 0.4 of a clip
    ends = summary.workspace.clips["end_seconds"].to_list()
    for clip_id, first, last in zip(clip_ids(summary), starts, ends, strict=True):
        expected = set()
        for i, (start, end) in enumerate(events):
            overlap = min(end, last) - max(start, first)
            if overlap >= min(0.1, (end - start) / 2):
                expected.add(f"c{i}")
        assert present[clip_id] == expected
    assert clip_ids(summary)[1] == "x_0002.500"


def test_not_present_holds_for_pieces_within_its_stretch(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    sounds_in(tmp_path / "sounds", "x.wav", seconds=40)
    labels = "file,start,end,label,present\nx.wav,5,30,dog,0\nx.wav,,,cat,no\nx.wav,31,32,dog,1\n"
    assert states(heard(tmp_path, labels, clip_seconds=10)) == [
        [-1, 0],
        [-1, -1],
        [-1, -1],
        [-1, 1],
    ]


def test_labels_of_a_whole_recording_are_not_dealt_out(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    sounds_in(tmp_path / "sounds", "dog/long.wav", seconds=25)
    sounds_in(tmp_path / "sounds", "cat/short.wav")
    words = r"'dog' is somewhere in 'dog/long.wav', which is 25 s long.*start and end"
    with pytest.raises(EarmarkError, match=words):
        heard(tmp_path, None, clip_seconds=10)
    with pytest.raises(EarmarkError, match=r"labels.csv, line 2: 'dog' is somewhere"):
        heard(tmp_path, "filename,label\nlong.wav,dog\nshort.wav,cat\n", clip_seconds=10)
    only_short = heard(tmp_path, "filename,label\nshort.wav,cat\n", clip_seconds=10)
    assert clip_ids(only_short) == ["short.wav", "long_0000", "long_0010", "long_0020"]
    whole = heard(tmp_path, "filename,label\nlong.wav,dog\nshort.wav,cat\n", clip_seconds=24)
    assert clip_ids(whole) == ["long.wav", "short.wav"]  # a rest of 1 s is no clip of its own


def test_one_recording_needs_no_column_that_names_it(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    sound = write(tmp_path, "night.wav", wav(30))
    labels = write(tmp_path, "labels.csv", "start,end,species\n2,4,owl\n12,13,fox\n")
    summary = import_sounds(sound, labels, tmp_path / "w", clip_seconds=10)
    assert present_in(summary) == {
        "night_0000": {"owl"},
        "night_0010": {"fox"},
        "night_0020": set(),
    }
    assert summary.workspace.clips["source"].unique().to_list() == ["night.wav"]


def test_long_recordings_are_worth_a_word(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    sounds_in(tmp_path / "sounds", "a.wav", seconds=61)
    sounds_in(tmp_path / "sounds", "b.wav", seconds=59)
    summary = heard(tmp_path, "filename,label\na.wav,dog\n")
    assert "1 of 2 recordings looked at, such as 'a.wav' (61 s)" in note(summary, "--clip-seconds")


def test_times_of_files_that_are_cut_already_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    sounds_in(tmp_path / "sounds", "a.wav", "b.wav", seconds=4)
    labels = "filename,start,end,label\na.wav,30,34,dog\nb.wav,58.5,62.5,cat\n"
    with pytest.raises(
        EarmarkError, match=r"'a.wav' is 4.0 s long, and 34 s is not in it.*start_s"
    ):
        heard(tmp_path, labels)
    none = {"start_seconds": "-", "end_seconds": "-"}
    assert clip_ids(heard(tmp_path, labels, columns=none)) == ["a.wav", "b.wav"]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ("3,2", r"line 2: from 3 s to 2 s is no stretch"),
        ("3,3", r"line 2: from 3 s to 3 s is no stretch"),
        ("-1,2", r"line 2: from -1 s to 2 s"),
        ("soon,2", r"line 2: start_seconds must be a number"),
    ],
)
def test_times_that_are_none_are_refused(tmp_path: Path, times: str, message: str) -> None:
    sounds_in(tmp_path / "sounds", "a.wav", seconds=4)
    with pytest.raises(EarmarkError, match=message):
        heard(tmp_path, f"filename,start,end,label\na.wav,{times},dog\n")


def test_a_recording_in_two_splits_cannot_be_cut(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    sounds_in(tmp_path / "sounds", "a.wav", seconds=25)
    labels = "filename,start,end,label,split\na.wav,1,2,dog,train\na.wav,11,12,dog,test\n"
    with pytest.raises(EarmarkError, match=r"'a.wav' is in two splits"):
        heard(tmp_path, labels, clip_seconds=10)
