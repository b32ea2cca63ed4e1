from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path

import polars as pl
import pytest

from audioset_files import write_sound
from earmark.datasets import (
    DamagedArchive,
    audio_files,
    find_recordings,
    read_tar,
    sounds_of,
    stays_inside,
    walk_files,
)
from earmark.errors import EarmarkError
from sound_folders import write_tar


def everything(name: str) -> bool:
    return True


def found(root: Path, work: Path, is_wanted=everything) -> dict[str, str]:
    return dict(find_recordings(root, work, is_wanted).files.iter_rows())


def test_nested_folders_any_letter_case_and_odd_names(tmp_path: Path) -> None:
    names = ["a.wav", "deep/er/b.FLAC", "with 'quotes' and\nnewline ü.mp3", "notes.txt"]
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    files = found(tmp_path / "in", tmp_path / "work")
    assert set(files) == {*names} - {"notes.txt"}
    assert all(Path(path).is_absolute() and Path(path).exists() for path in files.values())


def test_link_loops_end_and_links_to_folders_are_followed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (elsewhere / "a.wav").touch()
    (elsewhere / "back").symlink_to(root)
    (root / "disk").symlink_to(elsewhere)
    (root / "self").symlink_to(root / "self")
    (root / "gone.wav").symlink_to(root / "nowhere.wav")
    assert [Path(path).name for path in walk_files(root)] == ["a.wav"]


def test_the_workspace_itself_is_not_searched(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "audio").mkdir(parents=True)
    (work / "audio" / "a.wav").touch()
    (tmp_path / "b.wav").touch()
    assert set(found(tmp_path, work)) == {"b.wav"}


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_paths_that_are_not_text_are_counted(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(bytes(tmp_path) + b"/\xff.wav")).touch()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    result = find_recordings(tmp_path, tmp_path / "work", everything)
    assert len(result.files) == 0
    assert "1 file passed over" in result.notes[0]


@pytest.mark.parametrize(("name", "mode"), [("x.tar", "w"), ("x.tar.gz", "w:gz")])
def test_tars_are_unpacked_into_the_workspace_once(tmp_path: Path, name: str, mode: str) -> None:
    work = tmp_path / "work"
    root = tmp_path / "in"
    root.mkdir()
    members = {"./train/a.wav": b"sound a", "train/b.wav": b"unwanted", "readme.txt": b"text"}
    write_tar(root / name, members, mode)
    result = find_recordings(root, work, lambda stem: stem == "a")
    assert result.files.rows() == [(f"{name}/train/a.wav", f"audio/{name}/train/a.wav")]
    assert (work / result.files["audio"][0]).read_bytes() == b"sound a"
    assert "1 file (0.00 GB) unpacked" in result.notes[0]
    assert not list(work.rglob("b.wav"))
    again = find_recordings(root / name, work, everything)  # the archive itself as the root
    assert f"audio/{name}/train/a.wav" in again.files["audio"]
    assert "1 file" in again.notes[0]  # b alone


def test_members_that_lead_outside_and_links_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    members = {"../evil.wav": b"x", "/abs.wav": b"x", "good.wav": b"x", "link.wav": None}
    write_tar(root / "x.tar", members)
    result = find_recordings(root, tmp_path / "work", everything)
    assert result.files["key"].to_list() == ["x.tar/good.wav"]
    assert any("3 members of archives refused" in note for note in result.notes)
    assert sorted(path.name for path in tmp_path.rglob("*.wav")) == ["good.wav"]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_truncated_tar_yields_what_it_has(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "in"
    root.mkdir()
    contents = {f"{name}.wav": os.urandom(30_000) for name in "abc"}
    path = write_tar(root / "x.tar", contents, mode)
    path.write_bytes(path.read_bytes()[:70_000])
    result = find_recordings(root, tmp_path / "work", everything)
    assert result.files["key"].to_list() == ["x.tar/a.wav", "x.tar/b.wav"]
    assert any("x.tar" in note and "damaged" in note for note in result.notes)
    with pytest.raises(DamagedArchive, match="damaged from here on"):
        list(read_tar(path, everything))


@pytest.mark.parametrize("pack", [open, gzip.open])
def test_a_member_that_claims_what_the_archive_cannot_hold(tmp_path: Path, pack) -> None:
    honest, lying = tarfile.TarInfo("a.wav"), tarfile.TarInfo("b.wav")
    honest.size, lying.size = 5, 2**40
    with pack(tmp_path / "x.tar", "wb") as file:
        file.write(honest.tobuf() + b"sound".ljust(512, b"\0") + lying.tobuf())
    members = read_tar(tmp_path / "x.tar", everything)
    assert next(members) == ("a.wav", b"sound")
    with pytest.raises(DamagedArchive, match=r"b\.wav claims 1,099,511,627,776 bytes"):
        next(members)


def test_a_compressed_archive_unpacks_to_no_more_than_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tar(tmp_path / "x.tar.gz", {"a.wav": bytes(10**6)}, "w:gz")
    assert len(dict(read_tar(path, everything))["a.wav"] or b"") == 10**6
    monkeypatch.setattr(audio_files, "_LEAST_LIMIT", 10_000)
    with pytest.raises(DamagedArchive, match=r"a\.wav claims 1,000,000 bytes, which it has not"):
        list(read_tar(path, everything))


def test_a_member_with_holes_is_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "b.wav").touch()
    os.truncate(tmp_path / "b.wav", 2**40)
    packed = ["tar", "--sparse", "-cf", str(tmp_path / "x.tar"), "-C", str(tmp_path), "b.wav"]
    subprocess.run(packed, check=True)
    assert list(read_tar(tmp_path / "x.tar", everything)) == [("b.wav", None)]


