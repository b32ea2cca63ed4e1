"""What is flushed before a name says that it is there: the order of fsync and rename."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from earmark.datasets import HubLabels, Workspace, find_recordings, write_hub_folder
from earmark.review import DrawnBlocks, JudgementStore
from earmark.storage import put_in_place, scratch_beside, write_json, write_table, writing
from scenes import band_workspace
from sound_folders import write_tar


class Disk:
    """Records which inodes were flushed, and what was renamed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int, Path]] = []
        fsync = os.fsync

        def recorded_fsync(descriptor: int) -> None:
            fsync(descriptor)
            place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            self.calls.append(("fsync", os.fstat(descriptor).st_ino, place))

        monkeypatch.setattr(os, "fsync", recorded_fsync)
        replace = os.replace

        def recorded_replace(source: str | Path, target: str | Path) -> None:
            replace(source, target)
            self.calls.append(("rename", os.stat(target).st_ino, Path(target).resolve()))

        monkeypatch.setattr(os, "replace", recorded_replace)

    def flushed(self, path: Path) -> list[int]:
        """When a file or folder was flushed, whatever its name was then."""
        inode = path.stat().st_ino
        return [i for i, (what, at, _) in enumerate(self.calls) if (what, at) == ("fsync", inode)]

    def renamed(self, path: Path) -> int:
        """When a file came to its name last."""
        target = path.resolve()
        return max(
            i for i, (what, _, at) in enumerate(self.calls) if what == "rename" and at == target
        )


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("name", ["a.json", "new/folders/a.parquet"])
def test_a_file_is_flushed_renamed_and_its_folder_flushed(
    tmp_path: Path, disk: Disk, name: str
) -> None:
    path = tmp_path / name
    if path.suffix == ".json":
        write_json(path, {"a": 1})
    else:
        write_table(path, pl.DataFrame({"a": [1]}))
    at = disk.renamed(path)
    assert min(disk.flushed(path)) < at < max(disk.flushed(path.parent))
    for folder in path.relative_to(tmp_path).parents:
        assert disk.flushed(tmp_path / folder), f"the name of what is in {folder} may be lost"


def test_an_export_is_on_the_disk_before_it_is_in_place(tmp_path: Path, disk: Disk) -> None:
    workspace = band_workspace(tmp_path / "w")
    out = tmp_path / "out"
    for _ in range(2):  # new, and in the place of an earlier one
        write_hub_folder(workspace, out, HubLabels(workspace.labels))
        files = [path for path in out.rglob("*") if path.is_file()]
        assert any(path.suffix == ".parquet" for path in files)
        for path in files:
            assert disk.flushed(path), path
        for folder in (out.parent, out, out / "data"):
            assert disk.flushed(folder)
    for path in (out / "data").iterdir():
        at = disk.renamed(path)
        assert min(disk.flushed(path)) < at < max(disk.flushed(path.parent))


def test_the_names_of_new_folders_are_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    with writing(tmp_path / "new" / "w", "import"):
        assert disk.flushed(tmp_path)
        assert disk.flushed(tmp_path / "new")
    with JudgementStore(tmp_path / "w" / "review" / "judgements.sqlite"):
        assert disk.flushed(tmp_path / "w")
    with DrawnBlocks(tmp_path / "v" / "review" / "drawn.sqlite", ""):
        assert disk.flushed(tmp_path / "v")
    with scratch_beside(tmp_path / "folder" / "out"):
        assert len(disk.flushed(tmp_path)) == 4


def test_the_seal_of_a_folder_comes_after_what_it_seals(tmp_path: Path, disk: Disk) -> None:
    out = tmp_path / "out"
    for text in ("first", "second"):
        with scratch_beside(out) as scratch:
            (scratch / "made" / "z").mkdir(parents=True)
            for name in ("z/b.txt", "meta.json"):
                (scratch / "made" / name).write_text(text)
            put_in_place(scratch / "made", out, "scan")
    assert disk.renamed(out / "z" / "b.txt") < disk.renamed(out / "meta.json")
    assert min(i for i in disk.flushed(out / "z") if i > disk.renamed(out / "z" / "b.txt")) < (
        disk.renamed(out / "meta.json")
    )


def test_unpacked_sounds_are_on_the_disk_before_anything_names_them(
    tmp_path: Path, disk: Disk
) -> None:
    members = {f"deep/{number}.wav": b"RIFF" for number in range(13)}
    write_tar(tmp_path / "sounds.tar", members)
    work = tmp_path / "work"
    for _ in range(2):
        found = find_recordings(tmp_path / "sounds.tar", work, lambda _: True).files["audio"]
        assert len(found) == 13
        for audio in found:
            path = Workspace(work).audio_path(audio)
            assert disk.flushed(path)
            assert max(disk.flushed(path.parent)) > disk.renamed(path)
        spoilt = Workspace(work).audio_path(found[0])
        spoilt.write_bytes(bytes(4))  # as some file systems leave it after a power cut
    assert spoilt.read_bytes() == bytes(4)
    find_recordings(tmp_path / "sounds.tar", work, lambda _: True)
    assert spoilt.read_bytes() == b"RIFF"
