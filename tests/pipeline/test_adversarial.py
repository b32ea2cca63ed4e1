"""Plausible inputs that have misled: what is said of each is true, or it is not said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.flags import count_missing, flag, survey
from earmark.labels import LabelSet
from earmark.pipeline import ScanResult, scan
from earmark.scores import open_scores
from suspects import world

STRENGTHS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""AUC of the teachers: from one that knows nothing to a good one."""

SHAPES = ("normal", "heavy", "skewed", "wide")


class Files:
    """Labels as rows and scores without names, with lists of clips and classes in their order."""

    def __init__(self, folder: Path, states: np.ndarray, scores: np.ndarray) -> None:
        self.labels, self.scores = folder / "labels.csv", folder / "scores.npy"
        self.clips, self.classes = folder / "clips.txt", folder / "classes.txt"
        self.clip_ids = [f"clip{number:05d}.wav" for number in range(len(states))]
        self.class_ids = [f"class {number}" for number in range(states.shape[1])]
        rows, columns = np.nonzero(states)
        table = pl.DataFrame(
            {
                "clip_id": [self.clip_ids[row] for row in rows],
                "class_id": [self.class_ids[column] for column in columns],
                "present": states[rows, columns] > 0,
            }
        )
        table.sample(fraction=1, shuffle=True, seed=0).write_csv(self.labels)
        np.save(self.scores, scores)
        self.list_clips(self.clip_ids)
        self.list_classes(self.class_ids)

    def list_clips(self, ids: list[str]) -> None:
        self.clips.write_text("\n".join(ids))

    def list_classes(self, ids: list[str]) -> None:
        self.classes.write_text("\n".join(ids))

    def scan(self, **options: object) -> ScanResult:
        given = {"clips": self.clips, "classes": self.classes, **options}
        return scan(self.labels, self.scores, **given)  # type: ignore[arg-type]


def assert_refused(result: ScanResult, words: str = "do not know your labels") -> None:
    """No chance, no estimate, and the first line says why."""
    assert words in result.lines()[0]
    assert not any("labels are missing" in line for line in result.lines())
    assert result.findings.flags["chance"].null_count() == result.n_flags
    assert result.findings.estimates.n_right is None


def assert_true(result: ScanResult, is_missing: np.ndarray) -> None:
    """What is said of flags and chances agrees with the truth."""
    known = result.findings.estimates
    assert result.lines()[0] == known.describe()
    assert not any("labels are missing" in line for line in result.lines())
    flags = result.findings.flags
    rows = flags["clip_id"].str.extract(r"(\d+)").cast(pl.Int64).to_numpy()
    columns = flags["class_id"].str.extract(r"(\d+)").cast(pl.Int64).to_numpy()
    is_right = is_missing[rows, columns]
    assert known.n_right is not None
    assert known.n_right.low <= is_right.sum() <= known.n_right.high
    said = flags["chance"].to_numpy()
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.01)):
        band = (said >= low) & (said < high)
        if band.sum() >= 100:
            chance, share = said[band].mean(), is_right[band].mean()
            assert chance / 3 - 0.02 < share < chance * 2 + 0.05


@pytest.mark.parametrize("auc", STRENGTHS)
def test_teachers_of_six_strengths(tmp_path: Path, auc: float) -> None:
    states, scores, is_missing = world(auc, seed=11)
    files = Files(tmp_path, states, scores)
    result = files.scan(policy="percentile", discard_percent=2.0)
    if auc == 0.5:
        assert_refused(result)
    else:
        assert result.findings.knowledge.is_enough
        assert_true(result, is_missing)


@pytest.mark.parametrize(("auc", "least_held"), [(0.8, 0.75), (0.9, 1.0), (0.95, 1.0)])
def test_ranges_of_right_flags_hold_the_truth(auc: float, least_held: float) -> None:
    """Whatever shape the scores have, of a teacher that knows much."""
    is_held = []
    for seed, shape in enumerate(SHAPES * 2):
        states, scores, is_missing = world(auc, seed=100 + seed, shape=shape)
        labels = LabelSet.from_dense(states)
        flags = survey(labels, open_scores(scores, labels), policy=None).suspects
        right = count_missing(labels, scores, flags).n_right
        is_right = is_missing[flags.rows, flags.columns(np.arange(len(flags)))]
        assert right is not None
        is_held.append(right.low <= is_right.sum() <= right.high)
    assert np.mean(is_held) >= least_held


