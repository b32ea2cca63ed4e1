from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from audioset_files import (
    BALANCED,
    DOG,
    MUSIC,
    ROCK,
    SPEECH,
    entry,
    message,
    sequence_example,
    tfrecord,
    varint,
    write_official,
)
from earmark.audio import FrameStore
from earmark.datasets import (
    import_audioset_features,
    parse_embedding,
    read_quarantine,
    read_records,
)
from earmark.errors import EarmarkError

RANDOM = np.random.default_rng(0)


def noise(n_frames: int) -> np.ndarray:
    return RANDOM.integers(0, 256, (n_frames, 128)).astype(np.uint8)


FRAMES = {n_frames: noise(n_frames) for n_frames in (10, 7)}
DOTS = sequence_example("--PJHxphWEs", 30, 40, [0, 3], FRAMES[10])
WHY = sequence_example("Yabcdefghij", 0, 10, [0], FRAMES[7])
BAR = sequence_example("_abcdefghi_", 3.327, 10, [3], FRAMES[7])
EVALUATION = sequence_example("-0SdAVK79lg", 30, 40, [1, 2], FRAMES[10])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The release in miniature: folders bal_train and eval, several records in a file."""
    root = write_official(tmp_path / "in")
    place = root / "audioset_v1_embeddings"
    write(place / "bal_train" / "--.tfrecord", [DOTS])
    write(place / "bal_train" / "Ya.tfrecord", [WHY, BAR])
    write(place / "eval" / "-0.tfrecord", [EVALUATION])
    return root


def write(path: Path, contents: list[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tfrecord(contents))
    return path


def pack(root: Path) -> Path:
    archive = root / "features.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root / "audioset_v1_embeddings", "audioset_v1_embeddings")
    for path in root.rglob("*.tfrecord"):
        path.unlink()
    return archive


def frames_of(work: Path, clip_id: str) -> np.ndarray:
    store = FrameStore.open(work / "frames")
    return store.frames(int(store.rows_of([clip_id])[0]))


def test_clips_labels_and_frames_of_a_folder(root: Path, tmp_path: Path) -> None:
    summary = import_audioset_features(root, tmp_path / "work", tune_share=0)
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (4, 4, 0)
    assert summary.split_counts == {"train": 3, "tune": 0, "eval": 1}
    store = FrameStore.open(tmp_path / "work" / "frames")
    assert (store.n_bands, store.meta.dtype, store.patch_frames) == (128, "uint8", 1)
    assert store.clip_ids.to_list() == summary.workspace.clips["clip_id"].to_list()
    np.testing.assert_array_equal(frames_of(tmp_path / "work", "--PJHxphWEs_30000"), FRAMES[10])
    np.testing.assert_array_equal(frames_of(tmp_path / "work", "_abcdefghi__3327"), FRAMES[7])
    labels = summary.workspace.labels.rows()
    assert labels.filter(clip_id="-0SdAVK79lg_30000")["class_id"].to_list() == [MUSIC, ROCK]
    assert labels.filter(clip_id="--PJHxphWEs_30000")["class_id"].to_list() == [SPEECH, DOG]


@pytest.mark.parametrize("give", ["archive", "its folder"])
def test_the_archive_is_read_without_unpacking(root: Path, tmp_path: Path, give: str) -> None:
    archive = pack(root)
    chosen = archive if give == "archive" else root
    summary = import_audioset_features(chosen, tmp_path / "work", tune_share=0)
    assert summary.n_found == 4
    assert summary.split_counts == {"train": 3, "tune": 0, "eval": 1}
    assert not list(tmp_path.rglob("*.tfrecord"))
    np.testing.assert_array_equal(frames_of(tmp_path / "work", "-0SdAVK79lg_30000"), FRAMES[10])


def test_without_segments_the_records_list_themselves(root: Path, tmp_path: Path) -> None:
    for path in root.glob("*_segments.csv"):
        path.unlink()
    summary = import_audioset_features(root, tmp_path / "work", tune_share=0)
    assert (summary.n_listed, summary.n_found) == (4, 4)
    assert summary.split_counts == {"train": 3, "tune": 0, "eval": 1}
    rows = summary.workspace.labels.rows().filter(clip_id="--PJHxphWEs_30000")
    assert rows["class_id"].to_list() == [SPEECH, DOG]


def test_listed_clips_without_a_record_are_missing(root: Path, tmp_path: Path) -> None:
    write_official(root, BALANCED + f'abcdefghijk, 0.000, 10.000, "{DOG}"\n')
    summary = import_audioset_features(root, tmp_path / "work")
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (5, 4, 1)
    assert summary.workspace.clips["clip_id"][-1] == "abcdefghijk_0"
    quarantine = read_quarantine(summary.workspace)
    assert quarantine.rows() == [
        ("abcdefghijk_0", None, "no embedding of this clip is among the records")
    ]


def test_a_corrupt_record_is_named_and_the_others_are_read(root: Path, tmp_path: Path) -> None:
    path = root / "audioset_v1_embeddings" / "bal_train" / "Ya.tfrecord"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    summary = import_audioset_features(root, tmp_path / "work")
    assert (summary.n_found, summary.n_missing) == (3, 1)
    assert any(
        "Ya.tfrecord, byte 0: the record is no clip of the release" in n for n in summary.notes
    )
    assert read_quarantine(summary.workspace)["clip_id"].to_list() == ["Yabcdefghij_0"]


def test_a_truncated_archive_yields_what_it_has(root: Path, tmp_path: Path) -> None:
    others = [sequence_example(f"{i:011d}", 0, 10, [1], noise(10)) for i in range(40)]
    for number, other in enumerate(others):
        write(root / "audioset_v1_embeddings" / "bal_train" / f"{number:02d}.tfrecord", [other])
    archive = pack(root)
    archive.write_bytes(archive.read_bytes()[:-9_000])
    summary = import_audioset_features(archive, tmp_path / "work")
    assert 20 < summary.n_found < 44
    assert any("the archive is damaged" in note for note in summary.notes)


def test_repeated_records_and_unknown_classes_are_counted(root: Path, tmp_path: Path) -> None:
    place = root / "audioset_v1_embeddings" / "bal_train" / "zz.tfrecord"
    write(place, [DOTS, sequence_example("abcdefghijk", 0, 10, [3, 99], FRAMES[7])])
    summary = import_audioset_features(root, tmp_path / "work")
    assert summary.n_listed == 5
    notes = "\n".join(summary.notes)
    assert "1 labels left out: their class indices" in notes
    assert "1 records are in no list of segments" in notes
    rows = summary.workspace.labels.rows().filter(clip_id="abcdefghijk_0")
    assert rows["class_id"].to_list() == [DOG]


def test_labels_of_the_segments_count_where_records_differ(root: Path, tmp_path: Path) -> None:
    write_official(root, BALANCED.replace(f"{SPEECH},{DOG}", MUSIC))
    summary = import_audioset_features(root, tmp_path / "work")
    rows = summary.workspace.labels.rows().filter(clip_id="--PJHxphWEs_30000")
    assert rows["class_id"].to_list() == [MUSIC]


def test_nothing_to_read(root: Path, tmp_path: Path) -> None:
    for path in root.rglob("*.tfrecord"):
        path.unlink()
    with pytest.raises(EarmarkError, match="no embeddings could be read; expected"):
        import_audioset_features(root, tmp_path / "work")
    write(root / "eval" / "x.tfrecord", [b"something else"])
    with pytest.raises(EarmarkError, match="no clip of the release"):
        import_audioset_features(root, tmp_path / "work")


def test_another_dataset_is_refused_before_its_frames_are_touched(
    root: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    before = import_audioset_features(root, work, tune_share=0)
    digest = FrameStore.open(before.workspace.frames_folder).digest
    record = next(root.rglob("*.tfrecord"))
    record.unlink()
    with pytest.raises(EarmarkError, match="with other clips; nothing was changed"):
        import_audioset_features(root, work, tune_share=0)
    assert FrameStore.open(before.workspace.frames_folder).digest == digest
    assert not list(work.glob(".*.partial"))
    (before.workspace.frames_folder / "notes.md").write_text("mine")
    after = import_audioset_features(root, work, tune_share=0, replace=True)
    assert FrameStore.open(after.workspace.frames_folder).digest != digest
    assert (after.workspace.frames_folder / "notes.md").read_text() == "mine"


@pytest.mark.parametrize("n_kept", [1, 8, 12, 300, 1_100, 1_900])
def test_a_truncated_file_says_where(n_kept: int) -> None:
    whole = tfrecord([WHY, BAR])
    *clips, damage = read_records("a.tfrecord", whole[:n_kept])
    first = len(tfrecord([WHY]))
    assert isinstance(damage, str)
    assert damage.startswith(f"a.tfrecord, byte {first if n_kept >= first else 0:,}: the file")
    assert len(clips) == (n_kept >= first)


def test_records_too_long_are_no_clips() -> None:
    clip, damage = read_records("x", tfrecord([WHY, bytes(70_000), BAR]))
    assert not isinstance(clip, str)
    assert "70,000 bytes is no clip; the rest is lost" in str(damage)


def test_labels_above_127_packed_or_not() -> None:
    content = sequence_example("abcdefghijk", 0, 10, [137, 434, 526], np.ones((7, 128), np.uint8))
    assert parse_embedding(content).class_indices == (137, 434, 526)
    unpacked = b"".join(b"\x08" + varint(label) for label in (5, 300))
    content += message(1, entry("labels", message(3, unpacked)))  # a later entry replaces
    assert parse_embedding(content).class_indices == (5, 300)


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a\x05ab",
        b"\x0f\x01",
        b"\xff",
        message(1, entry("video_id", b"")),
        message(1, message(1, b"")),
        sequence_example("abcdefghijk", 0, 10, [1], np.empty((0, 128), np.uint8)),
        sequence_example("abcdefghijk", 0, 10, [1], np.zeros((2, 127), np.uint8)),
        sequence_example("abcdefghijk", 0, 10, [1], np.zeros((2, 64), np.uint8)),
    ],
)
def test_what_is_no_clip_of_the_release_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_embedding(content)
