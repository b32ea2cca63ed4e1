from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from documents import ROOT
from earmark.config import ModelParams
from earmark.errors import EarmarkError
from earmark.models import build_probe
from earmark.training import Run, heeding_sigterm, resume, write_checkpoint
from scenes import band_workspace


def fresh_run(seed: int = 0) -> Run:
    network = build_probe(ModelParams(architecture="linear_probe"), 2, 3, seed=seed)
    optimiser = torch.optim.AdamW(network.parameters(), 0.1)
    return Run(network, optimiser, torch.amp.GradScaler("cuda", enabled=False), [], network)


def used_run() -> Run:
    run = fresh_run()
    run.network(torch.randn(2, 4, 2), torch.tensor([4, 3])).sum().backward()
    run.optimiser.step()
    run.epoch, run.step, run.loss_sums, run.seconds = 3, 7, [1.5, 2.5], 60.0
    run.average, run.n_averaged = [torch.ones(2)], 4
    run.history = [{"epoch": 1, "loss": 0.5}]
    run.best, run.best_marks, run.n_waits = {"w": torch.ones(3)}, [0.5], [2]
    return run


def test_a_run_comes_back_whole(tmp_path: Path) -> None:
    run, again = used_run(), fresh_run(seed=1)
    write_checkpoint(run, tmp_path, "mine")
    assert resume(again, tmp_path, "mine")
    for name, values in run.network.state_dict().items():
        assert torch.equal(values, again.network.state_dict()[name])
    kept = (
        "epoch",
        "step",
        "loss_sums",
        "seconds",
        "n_averaged",
        "history",
        "best_marks",
        "n_waits",
    )
    assert all(getattr(run, name) == getattr(again, name) for name in kept)
    assert torch.equal(again.average[0], run.average[0])
    assert torch.equal(again.best["w"], run.best["w"])
    first, second = (r.optimiser.state_dict()["state"][0]["exp_avg"] for r in (run, again))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "damaged",
    [lambda whole: b"", lambda whole: whole[:1_000], lambda whole: b"}]garbage"],
    ids=["empty", "truncated", "garbage"],
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damaged: Callable[[bytes], bytes]) -> None:
    write_checkpoint(used_run(), tmp_path, "mine")
    path = tmp_path / "checkpoint-mine.pt"
    path.write_bytes(damaged(path.read_bytes()))
    with pytest.raises(EarmarkError, match=r"checkpoint-mine.pt: not a checkpoint.*delete it"):
        resume(fresh_run(), tmp_path, "mine")


def test_a_file_that_asks_for_gigabytes_is_not_given_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight bytes, which torch's older format takes for a text of 3.4 GB."""
    shutil.copy(
        ROOT / "tests" / "damaged" / "asks-for-gigabytes.pt", tmp_path / "checkpoint-mine.pt"
    )
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch looks at it"))
    with pytest.raises(EarmarkError, match=r"not a checkpoint .* 8 bytes .*no archive of torch's"):
        resume(fresh_run(), tmp_path, "mine")


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_no_code_of_a_checkpoint_is_run(tmp_path: Path) -> None:
    torch.save({"network": Hostile(tmp_path / "was_here")}, tmp_path / "checkpoint-mine.pt")
    with pytest.raises(EarmarkError, match=r"checkpoint-mine.pt: not a checkpoint"):
        resume(fresh_run(), tmp_path, "mine")
    assert not (tmp_path / "was_here").exists()


def test_a_checkpoint_of_another_version_is_named(tmp_path: Path) -> None:
    for content in ({"network": {}}, [1, 2]):
        torch.save(content, tmp_path / "checkpoint-mine.pt")
        with pytest.raises(EarmarkError, match=r"another version.*average.*delete it"):
            resume(fresh_run(), tmp_path, "mine")


def test_sigterm_is_noticed_and_then_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with heeding_sigterm() as came:
        assert not came()
        os.kill(os.getpid(), signal.SIGTERM)
        assert came()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_scheduler_stops_a_command_and_its_workers(tmp_path: Path) -> None:
    work, recipe = tmp_path / "work", tmp_path / "recipe.toml"
    band_workspace(work)
    recipe.write_text(
        '[teacher]\nname = "teacher"\nmodel = { width = 0.125 }\n'
        "train = { epochs = 500, batch_patches = 8, checkpoint_seconds = 1e6 }\n"
    )
    command = [sys.executable, "-m", "earmark", "score", str(work), "--recipe", str(recipe)]
    scoring = subprocess.Popen([*command, "--workers", "2"], stderr=subprocess.PIPE, text=True)
    folds = [work / "models" / f"teacher-fold{fold}" for fold in (0, 1)]
    deadline = time.monotonic() + 120
    while not all((fold / "tensorboard").exists() for fold in folds):  # until both are training
        assert time.monotonic() < deadline
        time.sleep(0.05)
    scoring.send_signal(signal.SIGTERM)
    _, told = scoring.communicate(timeout=120)
    assert scoring.returncode == 143
    assert "run the same command again to go on" in told
    assert all(list(fold.glob("checkpoint-*.pt")) for fold in folds)
