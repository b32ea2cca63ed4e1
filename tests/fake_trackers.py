"""Small fakes of trackers' libraries: the few calls that are made of each, noted in order."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Heard(list[tuple[Any, ...]]):
    """What a fake library was told, in order."""

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [told[1:] for told in self if told[0] == kind]


def install(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def fake_run(heard: Heard) -> SimpleNamespace:
    return SimpleNamespace(
        log=lambda values, step: heard.append(("log", step, values)),
        finish=lambda exit_code=0: heard.append(("finish", exit_code)),
    )


def fake_wandb(monkeypatch: pytest.MonkeyPatch, name: str = "wandb") -> Heard:
    heard = Heard()

    def init(**options: Any) -> SimpleNamespace:
        heard.append(("init", options))
        return fake_run(heard)

    finish = lambda: heard.append(("finish", 0))  # noqa: E731 - trackio's, of the run that is open
    install(monkeypatch, name, init=init, finish=finish)
    return heard


def fake_mlflow(monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard, experiments = Heard(), {}

    class Client:
        def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
            known = name in experiments
            return SimpleNamespace(experiment_id=experiments[name]) if known else None

        def create_experiment(self, name: str) -> str:
            experiments[name] = str(len(experiments) + 1)
            if name == "raced":
                raise RuntimeError("another process was faster")
            return experiments[name]

        def create_run(self, experiment: str, run_name: str) -> SimpleNamespace:
            heard.append(("create", experiment, run_name))
            return SimpleNamespace(info=SimpleNamespace(run_id=f"id{len(heard)}"))

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
            heard.append(("batch", run_id, tuple(metrics), tuple(params)))

        def set_terminated(self, run_id: str, status: str) -> None:
            heard.append(("end", run_id, status))

    install(monkeypatch, "mlflow")
    install(monkeypatch, "mlflow.tracking", MlflowClient=Client)
    entities = {
        "Metric": lambda name, value, at, step: (name, value, step),
        "Param": lambda name, value: (name, value),
    }
    install(monkeypatch, "mlflow.entities", **entities)
    return heard
