from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.scores import Chunk, ScoreMatrix, open_scores

LABELS = LabelSet.from_dense(np.zeros((101, 5), int))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("CHUNK_SCORES", 60), ("COLUMN_SCORES", 80), ("SAMPLED_COLUMNS", 2)):
        monkeypatch.setattr(f"earmark.scores.matrix.{name}", number)


@pytest.fixture(params=["f2", "f4", "f8", ">f4"])
def array(request: pytest.FixtureRequest) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(101, 5)).astype(request.param)


def opened(array: np.ndarray, order: str, folder: Path | None) -> ScoreMatrix:
    stored = np.asarray(array, order=order)
    if folder is None:
        return open_scores(stored, LABELS)
    np.save(folder / "scores.npy", stored)
    return open_scores(folder / "scores.npy", LABELS)


def gather(chunks: Iterator[Chunk]) -> list[tuple[int, np.ndarray]]:
    found = []
    for rows, values in chunks:
        assert values.flags.c_contiguous
        found.append((rows.start, values.copy()))
    return found


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("is_file", [True, False])
def test_threads_share_the_chunks(
    array: np.ndarray, order: str, is_file: bool, tmp_path: Path
) -> None:
    scores = opened(array, order, tmp_path if is_file else None)
    parts = sorted(itertools.chain(*scores.map(gather)), key=lambda part: part[0])
    assert len(parts) > 6
    assert np.array_equal(np.concatenate([part for _, part in parts]), array.astype(np.float32))
    assert np.array_equal(scores.read(slice(None)), array.astype(np.float32))


@pytest.mark.parametrize("is_file", [True, False])
def test_what_is_done_to_scores_that_were_read_does_not_touch_their_owner(
    is_file: bool, tmp_path: Path
) -> None:
    own = np.ones((101, 5), np.float32)
    scores = opened(own, "C", tmp_path if is_file else None)
    scores.read(slice(None))[:] = 2
    assert (own == 1).all()
    assert (scores.read(slice(None)) == 1).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_scattered_clips(array: np.ndarray, order: str, tmp_path: Path) -> None:
    rows = np.array([0, 7, 100])
    found = opened(array, order, tmp_path).sample(rows)
    assert found.dtype == np.float32
    assert np.array_equal(found, array[rows].astype(np.float32))


def test_a_matrix_without_clips_is_one_empty_call() -> None:
    labels = LabelSet.from_dense(np.zeros((0, 5), int))
    assert open_scores(np.zeros((0, 5)), labels).map(lambda chunks: len(list(chunks))) == [0]


def test_an_error_in_one_thread_ends_the_others() -> None:
    n_seen = []

    def fail(chunks: Iterator[Chunk]) -> None:
        for rows, _ in chunks:
            n_seen.append(rows)
            raise EarmarkError(f"row {rows.start}")

    with pytest.raises(EarmarkError, match="row"):
        open_scores(np.zeros((101, 5)), LABELS).map(fail)
    assert len(n_seen) <= (os.cpu_count() or 1)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_shrinks_while_it_is_read(order: str, tmp_path: Path) -> None:
    scores = opened(np.ones((101, 5), np.float32), order, tmp_path)
    os.truncate(tmp_path / "scores.npy", 600)
    with pytest.raises(EarmarkError, match="cut short while it was being read"):
        scores.map(gather)
