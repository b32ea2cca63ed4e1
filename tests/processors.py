"""Stages from inputs that are the same bytes, on a lesser processor: which make the same bytes?

numpy, OpenBLAS, torch, oneDNN, MKL and the C library choose their kernels by what environment
variables let them find.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

AVX512 = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
AVX2 = "X86_V3 AVX2 FMA3"
LIBC = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW"
NO_AVX2, TWO_THREADS = "no AVX2", "two threads"
PROCESSORS: dict[str, dict[str, str]] = {
    NO_AVX2: {
        "NPY_DISABLE_CPU_FEATURES": f"{AVX512} {AVX2}",
        "OPENBLAS_CORETYPE": "Nehalem",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "GLIBC_TUNABLES": f"{LIBC},-AVX2,-FMA",
    },
    TWO_THREADS: {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def environment(processor: str) -> dict[str, str]:
    """Return the variables of a process on a processor; numpy refuses features it does not know."""
    from numpy._core._multiarray_umath import __cpu_dispatch__

    changes = dict(PROCESSORS[processor])
    if wanted := changes.get("NPY_DISABLE_CPU_FEATURES"):
        known = [name for name in wanted.split() if name in __cpu_dispatch__]
        changes["NPY_DISABLE_CPU_FEATURES"] = " ".join(known)
    return {**os.environ, **ONE_THREAD, **changes}


def run_stages(processor: str) -> dict[str, str]:
    """Run all stages in a process that uses less of the processor; return their digests."""
    command = [sys.executable, "-W", "ignore", __file__]
    told = subprocess.run(
        command, env=environment(processor), capture_output=True, text=True, check=True
    )
    return dict(json.loads(told.stdout.splitlines()[-1]))


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:12]


def plain_noise(*shape: int) -> np.ndarray:
    """Return noise that is made of whole numbers, hence the same everywhere."""
    return np.random.default_rng(0).integers(-(2**15), 2**15, shape).astype(np.float32) / 2**15


def scenes_sound() -> str:
    from earmark.config import SceneParams
    from earmark.datasets import scene

    return digest(*(scene(SceneParams(), index)[0] for index in range(20)))


def scenes_files() -> str:
    """The files' samples have 16 bits: what differs in the 53rd is rounded away, almost always."""
    from earmark.config import SceneParams
    from earmark.datasets import scene, write_sound

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "audio").mkdir()
        for index in range(20):
            write_sound(Path(folder), index, scene(SceneParams(), index)[0])
        written = sorted(path for path in Path(folder).glob("**/*") if path.is_file())
        return digest(*(np.frombuffer(path.read_bytes(), np.uint8) for path in written))


def frames() -> str:
    from earmark.audio import log_mel

    return digest(*(log_mel(row) for row in plain_noise(20, 160_000)))


def split() -> str:
    from earmark.labels import LabelSet, folds

    states = np.where(plain_noise(500, 12) > 0.7, 1, 0).astype(np.int8)
    clip_ids = [f"clip{i}" for i in range(500)]
    labels = LabelSet.from_dense(states, clip_ids, [f"class{i}" for i in range(12)])
    return digest(folds(labels, [f"source{i // 3}" for i in range(500)], 5, 0))


def initial_weights() -> str:
    from earmark.config import ModelParams
    from earmark.models import build

    kinds = ("mobilenet_v1", "resnet50", "mlp_probe", "attention_probe")
    networks = [build(ModelParams(architecture=kind, width=0.25), 128, 20) for kind in kinds]
    return digest(*(one.detach().numpy() for net in networks for one in net.parameters()))


def batches() -> str:
    from earmark.config import TrainParams
    from earmark.training import Plan

    plan = Plan(TrainParams(epochs=2, batch_patches=64), np.full(300, 5))
    found = [batch for epoch in range(2) for batch in plan.batches(epoch)]
    rates = np.array([plan.learning_rate(batch.epoch, batch.step) for batch in found])
    return digest(rates, *(part for batch in found for part in (batch.clips, batch.which)))


def mixtures() -> str:
    from earmark.training import Mix

    drawn = [Mix.draw(256, beta, np.random.default_rng(i)) for i, beta in enumerate((0.2, 1.0, 5))]
    return digest(*(part for mix in drawn for part in (mix.partners, mix.own_shares)))


def dropout() -> str:
    from earmark.models import kept_units
    from earmark.models.architectures import draws

    return digest(kept_units((256, 1024), 0.7, draws(0)).numpy())


def flags() -> str:
    from earmark.flags import flag, thresholds

    states, logits = np.where(plain_noise(5_000, 30) > 0.9, 1, 0), plain_noise(5_001, 30)[1:] * 8
    found = flag(states, logits, with_chance=False, discard_percent=1.0)
    columns = [found[name].to_numpy() for name in found.columns if found[name].dtype.is_numeric()]
    return digest(thresholds(states, logits).values, *columns)


def forward_pass() -> str:
    import torch

    from earmark.config import ModelParams
    from earmark.models import build_model

    network = build_model(ModelParams(width=0.25), 20).eval()
    with torch.no_grad():
        return digest(network(torch.from_numpy(plain_noise(32, 96, 64))).numpy())


STAGES: dict[str, Callable[[], str]] = {
    "scenes, as computed": scenes_sound,
    "scenes, as files of 16 bits": scenes_files,
    "frames": frames,
    "splits and folds": split,
    "initial weights": initial_weights,
    "batches and learning rates": batches,
    "mixup": mixtures,
    "dropout": dropout,
    "thresholds and flags": flags,
    "a network's forward pass": forward_pass,
}


if __name__ == "__main__":
    print(json.dumps({name: stage() for name, stage in STAGES.items()}))
