from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")

import students_by_ear as by_ear
from earmark.datasets import write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.metrics import Draws, evaluate

CLASS_IDS = ("/m/a", "/m/b", "/m/c", "/m/d")


@pytest.fixture
def judged(tmp_path: Path) -> by_ear.Judged:
    """Eight clips; of the first three of four eval clips people said what they heard."""
    names = [f"video{i}" for i in range(8)]
    clip_ids = [f"{name}_0" for name in names]
    states = np.zeros((8, 4), int)
    states[:4, 0], states[:2, 1], states[0, 2], states[4:6, 1], states[6, 3] = 1, 1, 1, 1, 1
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": pl.Series([None] * 8, dtype=pl.String),
            "start_seconds": [0.0] * 8,
            "end_seconds": [10.0] * 8,
            "split": ["train"] * 4 + ["eval"] * 4,
            "source": names,
        }
    )
    labels = LabelSet.from_dense(states, clip_ids, CLASS_IDS)
    workspace = write_dataset(tmp_path / "work", clips, Ontology(CLASS_IDS), labels)
    tables = {
        "clips": pl.DataFrame({"YTID": ["video5", "video4", "video6", "elsewhere"]}),
        "classes": pl.DataFrame({"mid": ["/m/b", "/m/c", "/m/a", "/m/not_here"]}),
        "labels": pl.DataFrame(
            {
                "YTID": ["video5", "video4", "video7", "elsewhere", "video6"],
                "mid": ["/m/c", "/m/a", "/m/a", "/m/a", "/m/d"],
                "heard": ["itself"] * 5,
            }
        ),
    }
    for name, table in tables.items():
        table.write_csv(tmp_path / f"human_truth_{name}.csv")
    return by_ear.Judged.read(workspace, tmp_path)


def test_only_what_people_listened_to_is_judged(judged: by_ear.Judged) -> None:
    assert judged.clip_ids.to_list() == ["video4_0", "video5_0", "video6_0"]
    assert judged.class_ids == ("/m/a", "/m/b", "/m/c")
    assert judged.labels["truth"].astype(int).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert judged.labels["given"].astype(int).tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert judged.n_train.tolist() == [4, 2, 1]


def test_a_clip_is_always_in_the_same_part() -> None:
    parts = [by_ear.is_in_part_a(f"video{i}") for i in range(1000)]
    assert 450 < sum(parts) < 550
    assert [by_ear.is_in_part_a(name) for name in ("--4gqARaEJE", "--BfvyPmVMo")] == [False, True]


def made_up(n_clips: int = 300, n_classes: int = 6) -> tuple[by_ear.Judged, np.ndarray]:
    random = np.random.default_rng(0)
    truth = random.random((n_clips, n_classes)) < 0.2
    given = truth & (random.random(truth.shape) < 0.5)
    logits = (random.normal(size=truth.shape) + 2 * truth).astype(np.float32)
    names = pl.Series([f"clip{i}" for i in range(n_clips)])
    is_a = random.random(n_clips) < 0.5
    n_train = np.array([5, 100, 20, 7, 50, 9])
    class_ids = tuple(f"class{i}" for i in range(n_classes))
    labels = {"truth": truth, "given": given}
    return by_ear.Judged(names, class_ids, labels, is_a, n_train, 1_000), logits


@pytest.mark.parametrize("on_a", [True, False])
def test_numbers_are_those_of_evaluate_on_the_part(on_a: bool) -> None:
    judged, logits = made_up()
    found = by_ear.Measure(judged, on_a).draws(logits)
    rows = judged.is_chosen_on == on_a
    for labels, positives in judged.labels.items():
        expected = evaluate(np.where(positives, 1, -1)[rows], logits[rows])
        table = expected.per_class
        for metric, column in (("d_prime", "d_prime_all"), ("map", "ap"), ("lwlrap", "lwlrap")):
            whole = found[labels, "all", metric]
            assert whole.value == pytest.approx(table[column].mean())
            assert whole.resamples.mean() == pytest.approx(whole.value, abs=0.05)
            n_heard = judged.labels["truth"][judged.is_chosen_on].sum(axis=0)
            large = np.argsort(-n_heard, kind="stable")[:2]
            expected_large = table[column].gather(large).mean()
            assert found[labels, "large", metric].value == pytest.approx(expected_large)


def test_an_offset_by_class_changes_only_what_compares_classes() -> None:
    judged, logits = made_up()
    measure = by_ear.Measure(judged, on_a=False)
    plain = measure.draws(logits)
    shifted = measure.draws(logits + np.log(judged.priors).astype(np.float32))
    for metric in ("d_prime", "map"):
        cell = ("truth", "all", metric)
        assert shifted[cell].value == pytest.approx(plain[cell].value)
    assert shifted["truth", "all", "lwlrap"].value < plain["truth", "all", "lwlrap"].value - 0.01
    cell = ("truth", "all", "lwlrap_calibrated")
    assert shifted[cell].value == pytest.approx(plain[cell].value, abs=0.01)


def test_strategies_by_chance_are_tried_with_all_chances() -> None:
    found = by_ear.lines_of(["mask@1,2", "chance/soft@0"], ["none", "1000"])
    names = [[line.name for line in family] for family in found]
    assert names == [["mask@1", "mask@2"], ["chance/soft@0 (none)"], ["chance/soft@0 (1000)"]]
    (alone,) = by_ear.lines_of(["1000:chance/soft@0,0.1"], ["none", "1000"])
    assert [line.name for line in alone] == ["chance/soft@0 (1000)", "chance/soft@0.1 (1000)"]


def draws(value: float, error: float) -> Draws:
    return Draws(value, value + error * np.array([-1.0, 1.0] * 100))


def cells(d_prime: float, ap: float, error: float = 0.01) -> dict[by_ear.Cell, Draws]:
    numbers = {"d_prime": d_prime, "map": ap, "lwlrap": 0.0, "lwlrap_calibrated": 0.0}
    return {
        (labels, group, metric): draws(value - 0.2 * (group == "small"), error)
        for labels in ("truth", "given")
        for group in by_ear.GROUPS
        for metric, value in numbers.items()
    }


def test_a_point_is_chosen_by_its_weaker_gain() -> None:
    lines = [by_ear.Line("mask", point) for point in (1, 2, 3)]
    gains = dict(zip(lines, [cells(0.9, -0.1), cells(0.2, 0.1), cells(0.05, 0.3)], strict=True))
    assert by_ear.best_point(lines, gains) == lines[1]


def test_better_means_both_and_worse_names_the_groups() -> None:
    lines = [by_ear.Line(name, 1.0) for name in ("both", "one", "unsure")]
    gains = dict(zip(lines, [cells(0.3, 0.3), cells(0.1, -0.1), cells(0.001, 0.3)], strict=True))
    rows = by_ear.table_of(cells(1.0, 1.0), gains)
    found = {one["strategy"]: one for one in by_ear.verdicts(rows)}
    assert [found[name]["is_better"] for name in ("both", "one", "unsure")] == [True, False, False]
    assert found["both"]["is_better_holm"]
    assert found["both"]["worse"] == []
    assert found["one"]["worse"] == ["large map", "medium map", "small d_prime", "small map"]
    assert "both@1.0" in by_ear.shown(rows, "truth", ["all"])
