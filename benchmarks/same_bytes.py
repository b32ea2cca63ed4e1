"""What is the same to the bit on another processor, and how far training drifts where it is not.

    python benchmarks/same_bytes.py                        # about a quarter of an hour on one core
    python benchmarks/same_bytes.py --steps 200 --seeds 3 --keep FOLDER    # goes on where it ended
    python benchmarks/same_bytes.py --steps 0              # stages alone; the rest as before

The same stages run in processes of their own that may use this processor whole, or a part of it:
numpy, OpenBLAS, torch, oneDNN, MKL and the C library choose their kernels by what they are told
that they find. First every stage alone, from inputs that are the same bytes: which differ? Then a
MobileNetV1 (width 0.25) is trained on made scenes from the same frames, by several seeds on each
processor: how far apart are its results on two processors, and how far on two seeds? Prints two
tables and writes results/same_bytes.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from machine import processor_name

AVX512 = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
AVX2 = "X86_V3 AVX2 FMA3"
LIBC = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW"
WHOLE, NO_AVX512, NO_AVX2, TWO_THREADS = "whole", "no AVX-512", "no AVX2", "two threads"
PROCESSORS: dict[str, dict[str, str]] = {
    WHOLE: {},
    NO_AVX512: {
        "NPY_DISABLE_CPU_FEATURES": AVX512,
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "GLIBC_TUNABLES": LIBC,
    },
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
METRICS = ("d_prime_all", "lwlrap")


def environment(processor: str) -> dict[str, str]:
    """Return the variables of a process on a processor; numpy refuses features it does not know."""
    from numpy._core._multiarray_umath import __cpu_dispatch__

    changes = dict(PROCESSORS[processor])
    if wanted := changes.get("NPY_DISABLE_CPU_FEATURES"):
        known = [name for name in wanted.split() if name in __cpu_dispatch__]
        changes["NPY_DISABLE_CPU_FEATURES"] = " ".join(known)
    return {**os.environ, **ONE_THREAD, **changes}


def on(processor: str, *arguments: object) -> Any:
    """Run a part of this file on a processor and return what it prints."""
    command = [sys.executable, "-W", "ignore", __file__, *map(str, arguments)]
    told = subprocess.run(
        command, env=environment(processor), capture_output=True, text=True, check=True
    )
    return json.loads(told.stdout.splitlines()[-1])


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:12]


def plain_noise(*shape: int) -> np.ndarray:
    """Return noise that is made of whole numbers, hence the same everywhere."""
    return np.random.default_rng(0).integers(-(2**15), 2**15, shape).astype(np.float32) / 2**15


def scenes_sound() -> str:
    from earmark.datasets.synthetic.scenes import scene
    from earmark.runs import SceneParams

    return digest(*(scene(SceneParams(), index)[0] for index in range(20)))


def scenes_files() -> str:
    """The files' samples have 16 bits: what differs in the 53rd is rounded away, almost always."""
    from earmark.datasets.synthetic.scenes import scene, write_sound
    from earmark.runs import SceneParams

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
    from earmark.labels import LabelSet
    from earmark.labels.splits import folds

    states = np.where(plain_noise(500, 12) > 0.7, 1, 0).astype(np.int8)
    clip_ids = [f"clip{i}" for i in range(500)]
    labels = LabelSet.from_dense(states, clip_ids, [f"class{i}" for i in range(12)])
    return digest(folds(labels, [f"source{i // 3}" for i in range(500)], 5, 0))


def initial_weights() -> str:
    from earmark.networks import build
    from earmark.runs import ModelParams

    kinds = ("mobilenet_v1", "resnet50", "mlp_probe", "attention_probe")
    networks = [build(ModelParams(architecture=kind, width=0.25), 128, 20) for kind in kinds]
    return digest(*(one.detach().numpy() for net in networks for one in net.parameters()))


def batches() -> str:
    from earmark.runs import TrainParams
    from earmark.training import Plan

    plan = Plan(TrainParams(epochs=2, batch_patches=64), np.full(300, 5))
    found = [batch for epoch in range(2) for batch in plan.batches(epoch)]
    rates = np.array([plan.learning_rate(batch.epoch, batch.step) for batch in found])
    return digest(rates, *(part for batch in found for part in (batch.clips, batch.which)))


def mixtures() -> str:
    from earmark.training.loading import Mix

    drawn = [Mix.draw(256, beta, np.random.default_rng(i)) for i, beta in enumerate((0.2, 1.0, 5))]
    return digest(*(part for mix in drawn for part in (mix.partners, mix.own_shares)))


def dropout() -> str:
    from earmark.networks.draws import draws, kept_units

    return digest(kept_units((256, 1024), 0.7, draws(0)).numpy())


def flags() -> str:
    from earmark.flags import flag, thresholds

    states, logits = np.where(plain_noise(5_000, 30) > 0.9, 1, 0), plain_noise(5_001, 30)[1:] * 8
    found = flag(states, logits, with_chance=False, discard_percent=1.0)
    columns = [found[name].to_numpy() for name in found.columns if found[name].dtype.is_numeric()]
    return digest(thresholds(states, logits).values, *columns)


def forward_pass() -> str:
    import torch

    from earmark.networks import build_model
    from earmark.runs import ModelParams

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


