from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from called_verbs import refusal
from earmark.audio import write_store
from earmark.datasets.exchange import atlas
from earmark.datasets.exchange.atlas import Atlas, embedding_store, write_atlas
from earmark.datasets.workspace import Workspace, write_dataset
from earmark.labels import LabelSet, Ontology
from sounds import sound_workspace

CLASS_IDS = ("/m/1", "/m/2")
ONTOLOGY = Ontology(CLASS_IDS, names={"/m/1": "Bark", "/m/2": "Rain"})
N_CLIPS = 12


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Twelve clips; all bark, the odd ones rain, and the last has a URL for sound."""
    clip_ids = [f"{i:03}" for i in range(N_CLIPS)]
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": [f"audio/{name}.wav" for name in clip_ids[:-1]] + ["s3://bucket/x.wav"],
            "start_seconds": pl.Series([None] * N_CLIPS, dtype=pl.Float64),
            "end_seconds": pl.Series([None] * N_CLIPS, dtype=pl.Float64),
            "split": ["train"] * N_CLIPS,
            "source": clip_ids,
        }
    )
    states = np.array([[1, i % 2] for i in range(N_CLIPS)], np.int8)
    labels = LabelSet.from_dense(states, clip_ids, CLASS_IDS)
    return write_dataset(tmp_path / "w", clips, ONTOLOGY, labels)


def with_embeddings(workspace: Workspace, width: int = 5) -> dict[str, np.ndarray]:
    """Give all clips but the first embeddings; return the mean of each."""
    rng = np.random.default_rng(0)
    clips = workspace.clips["clip_id"].to_list()[1:]
    frames = {clip_id: rng.normal(size=(3, width)).astype(np.float16) for clip_id in clips}
    write_store(workspace.embeddings_folder, frames.items())
    return {clip_id: own.astype(np.float64).mean(axis=0) for clip_id, own in frames.items()}


def written(workspace: Workspace) -> Atlas:
    """Flag rain in the even clips, and bark in the last."""
    clips = [f"{i:03}" for i in range(0, N_CLIPS, 2)]
    flags = pl.DataFrame(
        {
            "clip_id": [*clips, "011"],
            "class_id": [*["/m/2"] * len(clips), "/m/1"],
            "logit": np.linspace(3, 1, len(clips) + 1, dtype=np.float32),
            "chance": np.linspace(0.9, 0.1, len(clips) + 1),
            "rank": range(1, len(clips) + 2),
        }
    )
    return write_atlas(workspace, workspace.root / "flags.parquet", flags, workspace.labels)


def test_a_row_for_each_flag(workspace: Workspace) -> None:
    means = with_embeddings(workspace)
    made = written(workspace)
    table = pl.read_parquet(made.path)
    assert (len(table), made.n_flags, made.n_features) == (7, 7, 5)
    assert table["clip_id"].to_list() == ["000", "002", "004", "006", "008", "010", "011"]
    assert table["class_name"].to_list() == ["Rain"] * 6 + ["Bark"]
    assert table["given_labels"].to_list() == ["Bark"] * 6 + ["Bark, Rain"]
    assert table["audio"][0] == str(workspace.root.resolve() / "audio" / "000.wav")
    assert table["audio"][-1] == "s3://bucket/x.wav"
    assert table["score"].to_list() == pytest.approx(np.linspace(3, 1, 7))
    assert table.schema["embedding"] == pl.List(pl.Float32)
    assert table.schema["projection_x"] == table.schema["chance"] == pl.Float64
    assert table["embedding"][0] is None
    for clip_id, embedding in table.select("clip_id", "embedding").rows()[1:]:
        np.testing.assert_allclose(embedding, means[clip_id], rtol=1e-4, atol=1e-5)


def test_the_plane_is_that_of_the_principal_components(workspace: Workspace) -> None:
    means = with_embeddings(workspace)
    rows = written(workspace).table.drop_nulls("embedding")
    vectors = np.array([means[clip_id] for clip_id in rows["clip_id"]])
    centred = vectors - vectors.mean(axis=0)
    axes = np.linalg.svd(centred)[2][:2]
    found = rows.select("projection_x", "projection_y").to_numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(centred @ axes.T), atol=1e-4)


def test_without_embeddings_there_are_no_such_columns(workspace: Workspace) -> None:
    made = written(workspace)
    assert made.n_features == 0
    assert not {"embedding", "projection_x"} & set(made.table.columns)


def test_one_number_makes_no_plane(workspace: Workspace) -> None:
    with_embeddings(workspace, width=1)
    assert written(workspace).table["projection_y"].drop_nulls().unique().to_list() == [0]


def test_log_mel_frames_are_no_embeddings(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    assert embedding_store(sound_workspace(tmp_path / "w", n_clips=2)) is None


def test_the_likeliest_are_kept(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atlas, "MOST_ROWS", 3)
    made = written(workspace)
    assert made.table["clip_id"].to_list() == ["000", "002", "004"]
    assert made.n_flags == 7


def test_what_the_verb_refuses(workspace: Workspace) -> None:
    export = ("export", workspace.root, "flags.parquet", "--to")
    assert "no flags yet; make them with `earmark flag " in refusal(*export, "atlas")
    assert "--to is labels, hf or atlas, got 'x'" in refusal(*export, "x")
    assert "give the percent there" in refusal(*export, "hf", "--discard-percent", 1)
    assert "leave --labels out" in refusal(*export, "atlas", "--labels", "corrected")
