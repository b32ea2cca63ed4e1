from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.compute import Engine, LocalEngine
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.scores import Passes, Summary, passes_by, top_scores


def made_up(folder: Path, n_clips: int = 3_000, n_classes: int = 7) -> tuple[LabelSet, Path]:
    """Write scores with ties, and labels of which a tenth are explicit."""
    rng = np.random.default_rng(0)
    logits = rng.normal(-3, 2, (n_clips, n_classes)).round(2).astype(np.float32)
    states = rng.choice([-1, 0, 1], logits.shape, p=[0.05, 0.9, 0.05]).astype(np.int8)
    np.save(folder / "logits.npy", logits)
    return LabelSet.from_dense(states), folder / "logits.npy"


def summarise(labels: LabelSet, path: Path, passes: Passes) -> Summary:
    ranks = np.array([[3], [30], [300]]) + np.arange(labels.n_classes)
    return top_scores(labels, path, ranks, 50, passes)


def assert_same(labels: LabelSet, path: Path, engine: Engine, clips_per_shard: int) -> None:
    here = summarise(labels, path, Passes())
    there = summarise(labels, path, passes_by(engine, clips_per_shard))
    for name in ("values", "n_greater", "n_listed", "explicit"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    for one, other in zip(there.classes, here.classes, strict=True):
        np.testing.assert_array_equal(one.listed, other.listed)


@pytest.mark.parametrize("clips_per_shard", [1, 999, 1_000, 10_000])
def test_shards_of_any_size_merge_to_the_answer_of_one_machine(
    tmp_path: Path, clips_per_shard: int
) -> None:
    n_clips = 40 if clips_per_shard == 1 else 3_000
    assert_same(*made_up(tmp_path, n_clips), LocalEngine(1), clips_per_shard)


def test_scores_in_memory_are_refused(tmp_path: Path) -> None:
    labels, path = made_up(tmp_path)
    with pytest.raises(EarmarkError, match=r"path of an \.npy file"):
        top_scores(
            labels, np.load(path), np.ones((1, 7), np.int64), passes=passes_by(LocalEngine(1))
        )
