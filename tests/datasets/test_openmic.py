from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from earmark.audio import FrameStore
from earmark.datasets import import_openmic
from earmark.errors import EarmarkError

CLASS_IDS = ("accordion", "banjo", "voice")
KEYS = [f"{track:06}_{3840 * (track % 3)}" for track in range(40)]


def arrays(**replaced: Any) -> dict[str, Any]:
    """Return arrays of the official types: X is int64, sample_key an array of objects."""
    rng = np.random.default_rng(0)
    truth = np.full((40, 3), 0.5)
    truth[:, 0] = rng.random(40)
    truth[0], truth[1] = [0.9, 0.1, 0.5], [0.5, 0.49, 1.0]
    mask = rng.random((40, 3)) < 0.5
    mask[0], mask[1] = [True, True, False], [True, True, True]
    return {
        "X": rng.integers(0, 256, (40, 10, 128)),
        "Y_true": truth,
        "Y_mask": mask,
        "sample_key": np.array(KEYS, dtype=object),
    } | replaced


def official_layout(root: Path, **replaced: Any) -> Path:
    (root / "partitions").mkdir(parents=True)
    np.savez(root / "openmic-2018.npz", **arrays(**replaced))
    (root / "class-map.json").write_text(json.dumps({"voice": 2, "accordion": 0, "banjo": 1}))
    (root / "partitions/split01_train.csv").write_text("\n".join(KEYS[:30]) + "\n")
    (root / "partitions/split01_test.csv").write_text("\n".join(KEYS[30:]) + "\n")
    audio = root / "audio" / "000" / f"{KEYS[0]}.ogg"
    audio.parent.mkdir(parents=True)
    audio.write_bytes(b"OggS")
    return root


def test_labels_people_were_asked_about_are_explicit(tmp_path: Path) -> None:
    labels = import_openmic(official_layout(tmp_path / "o"), tmp_path / "w").workspace.labels
    assert labels.class_ids == CLASS_IDS
    assert labels.clip_ids.to_list() == KEYS
    assert labels.states()[:2].tolist() == [[1, -1, 0], [1, -1, 1]]
    expected = arrays()
    assert (labels.states() != 0).tolist() == expected["Y_mask"].tolist()


def test_the_official_partition_is_kept_and_tune_comes_from_train(tmp_path: Path) -> None:
    summary = import_openmic(official_layout(tmp_path / "o"), tmp_path / "w")
    split = summary.workspace.clips["split"]
    assert split[30:].to_list() == ["eval"] * 10
    assert split[:30].to_list().count("tune") == pytest.approx(3, abs=1)
    assert split[:30].is_in(["train", "tune"]).all()
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (40, 40, 0)


def test_vggish_features_become_the_frames(tmp_path: Path) -> None:
    workspace = import_openmic(official_layout(tmp_path / "o"), tmp_path / "w").workspace
    store = FrameStore.open(workspace.frames_folder)
    assert store.clip_ids.to_list() == KEYS
    assert (store.n_bands, store.meta.dtype, store.patch_frames) == (128, "uint8", 1)
    assert np.array_equal(store.frames(7), arrays()["X"][7])


def test_files_that_are_there_are_named(tmp_path: Path) -> None:
    summary = import_openmic(official_layout(tmp_path / "o"), tmp_path / "w")
    audio = summary.workspace.clips["audio"]
    assert audio[0] == str(tmp_path / "o/audio/000" / f"{KEYS[0]}.ogg")
    assert audio.null_count() == 39
    assert "1 of 40 sound files are there" in summary.notes


def imported_keys(path: Path, tmp_path: Path) -> list[str]:
    workspace = import_openmic(path.parent, tmp_path / "w").workspace
    return workspace.clips["clip_id"].to_list()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_keys_are_read_from_pickles_of_any_age(tmp_path: Path, protocol: int) -> None:
    path = official_layout(tmp_path / "o") / "openmic-2018.npz"
    replace_keys(path, pickle.dumps(np.array(KEYS, dtype=object), protocol))
    assert imported_keys(path, tmp_path) == KEYS


def test_keys_that_are_plain_texts_are_read_as_well(tmp_path: Path) -> None:
    path = official_layout(tmp_path / "o", sample_key=np.array(KEYS)) / "openmic-2018.npz"
    assert imported_keys(path, tmp_path) == KEYS


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("trapped",)


def replace_keys(path: Path, pickled: bytes) -> None:
    """Put another pickle in the place of the keys."""
    content = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": (40,)}
    np.lib.format.write_array_header_1_0(content, header)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["sample_key.npy"] = content.getvalue() + pickled
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_a_pickle_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = official_layout(tmp_path / "o") / "openmic-2018.npz"
    replace_keys(path, pickle.dumps([Trap(), *KEYS]))
    monkeypatch.chdir(tmp_path)
    assert imported_keys(path, tmp_path) == KEYS
    assert not (tmp_path / "trapped").exists()
    replace_keys(path, pickle.dumps([Trap()]))
    with pytest.raises(EarmarkError, match=r"should hold \(40,\) different keys, got 0"):
        imported_keys(path, tmp_path)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"X": np.zeros((39, 10, 128), int)}, "do not fit together"),
        ({"X": np.full((40, 10, 128), 256)}, "X must hold bytes .* got up to 256"),
        ({"Y_mask": np.ones((40, 2), bool)}, "do not fit together"),
        ({"Y_true": np.full((40, 3), 1.5)}, "probabilities between 0 and 1"),
        ({"Y_true": np.full((40, 3), np.nan)}, "probabilities between 0 and 1"),
        ({"X": np.array([{}] * 40, dtype=object)}, "cannot be read as numpy's .npz"),
    ],
)
def test_arrays_that_cannot_be_right_are_refused(
    tmp_path: Path, replaced: dict[str, Any], message: str
) -> None:
    root = official_layout(tmp_path / "o", **replaced)
    with pytest.raises(EarmarkError, match=message):
        import_openmic(root, tmp_path / "w")


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    root = official_layout(tmp_path / "o")
    npz = root / "openmic-2018.npz"
    content = npz.read_bytes()
    npz.write_bytes(content[: len(content) // 2])
    with pytest.raises(EarmarkError, match=r"cannot be read as numpy's \.npz"):
        import_openmic(root, tmp_path / "w")
    npz.unlink()
    with pytest.raises(EarmarkError, match=r"openmic-2018.npz: no such file"):
        import_openmic(root, tmp_path / "w")


def test_clips_outside_the_partition_are_refused(tmp_path: Path) -> None:
    root = official_layout(tmp_path / "o")
    (root / "partitions/split01_test.csv").write_text("\n".join(KEYS[31:]) + "\n")
    with pytest.raises(EarmarkError, match=f"clip '{KEYS[30]}' is in no partition"):
        import_openmic(root, tmp_path / "w")


def test_a_class_map_of_another_size_is_refused(tmp_path: Path) -> None:
    root = official_layout(tmp_path / "o")
    (root / "class-map.json").write_text(json.dumps({"voice": 2, "banjo": 1}))
    with pytest.raises(EarmarkError, match="expected 3 instruments"):
        import_openmic(root, tmp_path / "w")