@pytest.mark.parametrize("auc", STRENGTHS[1:])
def test_a_list_by_chance_is_right_as_often_as_it_promises(auc: float) -> None:
    n_listed = n_right = 0
    for seed, shape in enumerate(SHAPES):
        states, scores, is_missing = world(auc, seed=200 + seed, shape=shape)
        listed = flag(LabelSet.from_dense(states), scores, "precision", target=0.5)
        rows, columns = (listed[name].cast(pl.Int64).to_numpy() for name in ("clip_id", "class_id"))
        n_listed += len(listed)
        n_right += int(is_missing[rows, columns].sum())
    assert n_listed < 20 or n_right / n_listed >= 0.5
    if auc <= 0.7:
        assert n_listed < 20  # a weak teacher cannot promise anything


def test_weak_chances_shrink_to_the_base_rate() -> None:
    states, scores, is_missing = world(0.55, n_clips=6_000, seed=5)
    flags = flag(LabelSet.from_dense(states), scores, discard_percent=1)
    base = is_missing.sum() / (states == 0).sum()
    assert flags["chance"].mean() < 6 * base
    assert flags["chance"].max() < 0.5


def test_clips_in_another_order(tmp_path: Path) -> None:
    files = Files(tmp_path, *world(0.95)[:2])
    files.list_clips(np.random.default_rng(0).permutation(files.clip_ids).tolist())
    assert_refused(files.scan())


def test_rows_of_labels_do_not_give_the_order(tmp_path: Path) -> None:
    files = Files(tmp_path, *world(0.95)[:2])
    with pytest.raises(EarmarkError, match="clips"):
        files.scan(clips=None)


def test_classes_in_another_order(tmp_path: Path) -> None:
    files = Files(tmp_path, *world(0.95)[:2])
    files.list_classes(np.random.default_rng(0).permutation(files.class_ids).tolist())
    assert_refused(files.scan())


def test_transposed_scores(tmp_path: Path) -> None:
    states, scores, _ = world(0.95)
    files = Files(tmp_path, states, np.ascontiguousarray(scores.T))
    with pytest.raises(EarmarkError, match="transpose"):
        files.scan()


def test_all_labels_positive(tmp_path: Path) -> None:
    states, scores, _ = world(0.95, n_clips=300, n_classes=5)
    result = Files(tmp_path, np.ones_like(states), scores).scan()
    assert result.n_flags == 0
    assert_refused(result, "know your labels")


def test_no_positive(tmp_path: Path) -> None:
    states, scores, _ = world(0.95, n_clips=300, n_classes=5)
    files = Files(tmp_path, np.where(states == 0, -1, 0).astype(np.int8), scores)
    assert_refused(files.scan(), "only 0 scored positives")


def test_no_negatives(tmp_path: Path) -> None:
    states, scores, is_missing = world(0.9, seed=3)
    files = Files(tmp_path, states.clip(0, 1), scores)
    assert_true(files.scan(discard_percent=2.0), is_missing)


def test_one_class(tmp_path: Path) -> None:
    states, scores, is_missing = world(0.9, n_clips=4_000, n_classes=1, priors=(0.1, 0.1))
    files = Files(tmp_path, states, scores)
    result = files.scan(discard_percent=5.0)
    assert result.findings.knowledge.is_enough
    right = result.findings.estimates.n_right
    assert right is not None
    n_right = int(
        is_missing[result.findings.flags["clip_id"].str.extract(r"(\d+)").cast(int)].sum()
    )
    assert right.low / 2 < n_right < right.high
    shuffled = Files(tmp_path, states, np.random.default_rng(0).permutation(scores))
    assert_refused(shuffled.scan())


def test_clips_listed_twice(tmp_path: Path) -> None:
    files = Files(tmp_path, *world(0.9, n_clips=300, n_classes=5)[:2])
    files.list_clips([files.clip_ids[0], *files.clip_ids[:-1]])
    with pytest.raises(EarmarkError, match=r"twice|clip00000"):
        files.scan()


def test_half_of_the_clips_unscored(tmp_path: Path) -> None:
    states, scores, is_missing = world(0.9, n_clips=4_000, seed=2)
    files = Files(tmp_path, states, scores[::2])
    files.list_clips(files.clip_ids[::2])
    result = files.scan(discard_percent=2.0)
    assert any("2,000 of 4,000" in line or "have no scores" in line for line in result.lines())
    is_missing[1::2] = False
    assert_true(result, is_missing)
