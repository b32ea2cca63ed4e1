"""What cells of a stranger's audio column may open, and how others are refused."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import polars as pl
import pytest

from earmark.audio import UnreadableAudio, read_clip
from earmark.datasets import (
    ImportSummary,
    Workspace,
    import_hugging_face,
    import_sounds,
    import_table,
    import_webdataset,
)
from earmark.errors import EarmarkError
from own_tables import write
from sound_folders import sounds_in, wav

FORBIDDEN = (
    "http://127.0.0.1:9/a.wav",
    "file:///etc/passwd",
    "memory://a.wav",
    "reference://a.wav::file:///tmp/ref.json",
    "https://example.org/a.wav::x",
)


def table_of(folder: Path, cell: str) -> Path:
    sounds_in(folder / "data", "here.wav")
    return write(folder, "data/labels.csv", f"audio,class_id\nhere.wav,dog\n{cell},cat\n")


def hub_file_of(folder: Path, cell: str) -> Path:
    sounds_in(folder / "data", "here.wav")
    sound = [{"bytes": None, "path": path} for path in ("here.wav", cell)]
    kind = pl.Struct({"bytes": pl.Binary, "path": pl.String})
    table = pl.DataFrame({"audio": pl.Series(sound, dtype=kind), "label": ["dog", "cat"]})
    table.write_parquet(folder / "data" / "train.parquet")
    return folder / "data"


@pytest.mark.parametrize("cell", FORBIDDEN)
def test_other_schemes_are_refused_with_their_row(tmp_path: Path, cell: str) -> None:
    expected = r"expected the path of a file, or an address of https://, s3://, gs:// without '::'"
    with pytest.raises(EarmarkError, match=rf"labels\.csv, line 3: .*{expected}"):
        import_table(None, table_of(tmp_path, cell), tmp_path / "w", remote=True)
    with pytest.raises(EarmarkError, match=rf"train\.parquet, row 2: .*{expected}"):
        import_hugging_face(hub_file_of(tmp_path, cell), tmp_path / "w2", remote=True)


@pytest.mark.parametrize("cell", ["https://example.org/a.wav", "s3://bucket/a.wav", "gs://b/a.wav"])
def test_addresses_are_taken_when_they_are_asked_for(tmp_path: Path, cell: str) -> None:
    with pytest.raises(EarmarkError, match=rf"line 3: {cell}: .*imported with --remote; to leave"):
        import_table(None, table_of(tmp_path, cell), tmp_path / "w")
    with pytest.raises(EarmarkError, match=rf"row 2: {cell}: .*imported with --remote"):
        import_hugging_face(hub_file_of(tmp_path, cell), tmp_path / "w2")
    far = import_table(None, table_of(tmp_path, cell), tmp_path / "w", remote=True).workspace
    assert far.audio_place(far.clips["audio"][1]) == cell
    far = import_hugging_face(hub_file_of(tmp_path, cell), tmp_path / "w2", remote=True).workspace
    assert far.audio_place(far.clips["audio"][1]) == cell
    columns = {"audio": "-", "clip_id": "audio"}
    silent = import_table(None, table_of(tmp_path, cell), tmp_path / "w3", columns=columns)
    assert not silent.workspace.has_sound()


def test_an_import_without_the_wish_takes_it_back(tmp_path: Path) -> None:
    table = table_of(tmp_path, "https://example.org/a.wav")
    import_table(None, table, tmp_path / "w", remote=True)
    workspace = Workspace.open(tmp_path / "w")
    assert workspace.audio_access.is_remote
    write(tmp_path, "data/labels.csv", "audio,class_id\nhere.wav,dog\nthere.wav,cat\n")
    import_table(None, table, tmp_path / "w", replace=True)
    assert not Workspace.open(tmp_path / "w").audio_access.is_remote


def test_paths_that_lead_elsewhere_are_refused_unless_allowed(tmp_path: Path) -> None:
    private = sounds_in(tmp_path / "private", "a.wav")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link.wav").symlink_to(private / "a.wav")
    for cell in (str(private / "a.wav"), "../private/a.wav", "link.wav"):
        expected = rf"{cell}: lies outside .*data, .*import it with --allow {private}"
        table, folder = table_of(tmp_path, cell), hub_file_of(tmp_path, cell)
        with pytest.raises(EarmarkError, match=rf"labels\.csv, line 3: {expected}"):
            import_table(None, table, tmp_path / "w")
        with pytest.raises(EarmarkError, match=rf"train\.parquet, row 2: {expected}"):
            import_hugging_face(folder, tmp_path / "w")
        allowed = import_table(None, table, tmp_path / "w2", allow=[private], replace=True)
        workspace = allowed.workspace
        assert len(read_clip(workspace.audio_place(workspace.clips["audio"][1]), 1_000)) == 500
        import_hugging_face(folder, tmp_path / "w3", allow=[private], replace=True)


def test_links_in_a_folder_of_sound_stay_in_it(tmp_path: Path) -> None:
    private = sounds_in(tmp_path / "private", "a.wav", "more/b.wav")
    sounds = sounds_in(tmp_path / "sounds", "dog/1.wav", "cat/2.wav")
    (sounds / "cat" / "also.wav").symlink_to("../dog/1.wav")
    for name, target in (("cat/key.wav", "a.wav"), ("cat/more", "more")):
        link = sounds / name
        link.symlink_to(private / target)
        with pytest.raises(EarmarkError, match=rf"{link}.*: lies outside .*sounds, .*--allow"):
            import_sounds(sounds, None, tmp_path / "w")
        import_sounds(sounds, None, tmp_path / "w2", allow=[private], replace=True)
        link.unlink()
    workspace = import_sounds(sounds, None, tmp_path / "w").workspace
    place = workspace.clips.filter(pl.col("clip_id").str.contains("2"))["audio"][0]
    os.remove(place)
    os.symlink(private / "a.wav", place)  # a link that came after the import
    with pytest.raises(UnreadableAudio, match=r"lies outside .*sounds"):
        workspace.audio_place(place)


def test_a_folder_that_is_a_link_itself_is_what_was_named(tmp_path: Path) -> None:
    sounds_in(tmp_path / "disk", "dog/1.wav", "cat/2.wav")
    (tmp_path / "sounds").symlink_to("disk")
    workspace = import_sounds(tmp_path / "sounds", None, tmp_path / "w").workspace
    for audio in workspace.clips["audio"]:
        assert read_clip(workspace.audio_place(audio), 1_000).any() == any(wav(0.5)[44:])


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_packed_sounds_are_not_read_from_elsewhere(tmp_path: Path, kind: str) -> None:
    private = tmp_path / "private"
    data = sounds_in(tmp_path / "data", "here.wav")
    read = import_hugging_face
    if kind == "parquet":
        (hub_file_of(private, "here.wav") / "train.parquet").rename(private / "a.parquet")
        (data / "a.parquet").symlink_to(private / "a.parquet")
    else:
        private.mkdir()
        with tarfile.open(private / "a.tar", "w") as tar:
            tar.add(data / "here.wav", "here.wav")
        (data / "a.tar").symlink_to(private / "a.tar")
        read = import_webdataset_of
    with pytest.raises(EarmarkError, match=r"a\.(parquet|tar): lies outside .*data"):
        read(data, tmp_path / "w")


def import_webdataset_of(folder: Path, work: Path) -> ImportSummary:
    return import_webdataset([str(folder)], work)
