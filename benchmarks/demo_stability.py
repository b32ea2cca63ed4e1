"""Whether the demo says the same whatever its data and the processor: ten seeds, whole.

Every seed makes its own scenes, hides its own labels and draws its own students; nothing is shared.
The first seeds are run again as if the processor had no AVX-512 (numpy and OpenBLAS choose their
kernels by what they find). Settings were chosen on seeds 100 and above.

Prints a table and writes ``results/demo_stability.json``.

    python benchmarks/demo_stability.py [--seeds 10] [--other-seeds 3] [--at-once 1] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

RESULTS = Path(__file__).parent / "results" / "demo_stability.json"

TORCH = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
"""The demo does not load torch; that it does not matter is shown all the same."""

AVX512 = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
PROCESSORS: dict[str, dict[str, str]] = {
    "as it is": {},
    "no AVX-512": {**TORCH, "NPY_DISABLE_CPU_FEATURES": AVX512, "OPENBLAS_CORETYPE": "Haswell"},
}


def supported(wanted: str) -> str:
    """Return those of numpy's optional features that this build knows and may disable."""
    from numpy._core._multiarray_umath import __cpu_dispatch__

    return " ".join(name for name in wanted.split() if name in __cpu_dispatch__)


def run_demo(seed: int, scenes: int, processor: str, work: Path) -> dict[str, Any]:
    """Run the whole demo in a process of its own; return what it found, or had found before."""
    if (work / "report" / "demo.json").exists():
        found = json.loads((work / "report" / "demo.json").read_text())
        return {"seed": seed, "processor": processor, **found}
    changes = dict(PROCESSORS[processor])
    if "NPY_DISABLE_CPU_FEATURES" in changes:
        changes["NPY_DISABLE_CPU_FEATURES"] = supported(changes["NPY_DISABLE_CPU_FEATURES"])
    command = [sys.executable, "-m", "earmark", "demo", "--json", "--seed", str(seed)]
    command += ["--scenes", str(scenes), "--work", str(work), "--workers", "1"]
    told = subprocess.run(
        command, env={**os.environ, **changes}, capture_output=True, text=True, check=True
    )
    found = json.loads(told.stdout)
    return {"seed": seed, "processor": processor, **found}


def row_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return the line of the table."""
    students = found["students"]
    chosen, heard = students["chosen"], students["heard"]
    hedged = students["each"][1]
    return {
        "processor": found["processor"],
        "seed": found["seed"],
        "first flags right": found["n_right"],
        "times chance": round(found["times_better"], 1),
        "answer": found["answer"],
        "chosen": f"{chosen['treatment']} {chosen['percent']:g} %",
        "lwlrap": f"{chosen['baseline'][0]:.3f}",
        "gain": signed(chosen["gain"]),
        "calibrated": signed(chosen["calibrated"]),
        "at random": signed(chosen["random"]),
        "hedge": signed(hedged["gain"]),
        "found by 100": round(heard["n_found"]),
        "answers' gain": signed(heard["gain"]),
    }


def signed(interval: list[float]) -> str:
    """Return a gain and the ends of its interval."""
    return f"{interval[0]:+.3f} [{interval[1]:+.3f}, {interval[2]:+.3f}]"


def ranges(found: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the lowest and highest of each number over seeds."""
    chosen = [one["students"]["chosen"] for one in found]
    heard = [one["students"]["heard"] for one in found]
    numbers = {
        "first flags right": [one["n_right"] for one in found],
        "times better than chance": [one["times_better"] for one in found],
        "right of all flags": [one["right_of_all_flags"] for one in found],
        "lwlrap as given": [one["baseline"][0] for one in chosen],
        "lwlrap told": [one["value"][0] for one in chosen],
        "gain": [one["gain"][0] for one in chosen],
        "gain after calibration": [one["calibrated"][0] for one in chosen],
        "gain at random": [one["random"][0] for one in chosen],
        "found by answers": [one["n_found"] for one in heard],
        "found by answers at random": [one["n_found_at_random"] for one in heard],
        "answers' gain": [one["gain"][0] for one in heard],
    }
    return {name: [float(np.min(own)), float(np.max(own))] for name, own in numbers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--other-seeds", type=int, default=3, help="seeds on other processors")
    parser.add_argument("--scenes", type=int, default=4_000)
    parser.add_argument("--at-once", type=int, default=1, help="demos that run at the same time")
    parser.add_argument("--keep", type=Path, help="keep the workspaces and results here")
    options = parser.parse_args()
    wanted = [("as it is", seed) for seed in range(options.seeds)]
    wanted += [(name, seed) for name in list(PROCESSORS)[1:] for seed in range(options.other_seeds)]
    with tempfile.TemporaryDirectory() as folder:
        root = options.keep or Path(folder)

        def run(asked: tuple[str, int]) -> dict[str, Any]:
            processor, seed = asked
            work = root / f"{processor.replace(' ', '-')}-{seed}"
            told = run_demo(seed, options.scenes, processor, work)
            print(row_of(told), flush=True)
            return told

        with ThreadPoolExecutor(options.at_once) as pool:
            found = list(pool.map(run, wanted))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, fmt_str_lengths=40):
        print(pl.DataFrame([row_of(one) for one in found]))
    own = found[: options.seeds]
    summary = {
        "scenes": options.scenes,
        "answers": [one["answer"] for one in own],
        "same_verdict_elsewhere": all(
            one["answer"] == own[one["seed"]]["answer"] for one in found[options.seeds :]
        ),
        "ranges": ranges(own),
        "runs": found,
    }
    RESULTS.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps({name: summary[name] for name in ("answers", "ranges")}, indent=1))


if __name__ == "__main__":
    main()
