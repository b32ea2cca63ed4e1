"""What the library ``datasets`` writes is read, and what is written for it, it reads.

The library runs in a Python of its own: within these tests ``datasets`` is their own folder.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from earmark import pipeline
from earmark.datasets import Workspace, hub_export, import_hugging_face
from earmark.errors import EarmarkError
from listening import tone_workspace
from sound_folders import present_in, wav

WRITE = """
import sys
from pathlib import Path
import datasets

sound, folder = Path("sound.wav").read_bytes(), Path(sys.argv[1])
names = datasets.ClassLabel(names=["dog", "cat", "rain"])
plain = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
columns = {"clip_id": ["007", "008", "009"], "labels": [[0], [0, 2], []], "wrong": [[], [1], []]}
columns["audio"] = [{"bytes": sound, "path": "a.wav"}, {"bytes": sound, "path": None}, None]
listed = datasets.Sequence(names)
kinds = {"clip_id": datasets.Value("string"), "labels": listed, "wrong": listed, "audio": plain}
made = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
made = made.cast_column("audio", datasets.Audio(decode=False))
both = datasets.DatasetDict({"train": made.select([0, 1]), "validation": made.select([2])})
both.save_to_disk(folder / "saved", num_shards={"train": 2, "validation": 1})
made.save_to_disk(folder / "single")
made.to_parquet(folder / "hub" / "data" / "train-00000-of-00001.parquet")
"""

READ = """
import json, sys
import datasets

found = datasets.load_dataset(sys.argv[1])
features = {name: repr(kind) for name, kind in found["train"].features.items()}
found = found.cast_column("audio", datasets.Audio(decode=False))
rows = {split: [dict(row) for row in own] for split, own in found.items()}
for row in sum(rows.values(), []):
    row["audio"] = row["audio"] and [row["audio"]["path"], len(row["audio"]["bytes"])]
names = found["train"].features["labels"].feature.names
found.save_to_disk(sys.argv[2])
print(json.dumps({"features": features, "rows": rows, "names": names}))
"""


def run_library(script: str, *arguments: Path, folder: Path) -> str:
    try:
        importlib.metadata.version("datasets")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the library `datasets` is not installed")
    caches = {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    words = [sys.executable, "-c", script, *map(str, arguments)]
    env = {**os.environ, **caches}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the library wrote, in three forms."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "sound.wav").write_bytes(wav(0.1))
    run_library(WRITE, folder, folder=folder)
    return folder


@pytest.mark.parametrize("form", ["saved", "single", "hub"])
def test_what_the_library_writes_is_read(written: Path, form: str, tmp_path: Path) -> None:
    columns = {"negatives": "wrong"}
    summary = import_hugging_face(written / form, tmp_path / "w", columns=columns)
    assert present_in(summary) == {"007": {"dog"}, "008": {"dog", "rain"}, "009": set()}
    assert summary.workspace.ontology.class_ids == ("dog", "cat", "rain")
    assert summary.workspace.labels.states()[1].tolist() == [1, -1, 1]
    assert (summary.n_found, summary.n_missing) == (2, 1)
    n_tune = 1 if form == "saved" else 0
    assert summary.split_counts == {"train": 3 - n_tune, "tune": n_tune, "eval": 0}
    for audio in summary.workspace.clips["audio"].drop_nulls():
        assert summary.workspace.audio_path(audio).read_bytes() == wav(0.1)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Ten tones with flags; three splits, a clip that is part of a file, one without sound."""
    made = tone_workspace(tmp_path_factory.mktemp("tones") / "w", n_clips=60, seconds=0.3)
    pipeline.write_flags(made, discard_percent=20)
    (made.root / made.clips["audio"][4]).unlink()
    return Workspace(made.root)


def exported(workspace: Workspace, folder: Path) -> dict[str, Any]:
    pipeline.export_hub(workspace, folder / "out")
    told = run_library(READ, folder / "out", folder / "saved", folder=folder)
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def test_what_is_written_the_library_reads(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_export, "_SHARD_BYTES", 200_000)
    with pytest.raises(EarmarkError, match="not touched"):
        pipeline.export_hub(workspace, workspace.root)
    found = exported(workspace, tmp_path)
    assert found["features"]["audio"].startswith("Audio(")
    assert found["features"]["flags"].startswith("List(ClassLabel(")
    assert found["names"] == [workspace.ontology.name(c) for c in workspace.ontology.class_ids]
    rows = {row["clip_id"]: row for own in found["rows"].values() for row in own}
    assert list(rows) == workspace.clips["clip_id"].to_list()
    assert len(list((tmp_path / "out" / "data").iterdir())) > 1  # several shards
    check_labels(workspace, rows)
    check_flags(workspace, rows)
    sizes = [(workspace.root / a).stat().st_size for a in workspace.clips["audio"][:4]]
    audios = [row["audio"] for row in rows.values()]
    assert audios[:5] == [*([f"clip{i:03}.wav", sizes[i]] for i in range(4)), None]
    check_round_trip(workspace, tmp_path / "out", tmp_path / "again")
    check_round_trip(workspace, tmp_path / "saved", tmp_path / "saved-again")


def check_labels(workspace: Workspace, rows: dict[str, Any]) -> None:
    states = workspace.labels.states()
    for own, row in zip(states, rows.values(), strict=True):
        assert sorted(row["labels"]) == np.flatnonzero(own == 1).tolist()
        assert sorted(row["negatives"]) == np.flatnonzero(own == -1).tolist()


def check_flags(workspace: Workspace, rows: dict[str, Any]) -> None:
    flags = pl.read_parquet(workspace.flags_path)
    columns = workspace.ontology.index
    told = [
        (clip_id, columns[class_id], pytest.approx(chance), pytest.approx(logit))
        for clip_id, class_id, chance, logit in flags.sort("chance", descending=True)
        .select("clip_id", "class_id", "chance", "logit")
        .iter_rows()
    ]
    found = [
        (clip_id, *flag)
        for clip_id, row in rows.items()
        for flag in zip(row["flags"], row["flag_chances"], row["flag_scores"], strict=True)
    ]
    assert len(found) == len(flags) > 10
    assert sorted(found) == sorted(told, key=lambda flag: flag[:2])


def check_round_trip(workspace: Workspace, folder: Path, work: Path) -> None:
    """Import what was exported: clips, splits, labels and sound are the same."""
    again = import_hugging_face(folder, work).workspace
    columns = ["clip_id", "split", "source"]
    assert again.clips.select(columns).equals(workspace.clips.select(columns))
    assert (again.labels.states() == workspace.labels.states()).all()
    assert again.clips["audio"].null_count() == 1
    here, there = workspace.clips["audio"][0], again.clips["audio"][0]
    assert again.audio_path(there).read_bytes() == workspace.audio_path(here).read_bytes()
    names = {
        space.ontology.name(c) for space in (again, workspace) for c in space.ontology.class_ids
    }
    assert len(names) == again.labels.n_classes
    if (folder / "classes.csv").exists():
        assert again.ontology.to_table().equals(workspace.ontology.to_table())
