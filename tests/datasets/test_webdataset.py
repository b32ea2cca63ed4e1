from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from earmark.datasets import ImportSummary, audio_files, import_webdataset
from earmark.errors import EarmarkError
from own_tables import states
from sound_folders import clip_ids, note, present_in, wav, write_tar


def record(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def imported(path: Path | str, work: Path, **options: Any) -> ImportSummary:
    return import_webdataset([str(path)], work, **options)


DOG, CAT = {"007.wav": wav(0.1)}, {"008.wav": wav(0.2)}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_samples_of_several_tars(tmp_path: Path, mode: str) -> None:
    for number in range(3):
        name = f"{number:03}"
        members = {f"{name}.flac": wav(0.1), f"{name}.json": record(labels=["dog", name])}
        write_tar(tmp_path / f"train-{number:02}.tar", members, mode)
    summary = imported(tmp_path, tmp_path / "w")
    assert clip_ids(summary) == ["000", "001", "002"]
    assert present_in(summary)["001"] == {"dog", "001"}
    assert summary.split_counts == {"train": 3, "tune": 0, "eval": 0}
    audio = summary.workspace.clips["audio"][1]
    assert audio == "audio/train-01.tar/001.flac"
    assert summary.workspace.audio_path(audio).read_bytes() == wav(0.1)


@pytest.mark.parametrize(
    ("dog", "cat", "expected"),
    [
        ({"007.cls": b"1"}, {"008.cls": b"0\n"}, [[0, 1], [1, 0]]),
        ({"007.json": record(tag=["dog"])}, {"008.json": record(tag="cat")}, [[0, 1], [1, 0]]),
        (
            {"007.json": record(labels=["dog"], negatives=["cat"])},
            {"008.json": record(labels=[], negatives=[])},
            [[-1, 1], [0, 0]],
        ),
        (
            {"007.json": record(cat=0, dog=1), "007.txt": b"it barks"},
            {"008.json": record(cat=1, dog=-1)},
            [[0, 1], [1, -1]],
        ),
    ],
)
def test_labels_of_every_form(
    tmp_path: Path, dog: dict[str, bytes], cat: dict[str, bytes], expected: list[list[int]]
) -> None:
    path = write_tar(tmp_path / "x.tar", {**DOG, **dog, **CAT, **cat})
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    summary = imported(path, tmp_path / "w", classes=tmp_path / "classes.txt")
    assert clip_ids(summary) == ["007", "008"]
    assert summary.workspace.ontology.class_ids == ("cat", "dog")
    assert states(summary) == expected


def test_a_folder_of_splits(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        members = {f"{split}/1.ogg": b"sound", f"{split}/1.cls": b"dog"}
        write_tar(tmp_path / "set" / f"{split}-0.tar", members)
    summary = imported(tmp_path / "set", tmp_path / "w")
    assert summary.split_counts == {"train": 1, "tune": 1, "eval": 1}
    assert sorted(clip_ids(summary)) == ["test/1", "train/1", "val/1"]


def test_keys_that_start_anew_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        members = {"0.wav": folder.encode(), "0.cls": folder.encode()}
        write_tar(tmp_path / "set" / folder / f"{folder}0.tar", members)
        write_tar(tmp_path / "same" / folder / "0.tar", members)
    summary = imported(tmp_path / "set", tmp_path / "w")
    assert present_in(summary) == {"a0/0": {"a"}, "b0/0": {"b"}}
    with pytest.raises(EarmarkError, match="listed before"):
        imported(tmp_path / "same", tmp_path / "w2")


def test_sources_and_other_members(tmp_path: Path) -> None:
    members = {
        "007.flac": b"x", "007.json": record(labels=["dog"], recording="night", depth={"a": 1}),
        "007.npy": b"array", "008.json": record(labels=["cat"], recording="night"),
    }  # fmt: skip
    summary = imported(write_tar(tmp_path / "x.tar", members), tmp_path / "w")
    assert summary.workspace.clips["source"].to_list() == ["night", "night"]
    assert (summary.n_found, summary.n_missing) == (1, 1)
    assert ".npy (1)" in note(summary, "members passed over")


def test_members_that_lead_outside_are_refused(tmp_path: Path) -> None:
    outside = dict.fromkeys(("../evil.wav", "/evil.wav", "a/../../evil.wav"), b"RIFF")
    members = {**outside, "good.wav": b"RIFF", "good.cls": b"dog", "link.wav": None}
    path = write_tar(tmp_path / "x.tar", members)
    summary = imported(path, tmp_path / "inside" / "w")
    assert clip_ids(summary) == ["good"]
    assert note(summary, "4 members of archives refused")
    assert not list(tmp_path.glob("**/evil.wav"))


def sparse_tar(path: Path, n_bytes: int) -> Path:
    """Write a tar whose one member has no bytes but claims to be a hole of so many."""
    info = tarfile.TarInfo("bomb.wav")
    info.size = 0
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"%011o\0%011o\0" % (n_bytes, 0)  # one empty part, at the end
    header[483:495] = b"%011o\0" % n_bytes
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    path.write_bytes(bytes(header) + bytes(1024))
    return path


def test_a_hole_is_not_unpacked(tmp_path: Path) -> None:
    path = sparse_tar(tmp_path / "x.tar", 2**31)
    with tarfile.open(path) as tar:
        assert [(m.size, m.issparse()) for m in tar] == [(2**31, True)]  # a bomb it is
    with pytest.raises(EarmarkError, match="not one sample"):
        imported(path, tmp_path / "w")
    assert not list(tmp_path.glob("w/**/*.wav"))


def test_a_member_that_claims_too_much_ends_the_archive(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {**DOG, "007.cls": b"dog"})
    info = tarfile.TarInfo("008.wav")
    info.size = 2**40
    end = path.read_bytes().rstrip(b"\0")
    end += bytes(-len(end) % 512)
    path.write_bytes(end + info.tobuf() + b"few bytes")
    summary = imported(path, tmp_path / "w")
    assert clip_ids(summary) == ["007"]
    assert "008.wav claims 1,099,511,627,776 bytes" in note(summary, "damaged from here on")


def test_a_compressed_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio_files, "_LEAST_LIMIT", 100_000)
    members = {**DOG, "007.cls": b"dog", "008.wav": bytes(10_000_000), "008.cls": b"dog"}
    path = write_tar(tmp_path / "x.tar.gz", members, "w:gz")
    assert path.stat().st_size < 100_000
    summary = imported(path, tmp_path / "w")
    assert clip_ids(summary) == ["007"]
    assert note(summary, "008.wav claims 10,000,000 bytes")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({**DOG, "007.json": b"{"}, r"x.tar, sample '007', .json: cannot be read as json"),
        ({**DOG, "007.json": b"[1]"}, r"sample '007', .json: expected a record"),
        ({**DOG, "007.cls": b"\xff"}, r"sample '007', .cls: cannot be read as cls in UTF-8"),
        ({**DOG, "007.cls": bytes(2**20 + 1)}, "too long for labels"),
        (DOG, "no column of classes"),
        ({"readme.md": b"x"}, "not one sample"),
        (
            {**DOG, "007.json": record(labels=["a"], negatives=["a"])},
            r"x.tar, sample 1: class 'a' is in 'labels' and in 'negatives'",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, members: dict[str, bytes], message: str
) -> None:
    with pytest.raises(EarmarkError, match=message):
        imported(write_tar(tmp_path / "x.tar", members), tmp_path / "w")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"x-1\.tar: no such archive"):
        imported(tmp_path / "x-1.tar", tmp_path / "w")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EarmarkError, match=r"there is no \.tar"):
        imported(tmp_path / "empty", tmp_path / "w")
