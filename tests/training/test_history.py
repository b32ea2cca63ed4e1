from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from earmark.training import open_training_log, read_histories, write_history


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_tensorboard_reads_what_was_shown(tmp_path: Path) -> None:
    with open_training_log(tmp_path, 0) as training_log:
        training_log(0, {"train/loss": 2.0, "train/learning_rate": 0.5})
        training_log(1, {"train/loss": 1.0})
    assert scalars(tmp_path) == {
        "train/loss": [(0, 2.0), (1, 1.0)],
        "train/learning_rate": [(0, 0.5)],
    }


def test_a_resumed_run_replaces_the_steps_that_it_takes_again(tmp_path: Path) -> None:
    for first_step, value in ((0, 1.0), (2, 2.0)):
        with open_training_log(tmp_path, first_step) as training_log:
            for step in range(first_step, 4):
                training_log(step, {"train/loss": value})
    assert scalars(tmp_path)["train/loss"] == [(0, 1.0), (1, 1.0), (2, 2.0), (3, 2.0)]


def test_without_tensorboard_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorboard" else found(name)
    )
    with open_training_log(tmp_path, 0) as training_log:
        training_log(0, {"train/loss": 2.0})
    assert not list(tmp_path.iterdir())


def test_histories_are_found_by_the_names_of_networks(tmp_path: Path) -> None:
    for name, loss in (("student", 1.5), ("another", 2.5)):
        write_history(tmp_path / name, [{"epoch": 1, "loss": loss}])
    (tmp_path / "unfinished").mkdir()
    found = read_histories(tmp_path)
    assert {name: history["loss"].to_list() for name, history in found.items()} == {
        "another": [2.5],
        "student": [1.5],
    }
    assert read_histories(tmp_path / "nowhere") == {}
