"""The files of ``examples/`` run as they are, and train on what the supervision tells."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from documents import ROOT

EXAMPLES = ROOT / "examples"
LONGEST = 60

pytestmark = [
    pytest.mark.examples,
    pytest.mark.filterwarnings("ignore"),  # of the libraries that they are examples for
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert len(lengths) == 3
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


@pytest.mark.parametrize("strategy", ["hedge@10", "chance/hedge@0", "splc"])
def test_the_loss_of_the_plain_loop_falls(
    capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    losses = load("plain_torch").main(strategy)
    assert losses[-1] < 0.6 * losses[0]
    assert capsys.readouterr().out.count("\nepoch") == len(losses) - 1


QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
"""Options of Lightning's trainer."""


def test_lightning_trains_on_what_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pytorch_lightning")
    example = load("lightning_module")
    trainer = example.main("mask@30", max_epochs=4, enable_checkpointing=False, **QUIET)
    student = trainer.lightning_module
    assert np.mean(student.losses[-10:]) < 0.8 * np.mean(student.losses[:10])
    assert "at last" in capsys.readouterr().out
    kept: list[torch.Tensor] = []

    def keep(layer: object, given: object, logits: torch.Tensor) -> None:
        logits.retain_grad()
        kept.append(logits)

    student.network.register_forward_hook(keep)
    student.training_step([torch.randn(64, 16), torch.arange(64)], 0).backward()
    _, weight = student.supervision.targets(range(64))
    assert 0 < float((weight == 0).float().mean()) < 0.5
    assert kept[0].grad is not None
    np.testing.assert_array_equal(kept[0].grad.numpy() == 0, weight.numpy() == 0)


def test_lightning_keeps_in_checkpoints_what_is_remembered() -> None:
    pytest.importorskip("pytorch_lightning")
    example = load("lightning_module")
    trainer = example.main("consistency@1", max_epochs=2, **QUIET)
    (memory,) = trainer.lightning_module.supervision.state_dict().values()
    assert len(memory)
    again = example.main("consistency@1", max_epochs=1, **QUIET)
    (other,) = again.lightning_module.supervision.state_dict().values()
    assert not torch.equal(other, memory)
    kept = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)
    example.KeepSupervision().on_load_checkpoint(again, again.lightning_module, kept)
    (loaded,) = again.lightning_module.supervision.state_dict().values()
    assert torch.equal(loaded, memory)


CHECK_TRAINER = """
import json
import torch
from huggingface_trainer import main

trainer = main("mask@30", n_epochs=4)
kept = []
def keep(layer, given, logits):
    logits.retain_grad()
    kept.append(logits)
trainer.model.train().classifier.register_forward_hook(keep)
clips = [trainer.train_dataset[row] for row in range(32)]
trainer.compute_loss(trainer.model, trainer.data_collator(clips)).backward()
_, weight = trainer.supervision.targets(range(32))
losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
found = {"losses": losses, "gradient": (kept[0].grad == 0).tolist(), "weight": weight.tolist()}
print("found:", json.dumps(found))
"""


def test_hugging_faces_trainer_trains_on_what_is_told(tmp_path: Path) -> None:
    """In a Python of its own, which finds the library ``datasets`` and not tests of that name."""
    pytest.importorskip("accelerate")
    paths = os.pathsep.join([str(EXAMPLES), str(ROOT / "src")])
    result = subprocess.run(
        [sys.executable, "-c", CHECK_TRAINER],
        env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.rpartition("found:")[2])
    assert len(found["losses"]) == 4
    assert float(found["losses"][-1]) < 0.8 * float(found["losses"][0])
    is_ignored = np.array(found["weight"]) == 0
    assert 0 < is_ignored.mean() < 0.5
    np.testing.assert_array_equal(np.array(found["gradient"]), is_ignored)
