from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from earmark.compute import SILENT
from earmark.config import ModelParams, NetworkParams, SpecAugmentParams, TrainParams
from earmark.datasets import Workspace, readable_clips
from earmark.errors import EarmarkError, EarmarkWarning, Stopped
from earmark.losses import BatchTargets
from earmark.metrics import auc_per_class
from earmark.models import AnyNetwork, Network
from earmark.storage import read_table
from earmark.training import (
    LabelTreatment,
    NumberTypes,
    TargetProvider,
    TrainingSet,
    train,
    tune_set,
)
from meters import CountingMeter
from scenes import band_workspace, open_store

TINY = NetworkParams(
    name="tiny",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=2, batch_patches=16, learning_rate=3e-3, checkpoint_seconds=0),
)
PROBE = NetworkParams(
    name="probe",
    model=ModelParams(architecture="mlp_probe", n_hidden=8, dropout=0.3),
    train=TINY.train,
)
EVERYTHING = {
    "epochs": 3,
    "mixup": 0.5,
    "specaugment": SpecAugmentParams(n_time_masks=1, n_band_masks=1),
    "balanced_sampling": True,
    "average_share": 0.5,
    "patience": 5,
}
METER = SILENT.job("", 0, "")


def changed(network: NetworkParams, **params) -> NetworkParams:
    values = network.train.model_dump() | params
    return network.model_copy(update={"train": TrainParams.model_validate(values)})


AUGMENTED = changed(TINY, **EVERYTHING)
LONGER = changed(AUGMENTED, epochs=8)


def training_set(
    workspace: Workspace, network: NetworkParams = TINY, n_students: int = 1
) -> TrainingSet:
    store = open_store(workspace)
    clips = readable_clips(workspace, store, "train")
    validation = tune_set(workspace, store, network.model) if network.train.patience else None
    return TrainingSet(
        store.folder,
        clips.store_rows,
        TargetProvider(clips.labels, (LabelTreatment(),) * n_students),
        validation,
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path / "work")


class CrashError(Exception):
    pass


def crash() -> None:
    """Stop the run, as a kill would."""
    raise CrashError


def same_weights(first: Path, second: Path) -> bool:
    one, two = (load_file(folder / "weights.safetensors") for folder in (first, second))
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def checkpoints(folder: Path) -> list[Path]:
    return list(folder.glob("checkpoint-*.pt"))


def losses(folder: Path) -> list[float]:
    return read_table(folder / "history.csv")["loss"].to_list()


def test_training_learns_the_bands(workspace: Workspace, tmp_path: Path) -> None:
    network = changed(TINY, epochs=16, batch_patches=8, checkpoint_seconds=60.0)
    trained = train(network, training_set(workspace), tmp_path / "model", METER)
    history = losses(tmp_path / "model")
    assert history[-1] < 0.7 * history[0]
    store = open_store(workspace)
    patches = torch.from_numpy(store.patches(np.arange(60), np.zeros(60, int))).float()
    assert workspace.truth is not None
    with torch.inference_mode():
        auc = auc_per_class(workspace.truth.states(), trained(patches).numpy())
    assert auc.mean() > 0.75


@pytest.mark.parametrize("n_examples_before", [20, 90])
@pytest.mark.parametrize(
    "network",
    [
        TINY,
        AUGMENTED,
        changed(PROBE, mixup=1.0, balanced_sampling=True, epochs=5, average_share=0.5, patience=2),
    ],
    ids=["plain", "everything", "probe"],
)
def test_an_interrupted_run_ends_in_the_same_weights(
    workspace: Workspace, tmp_path: Path, network: NetworkParams, n_examples_before: int
) -> None:
    data = training_set(workspace, network)
    train(network, data, tmp_path / "whole", METER)
    with pytest.raises(CrashError):
        train(network, data, tmp_path / "broken", CountingMeter(n_examples_before + 1, crash))
    assert checkpoints(tmp_path / "broken")
    train(network, data, tmp_path / "broken", METER)
    assert same_weights(tmp_path / "whole", tmp_path / "broken")
    assert losses(tmp_path / "whole") == losses(tmp_path / "broken")
    assert not checkpoints(tmp_path / "broken")


