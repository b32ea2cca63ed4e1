"""Trackers, against small fakes of their libraries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from earmark.errors import EarmarkError
from earmark.runs import ModelParams, NetworkParams, Recipe, TrainParams, keep_recipe
from earmark.training.course.history import open_course, show_history, show_outcome
from earmark.training.course.trackers import TRACKERS, TrackedRun, check_tracker, open_tracker
from fake_trackers import fake_mlflow, fake_wandb

NETWORK = NetworkParams(name="student", model=ModelParams(width=0.5), train=TrainParams(epochs=3))


def model_folder(work: Path, tracker: str) -> Path:
    """Return the folder of a network in a workspace whose recipe names a tracker."""
    work.mkdir()
    keep_recipe(work, Recipe(tracker=tracker))  # type: ignore[arg-type]
    return work / "models" / "student"


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_run_is_opened_told_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    heard = fake_wandb(monkeypatch, name)
    folder = model_folder(tmp_path / "birds", name)
    with open_course(folder, 0, NETWORK) as course:
        course.add(0, {"train/loss": 2.0})
        course.add(1, {"train/loss": 1.0, "epoch/tune_lwlrap": float("nan")})
    (options,) = heard.of("init")[0]
    assert options["project"] == "earmark-birds"
    assert options["name"].startswith("student")
    assert options["config"]["train.epochs"] == 3
    assert options["config"]["model.width"] == 0.5
    assert heard.of("log") == [(0, {"train/loss": 2.0}), (1, {"train/loss": 1.0})]
    assert heard[-1] == ("finish", 0)


@pytest.mark.parametrize(("name", "key"), [("wandb", "id"), ("trackio", "name")])
def test_a_run_that_goes_on_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    heard = fake_wandb(monkeypatch, name)
    folder = model_folder(tmp_path / "w", name)
    for first_step in (0, 5, 0):
        with open_course(folder, first_step, NETWORK):
            pass
    first, resumed, anew = [options[key] for (options,) in heard.of("init")]
    assert first == resumed != anew
    assert {options["resume"] for (options,) in heard.of("init")} == {"allow"}


def test_a_run_that_fails_is_closed_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = fake_wandb(monkeypatch)
    with (
        pytest.raises(ValueError, match="no"),
        open_course(model_folder(tmp_path / "w", "wandb"), 0),
    ):
        raise ValueError("no")
    assert heard[-1] == ("finish", 1)


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = fake_mlflow(monkeypatch)
    folder = model_folder(tmp_path / "birds", "mlflow")
    with open_course(folder, 0, NETWORK) as course:
        course.add(4, {"train/loss": 2.0, "train/learning_rate": 0.5})
    with open_course(folder, 5, NETWORK) as course:
        course.add(5, {"train/loss": 1.0})
    assert heard.of("create") == [("1", "student")]
    (run_id, _, params), first, second = heard.of("batch")
    assert ("train.epochs", "3") in params
    assert first == (run_id, (("train/loss", 2.0, 4), ("train/learning_rate", 0.5, 4)), ())
    assert second == (run_id, (("train/loss", 1.0, 5),), ())
    assert heard.of("end") == [(run_id, "FINISHED")] * 2


def test_two_processes_make_one_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = fake_mlflow(monkeypatch)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "raced")
    with open_tracker("mlflow", TrackedRun(tmp_path / "m", "p")):
        pass
    assert heard.of("create") == [("1", "m")]


def test_the_headline_is_a_run_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = fake_wandb(monkeypatch)
    show_outcome(tmp_path, "wandb", {"net/train/mask/lwlrap_gain": 0.02})
    assert heard.of("init")[0][0]["name"] == "report"
    assert heard.of("log") == [(0, {"net/train/mask/lwlrap_gain": 0.02})]
    show_outcome(tmp_path, "wandb", {})
    show_outcome(tmp_path, "tensorboard", {"gain": 1.0})
    assert len(heard.of("init")) == 1


def test_a_solved_probe_is_shown_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = fake_wandb(monkeypatch)
    rows = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}]
    show_history(model_folder(tmp_path / "w", "wandb"), NETWORK, rows)
    assert heard.of("log") == [(0, {"epoch/loss": 0.5}), (1, {"epoch/loss": 0.25})]


def test_another_process_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = fake_wandb(monkeypatch)
    with open_course(model_folder(tmp_path / "w", "wandb"), 0, is_wanted=False) as course:
        course.add(0, {"train/loss": 2.0})
    assert heard == []


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_what_is_missing_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EarmarkError, match=f'tracker = "{name}" needs the library {name}: pip'):
        check_tracker(name)
    with pytest.raises(EarmarkError, match="pip install"):
        open_course(model_folder(tmp_path / "w", name), 0).__enter__()


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(EarmarkError, match="did you mean 'wandb'"):
        check_tracker("wanb")
    assert set(TRACKERS) == {"tensorboard", "wandb", "mlflow", "trackio", "none"}
