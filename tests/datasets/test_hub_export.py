from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark import stages
from earmark.datasets.exchange import hub_export
from earmark.datasets.exchange.hub_export import HubLabels, hub_names, write_hub_folder
from earmark.datasets.workspace import Workspace, write_dataset
from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology

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
    return write_dataset(root, clips, ONTOLOGY, labels)


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


def test_an_interrupted_export_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(tmp_path / "w", None, None, None)
    write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels))
    before = row_of(tmp_path / "out")
    monkeypatch.setattr(hub_export, "_write_words", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_hub_folder(workspace, tmp_path / "out", HubLabels(workspace.labels))
    assert row_of(tmp_path / "out") == before
    assert {path.name for path in tmp_path.iterdir()} == {"w", "out"}


def test_without_flags_it_says_so(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", None, None, None)
    _, warnings = stages.export_hub(workspace, tmp_path / "out")
    assert "no flags in it yet" in warnings[0]
