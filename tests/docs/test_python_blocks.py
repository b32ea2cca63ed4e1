"""The Python blocks of README and docs run, with the files and names that a reader has."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from documents import DOCUMENTS, Piece, blocks
from earmark.config import Recipe
from earmark.datasets import write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.scores import write_score_folder

N_CLIPS, N_CLASSES = 400, 3


def python_blocks(path: Path) -> list[Piece]:
    return [block for block in blocks(path) if block.language == "python"]


def write_files(states: np.ndarray, logits: np.ndarray) -> None:
    """Write what a reader has: labels, scores and frames, in the current folder."""
    from earmark.audio import write_store

    clips, classes = np.nonzero(states)
    rows = [
        f"clip{i},class{c},{int(states[i, c] > 0)}" for i, c in zip(clips, classes, strict=True)
    ]
    Path("labels.csv").write_text("\n".join(["clip_id,class_id,present", *rows]))
    Path("classes.txt").write_text("\n".join(f"class{c}" for c in range(N_CLASSES)))
    Path("clips.txt").write_text("\n".join(f"clip{i}" for i in range(N_CLIPS)))
    np.save("scores.npy", logits)
    np.save("teacher_logits.npy", logits)
    write_store(Path("frames"), [("abc", np.zeros((400, 64), np.float16))])
    write_work(states, logits)


def write_work(states: np.ndarray, logits: np.ndarray) -> None:
    """Write a workspace with short frames that a teacher has scored."""
    from earmark.audio import write_store

    clip_ids = [f"clip{i}" for i in range(N_CLIPS)]
    class_ids = [f"class{c}" for c in range(N_CLASSES)]
    clips = pl.DataFrame({"clip_id": clip_ids, "split": "train", "source": clip_ids})
    clips = clips.with_columns(audio=None, start_seconds=None, end_seconds=None)
    labels = LabelSet.from_dense(states, clip_ids, class_ids)
    workspace = write_dataset("work", clips, Ontology(tuple(class_ids)), labels)
    write_store(workspace.frames_folder, ((one, np.zeros((96, 2), np.float16)) for one in clip_ids))
    write_score_folder(
        workspace.scores_folder(Recipe().teacher.name),
        workspace.clips["clip_id"],
        class_ids,
        logits,
        np.zeros(logits.shape, np.uint16),
        out_of_fold=True,
        digest="scores",
    )


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a reader has at hand, in a folder with their files.

    Everything is of one made-up dataset: 3 classes that score higher where they are present.
    """
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    states = generator.choice(
        np.array([1, -1, 0], np.int8), (N_CLIPS, N_CLASSES), p=(0.2, 0.2, 0.6)
    )
    states[:, 0] = np.where(states.any(axis=1), states[:, 0], -1)  # no clip without a label
    logits = (2.0 * states + generator.normal(size=states.shape)).astype(np.float32)
    write_files(states, logits)
    rows = np.arange(8)
    network = torch.nn.Linear(5, N_CLASSES)
    return {
        "clip_ids": [f"clip{i}" for i in range(N_CLIPS)],
        "class_ids": [f"class{c}" for c in range(N_CLASSES)],
        "states": states,
        "scores": logits,
        "logits": logits,
        "teacher_logits": logits,
        "chances": logits - 3,
        "rows": rows,
        "x": torch.zeros(len(rows), 5),
        "batches": [(rows, torch.zeros(len(rows), 5))],
        "student": network,
        "model": network,
    }


@pytest.mark.parametrize("path", [*filter(python_blocks, DOCUMENTS)], ids=lambda path: path.name)
def test_blocks_run_in_order(path: Path, names: dict[str, Any]) -> None:
    for block in python_blocks(path):
        if block.reason_not_to_run is None:
            run(block, names)


def run(block: Piece, names: dict[str, Any]) -> None:
    """Run a block, such that a traceback shows its line in the document."""
    source = "\n" * (block.line - 1) + block.text
    linecache.cache[str(block.path)] = (len(source), None, source.splitlines(True), str(block.path))
    exec(compile(source, str(block.path), "exec"), names)


def test_a_block_is_exempt_only_with_a_reason() -> None:
    for path in DOCUMENTS:
        for block in python_blocks(path):
            assert block.reason_not_to_run != "", f"{block}: say why it is not run"


def test_the_readme_has_blocks_that_run() -> None:
    readme = next(path for path in DOCUMENTS if path.name == "README.md")
    assert any(block.reason_not_to_run is None for block in python_blocks(readme))