def make_workspace(root: Path) -> None:
    from earmark.datasets import extract_frames, write_scenes
    from earmark.runs import HidingParams, SceneParams

    size = SceneParams(n_train=600, n_tune=1, n_eval=300, clip_seconds=2.0)
    extract_frames(write_scenes(root, size, HidingParams()))


def train_and_judge(root: Path, seed: int, n_steps: int, folder: Path) -> dict[str, float]:
    """Train on the labels as they are, judge by the truth; keep scores and marks."""
    import torch

    from earmark.datasets import Workspace, open_frames, readable_clips
    from earmark.metrics import evaluate
    from earmark.networks import examples_of, score_clips
    from earmark.runs import SILENT, ModelParams, NetworkParams, TrainParams
    from earmark.training import AsLabelled, TrainingSet, train

    model = ModelParams(width=0.25)
    params = TrainParams(steps=n_steps, batch_patches=16, learning_rate=2e-3, seed=seed)
    workspace = Workspace(root)
    store = open_frames(workspace, model)
    own = readable_clips(workspace, store, "train")
    data = TrainingSet(store.folder, own.store_rows, AsLabelled(own.labels))
    network = NetworkParams(name="student", model=model, train=params)
    trained = train(network, data, folder, SILENT.job("", 0, ""))
    judged = readable_clips(workspace, store, "eval", workspace.truth)
    logits = score_clips(trained, examples_of(model, store, judged.store_rows))[0]
    np.save(folder / "logits.npy", logits)
    overall = evaluate(judged.labels, logits).overall
    weights = digest(*(one.detach().numpy() for one in trained.parameters()))
    found = {"weights": weights, "torch": torch.__version__, **{m: overall[m] for m in METRICS}}
    (folder / "marks.json").write_text(json.dumps(found))
    return found


def compare_stages() -> dict[str, dict[str, str]]:
    found = {processor: on(processor, "--stages") for processor in PROCESSORS}
    return {
        stage: {
            processor: "same" if own[stage] == found[WHOLE][stage] else "differs"
            for processor, own in found.items()
        }
        for stage in STAGES
    }


def marks_of(root: Path, processor: str, seed: int, n_steps: int, name: str) -> dict[str, Any]:
    """Return the marks of a training, which may have ended before."""
    if not (root / name / "marks.json").exists():
        on(processor, "--train", root, seed, n_steps, root / name)
    found: dict[str, Any] = json.loads((root / name / "marks.json").read_text())
    return found


def measure_drift(root: Path, n_seeds: int, n_steps: int) -> list[dict[str, Any]]:
    """Train each seed on each processor, and the first once more where it was."""
    rows = []
    for seed in range(n_seeds):
        for processor in (WHOLE, NO_AVX512):
            marks = marks_of(root, processor, seed, n_steps, f"{processor} {seed}")
            rows.append({"seed": seed, "processor": processor} | marks)
    again = marks_of(root, WHOLE, 0, n_steps, "again")
    assert again["weights"] == rows[0]["weights"], "trained twice on one machine, and not the same"
    return rows


def summarise(root: Path, rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean absolute differences between processors (by seed), and between seeds (whole)."""
    by = {(row["processor"], row["seed"]): row for row in rows}
    logits = {key: np.load(root / f"{key[0]} {key[1]}" / "logits.npy") for key in by}
    seeds = sorted({seed for _, seed in by})
    between = {
        "processors": [((WHOLE, seed), (NO_AVX512, seed)) for seed in seeds],
        "seeds": [((WHOLE, a), (WHOLE, b)) for a in seeds for b in seeds if a < b],
    }
    return {
        what: {
            **{m: float(np.mean([abs(by[a][m] - by[b][m]) for a, b in pairs])) for m in METRICS},
            "logits": float(np.mean([np.abs(logits[a] - logits[b]).mean() for a, b in pairs])),
        }
        for what, pairs in between.items()
        if pairs
    }


def trained(root: Path, n_seeds: int, n_steps: int) -> dict[str, Any]:
    make_workspace(root)
    rows = measure_drift(root, n_seeds, n_steps)
    return {"steps": n_steps, "drift": summarise(root, rows), "runs": rows}


def show(stages: dict[str, dict[str, str]], drift: dict[str, dict[str, float]]) -> None:
    table = Table("stage", *PROCESSORS, title="The same bytes as on the whole processor?")
    for stage, row in stages.items():
        table.add_row(stage, *row.values())
    Console().print(table)
    table = Table("between", *METRICS, "logits", title="Mean absolute difference after training")
    for what, row in drift.items():
        table.add_row(what, *(f"{value:.4f}" for value in row.values()))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder of the trainings, to go on with")
    parser.add_argument("--stages", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stages:
        print(json.dumps({name: stage() for name, stage in STAGES.items()}))
        return
    if options.train:
        root, seed, n_steps, folder = options.train
        print(json.dumps(train_and_judge(Path(root), int(seed), int(n_steps), Path(folder))))
        return
    path = Path(__file__).parent / "results" / "same_bytes.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    results |= {"processor": processor_name(), "numpy": np.__version__, "stages": compare_stages()}
    if options.steps:
        with tempfile.TemporaryDirectory() as aside:
            results |= trained(options.keep or Path(aside), options.seeds, options.steps)
    show(results["stages"], results.get("drift", {}))
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