def found_sounds(tmp_path: Path, files: list[str], clip_ids: list[str]) -> list[str | None]:
    for name in files:
        write_sound(tmp_path / "in" / name, 0.1)
    found, _ = sounds_of(pl.Series(clip_ids), tmp_path / "in", tmp_path / "work")
    assert len(found) == len(clip_ids)
    return [None if path is None else os.path.relpath(path, tmp_path / "in") for path in found]


def test_a_clip_is_called_like_its_file_with_or_without_folder_and_ending(tmp_path: Path) -> None:
    files = ["a.wav", "deep/b.1.flac", "deep/c.wav", "other/c.wav", "d.wav", "d.ogg"]
    clip_ids = ["a", "a.wav", "b.1", "other/c", "in/deep/c", "d", "a.mp3"]
    expected = ["a.wav", "a.wav", "deep/b.1.flac", "other/c.wav",
                "deep/c.wav", "d.ogg", "a.wav"]  # fmt: skip
    assert found_sounds(tmp_path, files, clip_ids) == expected


def test_a_file_of_another_folder_is_not_taken(tmp_path: Path) -> None:
    assert found_sounds(tmp_path, ["dog/1.wav", "dog/2.wav"], ["cat/1", "11", "", "dog/2"]) == [
        None, None, None, "dog/2.wav",
    ]  # fmt: skip


def test_a_name_in_several_folders_is_nobodys_and_told(tmp_path: Path) -> None:
    for name in ("x/1.wav", "y/1.wav", "2.wav"):
        write_sound(tmp_path / "in" / name, 0.1)
    found, notes = sounds_of(pl.Series(["1", "2"]), tmp_path / "in", tmp_path / "work")
    assert found.is_null().to_list() == [True, False]
    assert any("several recordings could be meant (such as '1')" in note for note in notes)


def test_no_sound_for_any_clip_names_clips_and_files(tmp_path: Path) -> None:
    write_sound(tmp_path / "in" / "other" / "x.wav", 0.1)
    with pytest.raises(EarmarkError, match=r"clips are called 'a', 'b', the files 'other/x.wav'"):
        sounds_of(pl.Series(["a", "b"]), tmp_path / "in", tmp_path / "work")


def test_sounds_in_an_archive_are_unpacked_for_their_clips(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_tar(tmp_path / "in" / "x.tar", {"deep/a.wav": b"sound", "deep/z.wav": b"other"}, "w")
    found, notes = sounds_of(pl.Series(["a"]), tmp_path / "in", tmp_path / "work")
    assert found.to_list() == ["audio/x.tar/deep/a.wav"]
    assert (tmp_path / "work" / found[0]).read_bytes() == b"sound"
    assert "1 file" in notes[0]


@pytest.mark.parametrize(
    ("name", "is_inside"),
    [
        ("a.wav", True),
        ("deep/ä b.wav", True),
        ("..a/b..wav", True),
        ("../a.wav", False),
        ("a/../../b.wav", False),
        ("/a.wav", False),
        ("a\0.wav", False),
        ("a" * 300 + ".wav", False),
        ("d/" * 1_500 + "a.wav", False),
        ("\ud800.wav", False),
        ("", False),
    ],
)
def test_names_of_members_stay_inside(name: str, is_inside: bool) -> None:
    assert stays_inside(name) == is_inside
