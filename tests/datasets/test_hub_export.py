from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark import pipeline
from earmark.datasets import (
    HubLabels,
    Workspace,
    hub_export,
    hub_names,
    write_dataset,
    write_hub_folder,
)
from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology
from earmark.storage import AudioAccess
from sound_folders import wav

ONTOLOGY = Ontology(
    ("/m/1", "/m/2", "/m/3"), names={"/m/1": "Bark", "/m/2": "Bell", "/m/3": "Bell"}
)


def workspace_of(
    root: Path, audio: str | None, start: float | None, end: float | None
) -> Workspace:
    clips = pl.DataFrame(
        {
            "clip_id": ["2024/007"],
            "audio": pl.Series([audio], dtype=pl.String),
            "start_seconds": pl.Series([start], dtype=pl.Float64),
            "end_seconds": pl.Series([end], dtype=pl.Float64),
            "split": ["tune"],
            "source": ["s"],
        }
    )
    labels = LabelSet.from_dense(np.array([[1, -1, 0]], np.int8), ["2024/007"], ONTOLOGY.class_ids)
    access = AudioAccess(root, (root.parent,))
    return write_dataset(root, clips, ONTOLOGY, labels, access=access)


def row_of(folder: Path) -> dict[str, object]:
    path = folder / "data" / "validation-00000-of-00001.parquet"
    return pl.read_parquet(path).row(0, named=True)


def test_a_part_of_a_recording_is_cut_out(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("av")
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, (8_000, 2))
    soundfile.write(tmp_path / "long.wav", samples, 8_000, subtype="PCM_16")
    workspace = workspace_of(tmp_path / "w", str(tmp_path / "long.wav"), 0.25, 0.5)
    made = write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels))
    assert (made.n_clips, made.n_sounds, made.n_flags) == (1, 1, 0)
    row = row_of(tmp_path / "out")
    assert row["clip_id"] == "2024/007"
    assert row["audio"]["path"] == "2024_007.flac"  # type: ignore[index]
    heard, rate_hz = soundfile.read(io.BytesIO(row["audio"]["bytes"]))  # type: ignore[index]
    whole, _ = soundfile.read(tmp_path / "long.wav")
    assert rate_hz == 8_000
    np.testing.assert_allclose(heard, whole[2_000:4_000], atol=1e-4)  # both channels


@pytest.mark.parametrize("audio", ["{}/id_rsa", "../id_rsa", "link.wav", "file://{}/id_rsa"])
def test_what_lies_elsewhere_is_not_published(tmp_path: Path, audio: str) -> None:
    (tmp_path / "id_rsa").write_bytes(wav(0.1))  # even where it would decode
    workspace = workspace_of(tmp_path / "w", audio.format(tmp_path), None, None)
    workspace.audio_access_path.unlink()
    (workspace.root / "link.wav").symlink_to("../id_rsa")
    workspace = Workspace(workspace.root)
    made = write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels))
    assert made.n_sounds == 0
    assert row_of(tmp_path / "out")["audio"] is None
    (reason,) = made.unread
    assert "lies outside" in reason or "expected the path of a file" in reason


def test_what_is_no_sound_is_not_published(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "key.wav").write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    for times in ((None, None), (0.0, 1.0)):
        workspace = workspace_of(tmp_path / f"w{times[1]}", str(tmp_path / "key.wav"), *times)
        out = tmp_path / f"out{times[1]}"
        made = write_hub_folder(workspace, out, HubLabels(workspace.labels))
        assert row_of(out)["audio"] is None
        assert "not a sound file" in made.unread[0]


def test_quarantined_clips_are_published_without_sound(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    (tmp_path / "a.wav").write_bytes(wav(0.1))
    workspace = workspace_of(tmp_path / "w", str(tmp_path / "a.wav"), None, None)
    row = {"clip_id": ["2024/007"], "audio": ["a.wav"], "reason": ["NaN"]}
    pl.DataFrame(row).write_parquet(workspace.quarantine_path)
    made = write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels))
    assert row_of(tmp_path / "out")["audio"] is None
    assert "quarantined: NaN" in made.unread[0]


def test_corrected_labels_stand_beside_those_given(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", None, None, None)
    states = np.array([[1, 1, -1]], np.int8)
    corrected = LabelSet.from_dense(states, ["2024/007"], ONTOLOGY.class_ids)
    write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels, corrected))
    row = row_of(tmp_path / "out")
    assert (row["labels"], row["negatives"]) == ([0], [1])
    assert (row["corrected_labels"], row["corrected_negatives"]) == ([0, 1], [2])
    assert row["audio"] is None
    assert row["flags"] == []


def test_names_of_two_classes_are_not_used(tmp_path: Path) -> None:
    assert hub_names(ONTOLOGY) == ["Bark", "/m/2", "/m/3"]
    workspace = workspace_of(tmp_path / "w", None, None, None)
    write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels))
    meta = pl.read_parquet_metadata(tmp_path / "out/data/validation-00000-of-00001.parquet")
    features = json.loads(meta["huggingface"])["info"]["features"]
    assert features["labels"]["feature"]["names"] == ["Bark", "/m/2", "/m/3"]


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", None, None, None)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(EarmarkError, match="not touched"):
        write_hub_folder(workspace, tmp_path / "mine", HubLabels(workspace.labels))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_second_export_keeps_what_it_did_not_write(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", None, None, None)
    out = tmp_path / "out"
    write_hub_folder(workspace, out, HubLabels(workspace.labels))
    (out / ".git").mkdir()
    (out / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (out / "data" / "notes.md").write_text("mine")
    write_hub_folder(workspace, out, HubLabels(workspace.labels))
    assert (out / ".git" / "HEAD").exists()
    assert (out / "data" / "notes.md").read_text() == "mine"
    (out / "README.md").write_text("a card of my own")
    with pytest.raises(EarmarkError, match=r"'README\.md' was changed after `export --to hf`"):
        write_hub_folder(workspace, out, HubLabels(workspace.labels))
    assert (out / "README.md").read_text() == "a card of my own"


def test_an_interrupted_export_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(tmp_path / "w", None, None, None)
    write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels))
    before = row_of(tmp_path / "out")
    monkeypatch.setattr(hub_export, "_write_descriptions", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels))
    assert row_of(tmp_path / "out") == before
    assert {path.name for path in tmp_path.iterdir()} == {"w", "out"}


def test_without_flags_it_says_so(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", None, None, None)
    _, warnings = pipeline.export_hub(workspace, tmp_path / "out")
    assert "no flags in it yet" in warnings[0]