def test_a_killed_process_resumes_to_the_same_weights(workspace: Workspace, tmp_path: Path) -> None:
    script = (
        f"import sys, {__name__} as t; from pathlib import Path\n"
        "from earmark.datasets.workspace import Workspace\n"
        "data = t.training_set(Workspace.open(sys.argv[1]), t.LONGER)\n"
        "t.train(t.LONGER, data, Path(sys.argv[2]), t.METER)"
    )
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", script, str(workspace.root), str(folder)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not checkpoints(folder) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "weights.safetensors").exists()
    for name in ("killed", "whole"):
        train(LONGER, training_set(workspace, LONGER), tmp_path / name, METER)
    assert same_weights(tmp_path / "whole", folder)


def test_sigterm_leaves_a_checkpoint_and_the_run_goes_on_from_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    network, before = changed(TINY, checkpoint_seconds=1e6), signal.getsignal(signal.SIGTERM)
    data = training_set(workspace)
    meter = CountingMeter(48, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Stopped) as stopped:
        train(network, data, tmp_path / "stopped", meter)
    assert stopped.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    resumed = CountingMeter()
    train(network, data, tmp_path / "stopped", resumed)
    assert meter.n_done < resumed.n_done + 1 <= 161
    train(network, data, tmp_path / "whole", METER)
    assert same_weights(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_in_a_thread_trains_without_signals(workspace: Workspace, tmp_path: Path) -> None:
    arguments = (TINY, training_set(workspace), tmp_path / "model", METER)
    thread = threading.Thread(target=train, args=arguments)
    thread.start()
    thread.join()
    assert (tmp_path / "model" / "weights.safetensors").exists()


def test_a_finished_run_is_found_again(workspace: Workspace, tmp_path: Path) -> None:
    data = training_set(workspace)
    train(TINY, data, tmp_path / "model", METER)
    written = (tmp_path / "model" / "weights.safetensors").stat().st_mtime_ns
    meter = CountingMeter()
    train(TINY, data, tmp_path / "model", meter)
    assert (meter.n_done, meter.notes[-1]) == (160, "found")
    assert (tmp_path / "model" / "weights.safetensors").stat().st_mtime_ns == written
    train(changed(TINY, seed=5), data, tmp_path / "model", METER)
    assert (tmp_path / "model" / "weights.safetensors").stat().st_mtime_ns > written


def test_a_checkpoint_of_another_recipe_is_kept_aside_and_found_again(
    workspace: Workspace, tmp_path: Path
) -> None:
    data, other, folder = training_set(workspace), changed(TINY, seed=5), tmp_path / "model"
    with pytest.raises(CrashError):
        train(TINY, data, folder, CountingMeter(91, crash))
    digests = f"{data.digest(TINY)}, this is run {data.digest(other)}"
    with pytest.warns(EarmarkWarning, match=digests):
        train(other, data, folder, METER)
    meter = CountingMeter()
    train(TINY, data, folder, meter)
    train(TINY, data, tmp_path / "whole", METER)
    assert same_weights(tmp_path / "whole", folder)
    assert not checkpoints(folder)


def test_steps_are_an_alternative_to_epochs(workspace: Workspace, tmp_path: Path) -> None:
    meter = CountingMeter()
    network = changed(TINY, epochs=None, steps=7)  # an epoch has 5 steps of 16 examples
    train(network, training_set(workspace), tmp_path / "model", meter)
    assert meter.n_done == 7 * 16
    assert len(losses(tmp_path / "model")) == 2


class Script:
    """A tune set with scripted results; it remembers the networks that it evaluated."""

    digest = "script"

    def __init__(self, *results: list[float]) -> None:
        self.marks_left, self.networks = list(results), []

    def evaluate(self, network: AnyNetwork) -> Mapping[str, np.ndarray]:
        self.networks.append({name: v.clone() for name, v in network.state_dict().items()})
        results = np.array(self.marks_left.pop(0))
        return {"lwlrap": results, "loss": 1 - results}


@pytest.mark.parametrize("watch", ["lwlrap", "loss"])
def test_early_stopping_keeps_the_best_weights(
    workspace: Workspace, tmp_path: Path, watch: str
) -> None:
    validation = Script([0.1], [0.5], [0.4], [0.5], [0.9])
    network = changed(TINY, epochs=9, patience=2, watch=watch)
    meter = CountingMeter()
    data = replace(training_set(workspace), validation=validation)
    trained = train(network, data, tmp_path / "model", meter)
    assert len(validation.networks) == 4  # the second is best, then two without a better one
    assert all(
        torch.equal(v, validation.networks[1][name]) for name, v in trained.state_dict().items()
    )
    history = read_table(tmp_path / "model" / "history.csv")
    assert history["tune_lwlrap"].to_list() == [0.1, 0.5, 0.4, 0.5]
    assert meter.n_done == 9 * 80
    assert "stopped early after epoch 4" in meter.notes[-1]


def test_every_probe_of_a_stack_stops_at_its_own_best(workspace: Workspace, tmp_path: Path) -> None:
    validation = Script([0.9, 0.1], [0.1, 0.2], [0.95, 0.3], [0.1, 0.1])
    data = replace(training_set(workspace, n_students=2), validation=validation)
    trained = train(changed(PROBE, epochs=9, patience=1), data, tmp_path / "model", METER)
    assert len(validation.networks) == 4
    for name, values in trained.state_dict().items():
        for student, epoch in ((0, 0), (1, 2)):
            assert torch.equal(values[student], validation.networks[epoch][name][student])


def test_patience_without_tune_clips_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="set patience = 0"):
        train(changed(TINY, patience=2), training_set(workspace), tmp_path / "model", METER)


