"""What a tracker is told of a training: by a function of one's own, and by none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from earmark.config import ModelParams, NetworkParams, Recipe, TrainParams, keep_recipe
from earmark.errors import EarmarkError
from earmark.training import TrackedRun, open_training_log

NETWORK = NetworkParams(name="student", model=ModelParams(width=0.5), train=TrainParams(epochs=3))

calls: list[tuple[object, ...]] = []


@contextmanager
def note(run: TrackedRun) -> Iterator[Callable[[int, dict[str, float]], object]]:
    """Note what a tracker is told, in order."""
    calls.append(("open", run.project, run.name, run.first_step, dict(run.params)))
    try:
        yield lambda step, values: calls.append((step, values))
    except ValueError:
        calls.append(("failed",))
        raise
    else:
        calls.append(("closed",))


@pytest.fixture(autouse=True)
def tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    monkeypatch.setenv("EARMARK_TRACKER", f"{__name__}:note")


def model_folder(work: Path, tracker: str = "tensorboard") -> Path:
    """Return the folder of a network in a workspace whose recipe names a tracker."""
    work.mkdir()
    keep_recipe(work, Recipe(tracker=tracker))  # type: ignore[arg-type]
    return work / "models" / "student"


def test_a_run_is_opened_told_and_closed(tmp_path: Path) -> None:
    with open_training_log(model_folder(tmp_path / "birds"), 5, NETWORK) as training_log:
        training_log(5, {"train/loss": 2.0})
        training_log(6, {"train/loss": 1.0, "epoch/tune_lwlrap": float("nan")})
        training_log(7, {"train/loss": float("inf")})
    (_, project, name, first_step, params), *told = calls
    assert (project, name, first_step) == ("earmark-birds", "student", 5)
    assert isinstance(params, dict)
    assert (params["train.epochs"], params["model.width"]) == (3, 0.5)
    assert told == [(5, {"train/loss": 2.0}), (6, {"train/loss": 1.0}), ("closed",)]


def test_a_run_that_fails_is_closed_as_such(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), open_training_log(model_folder(tmp_path / "w"), 0):
        raise ValueError("no")
    assert calls[-1] == ("failed",)


@pytest.mark.parametrize(("name", "is_wanted"), [("none", True), ("tensorboard", False)])
def test_nothing_is_opened_unasked(tmp_path: Path, name: str, is_wanted: bool) -> None:
    folder = model_folder(tmp_path / "w", name)
    with open_training_log(folder, 0, is_wanted=is_wanted) as training_log:
        training_log(0, {"train/loss": 2.0})
    assert calls == []
    assert not folder.exists()


@pytest.mark.parametrize(
    "address", ["no_such_module:open", f"{__name__}:nothing", "trackers", ":f"]
)
def test_a_function_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("EARMARK_TRACKER", address)
    with pytest.raises(EarmarkError, match="expected module:function"):
        open_training_log(model_folder(tmp_path / "w"), 0).__enter__()