def test_a_loss_that_explodes_names_the_clips(workspace: Workspace, tmp_path: Path) -> None:
    class Poisoned(TargetProvider):
        def targets(self, rows: np.ndarray) -> BatchTargets:
            told = super().targets(rows)
            return replace(told, weight=told.weight * float("nan"))

    data = training_set(workspace)
    poisoned = replace(data, targets=Poisoned(data.targets.labels))
    with pytest.raises(EarmarkError, match=r"nan at epoch 1, step 1.*clip0"):
        train(TINY, poisoned, tmp_path / "model", METER)


NO_MEMORY = {
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    "cpu": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."),
    "numpy": MemoryError(),
}


@pytest.mark.parametrize("where", NO_MEMORY)
def test_out_of_memory_says_what_to_try(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def no_room(*_: object) -> None:
        raise NO_MEMORY[where]

    monkeypatch.setattr(Network, "embed", no_room)
    message = r"out of memory in a step of 16 patches on cpu: try batch_patches = 8 .*smaller"
    with pytest.raises(EarmarkError, match=message):
        train(TINY, training_set(workspace), tmp_path / "model", METER)


def test_out_of_memory_for_the_weights_says_so(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.optim, "AdamW", no_room)
    with pytest.raises(EarmarkError, match=r"for the weights on cpu.*smaller network"):
        train(TINY, training_set(workspace), tmp_path / "model", METER)


def test_history_has_a_row_for_each_epoch(workspace: Workspace, tmp_path: Path) -> None:
    data = training_set(workspace, changed(TINY, patience=5))
    train(TINY, data, tmp_path / "model", METER)
    history = read_table(tmp_path / "model" / "history.csv")
    assert history.columns == [
        "epoch", "loss", "learning_rate", "clips_per_second", "seconds", "tune_lwlrap", "tune_loss",
    ]  # fmt: skip
    assert history["epoch"].to_list() == [1, 2]
    assert (history["seconds"] > 0).all()
    assert history["tune_lwlrap"].is_between(0, 1).all()


CPU, GPU = torch.device("cpu"), torch.device("cuda")


def types_of(number_type: str, device: torch.device) -> NumberTypes:
    return NumberTypes.of(TrainParams(number_type=number_type), device)


def test_a_cpu_computes_in_float32_unless_told() -> None:
    for number_type in ("float32", "auto"):
        assert types_of(number_type, CPU) == NumberTypes(torch.float32)
    assert types_of("float64", CPU) == NumberTypes(torch.float64)


@pytest.mark.parametrize(("can", "chosen"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_mixes_in_what_it_has(
    monkeypatch: pytest.MonkeyPatch, can: bool, chosen: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: can)
    assert types_of("auto", GPU) == NumberTypes(torch.float32, chosen)
    assert types_of("float16", GPU) == NumberTypes(torch.float32, torch.float16)
    assert types_of("float32", GPU) == NumberTypes(torch.float32)


@pytest.mark.parametrize("number_type", ["bfloat16", "float16"])
def test_shorter_types_on_a_cpu_are_refused(number_type: str) -> None:
    with pytest.raises(EarmarkError, match=f'"{number_type}" needs a GPU'):
        types_of(number_type, CPU)


def test_the_forward_pass_is_mixed_only_where_types_differ() -> None:
    a = torch.ones(2, 2)
    with NumberTypes(torch.float32).mixed(CPU):
        assert not torch.is_autocast_enabled("cpu")
        assert (a @ a).dtype == torch.float32
    with NumberTypes(torch.float32, torch.bfloat16).mixed(CPU):
        assert torch.is_autocast_enabled("cpu")
