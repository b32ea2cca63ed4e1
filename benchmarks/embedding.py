"""Listening with YAMNet: as the TFLite interpreter hears it, how fast, and in how much memory.

Agreement: our float network, read from the int8 TFLite file, against the interpreter's outputs on
the same patches; beside it, how far the interpreter's two ways of computing (XNNPACK and plain)
agree with each other. Speed: clips of 10 s on one core, from the file to embeddings, and the
network alone against the interpreter on the same patches, in turn, in CPU seconds, so that a busy
machine does not tilt the ratio. The arithmetic limit, in the same turns: the network's GFLOP/s
against those of a plain matrix product of the shape that most of its work has. Memory: the peak of
a process that listens to 5,000 and to 50,000 clips of 1 s.

    python benchmarks/embedding.py --yamnet FILE.tflite [--esc50 ESC50] [--memory]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
import soundfile
import torch
from numpy.typing import NDArray

from earmark.audio import YAMNET, log_mel, patches, read_clip
from earmark.datasets import write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.pretrained import listen
from earmark.runs import PretrainedParams

RESULTS = Path(__file__).parent / "results" / "embedding.json"
CLIP_SECONDS = 10
GOAL_CLIPS_PER_SECOND = 25
N_TURNS = 7
MULTIPLY_ADDS = 69.165e6
"""Of one patch."""
PRODUCT = (240, 512, 512)
"""Ten patches of 6 x 4 places through one of the five layers from 512 channels to 512."""
N_PRODUCTS = 20


def interpreter(path: Path, *, plain: bool = False) -> Callable[[NDArray[np.float32]], Any]:
    """Return a function from one patch's waveform [15600] to probabilities [521]."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kinds = OpResolverType
    kind = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else kinds.AUTO
    opened = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kind)
    opened.allocate_tensors()
    given, found = opened.get_input_details()[0], opened.get_output_details()[0]

    def hear(waveform: NDArray[np.float32]) -> Any:
        opened.set_tensor(given["index"], waveform)
        opened.invoke()
        return opened.get_tensor(found["index"])[0].copy()

    return hear


def patch_waveforms(waveform: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the samples under each patch [patch, sample], as the front end pads them."""
    n = len(patches(log_mel(waveform)))
    padded = np.zeros(YAMNET.patch_samples + (n - 1) * YAMNET.patch_hop_samples, np.float32)
    padded[: len(waveform)] = waveform[: len(padded)]
    starts = np.arange(n) * YAMNET.patch_hop_samples
    return np.stack([padded[start : start + YAMNET.patch_samples] for start in starts])


def agreement(network: Any, weights: Path, recordings: list[Path]) -> dict[str, float]:
    """Compare our outputs with the interpreter's, and those of its two ways with each other."""
    fast, plain = interpreter(weights), interpreter(weights, plain=True)
    ours, theirs, others = [], [], []
    for path in recordings:
        waveform = read_clip(path, YAMNET.sample_rate_hz)
        (heard,) = network.hear([waveform])
        ours.append(1 / (1 + np.exp(-heard.logits)))
        parts = patch_waveforms(waveform)
        theirs.append(np.stack([fast(part) for part in parts]))
        others.append(np.stack([plain(part) for part in parts]))
    one, two, three = (np.concatenate(each) for each in (ours, theirs, others))
    return {
        "patches": len(one),
        "correlation with XNNPACK": _correlation(one, two),
        "correlation with plain": _correlation(one, three),
        "XNNPACK with plain": _correlation(two, three),
        "same best class as XNNPACK": float((one.argmax(1) == two.argmax(1)).mean()),
        "XNNPACK's same as plain's": float((two.argmax(1) == three.argmax(1)).mean()),
        "largest difference": float(np.abs(one - two).max()),
    }


def _correlation(one: NDArray[Any], two: NDArray[Any]) -> float:
    return float(np.corrcoef(one.ravel(), two.ravel())[0, 1])


def speed(network: Any, weights: Path, folder: Path) -> dict[str, float]:
    """Time one core: files to embeddings, the network alone, and the interpreter's on the same."""
    rng = np.random.default_rng(0)
    sound = (rng.standard_normal(CLIP_SECONDS * YAMNET.sample_rate_hz) * 0.1).astype(np.float32)
    path = folder / "noise.flac"
    soundfile.write(path, sound, YAMNET.sample_rate_hz)
    parts, theirs = patch_waveforms(sound), interpreter(weights)
    rows, inner, columns = PRODUCT
    factors, product = (torch.ones(rows, inner), torch.ones(inner, columns)), torch.empty(0)
    image = patches(log_mel(sound))
    ways: dict[str, Callable[[], object]] = {
        "whole": lambda: network.hear([read_clip(path, YAMNET.sample_rate_hz)]),
        "network": lambda: network._hear(image),
        "interpreter": lambda: [theirs(part) for part in parts],
        "product": lambda: [torch.mm(*factors, out=product) for _ in range(N_PRODUCTS)],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(N_TURNS):
        for name, way in ways.items():
            start = time.process_time()
            for _ in range(3):
                way()
            times[name].append((time.process_time() - start) / 3)
    best = {name: min(own) for name, own in times.items()}
    median = {name: float(np.median(own)) for name, own in times.items()}
    gflops = 2e-9 * MULTIPLY_ADDS * len(parts) / best["network"]
    limit = 2e-9 * rows * inner * columns * N_PRODUCTS / best["product"]
    return {
        "network, GFLOP/s": gflops,
        "plain product of 240 x 512 and 512 x 512, GFLOP/s": limit,
        "network's share of the plain product's": gflops / limit,
        "clips of 10 s a second and core, file to embedding": 1 / best["whole"],
        "the same, median turn": 1 / median["whole"],
        "patches a second, network": len(parts) / best["network"],
        "patches a second, interpreter from waveforms": len(parts) / best["interpreter"],
        "times the interpreter, file to embedding against waveforms": best["interpreter"]
        / best["whole"],
        "share of the time that is the network's": best["network"] / best["whole"],
        "goal, clips a second": GOAL_CLIPS_PER_SECOND,
    }


def listen_to(n_clips: int, weights: Path) -> None:
    """Listen to many clips of 1 s, and print the peak of memory: run as a process of its own."""
    import resource

    with tempfile.TemporaryDirectory() as place:
        sound = np.random.default_rng(0).standard_normal(YAMNET.sample_rate_hz) * 0.1
        path = Path(place) / "noise.wav"
        soundfile.write(path, sound.astype(np.float32), YAMNET.sample_rate_hz)
        ids = pl.Series([f"c{number:07}" for number in range(n_clips)])
        clips = pl.DataFrame({"clip_id": ids, "source": ids}).with_columns(
            audio=pl.lit(str(path)),
            start_seconds=pl.lit(None, pl.Float64),
            end_seconds=pl.lit(None, pl.Float64),
            split=pl.lit("train"),
        )
        rows = pl.DataFrame({"clip_id": ids[:1], "class_id": ["noise"], "present": [True]})
        labels = LabelSet.from_rows(rows, ids, ["noise"])
        workspace = write_dataset(Path(place) / "work", clips, Ontology(("noise",), {}), labels)
        start = time.monotonic()
        listen(workspace, PretrainedParams(network=str(weights)))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"mb": peak, "seconds": time.monotonic() - start}))


def memory(weights: Path) -> dict[str, float]:
    """Return the peak of memory of listening to few and to many clips."""
    found = {}
    for n_clips in (5_000, 50_000):
        command = [sys.executable, __file__, "--yamnet", str(weights), "--listen-to", str(n_clips)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peak = json.loads(told.strip().splitlines()[-1])
        found[f"peak MB, {n_clips:,} clips"] = peak["mb"]
        found[f"seconds, {n_clips:,} clips of 1 s"] = peak["seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--yamnet", type=Path, help="the published TFLite file")
    parser.add_argument("--esc50", type=Path, help="ESC-50's folder, to measure agreement on")
    parser.add_argument("--memory", action="store_true", help="listen to 50,000 clips, too")
    parser.add_argument("--listen-to", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.yamnet is None or not args.yamnet.is_file():
        print("no weights: give --yamnet FILE.tflite (nothing was measured)")
        return
    if args.listen_to:
        listen_to(args.listen_to, args.yamnet)
        return
    from earmark.pretrained import open_network

    network = open_network(PretrainedParams(network=str(args.yamnet)))
    found: dict[str, Any] = {}
    recordings = sorted(args.esc50.glob("audio/*"))[::40][:30] if args.esc50 else []
    if recordings:
        found["agreement"] = agreement(network, args.yamnet, recordings)
    with tempfile.TemporaryDirectory() as folder:
        found["speed"] = speed(network, args.yamnet, Path(folder))
    if args.memory:
        found["memory"] = memory(args.yamnet)
    for title, numbers in found.items():
        print(title)
        for name, value in numbers.items():
            print(f"  {name}: {value:,.4f}" if value < 10 else f"  {name}: {value:,.1f}")
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(before | found, indent=1) + "\n")
    print(f"wrote {RESULTS}")


if __name__ == "__main__":
    main()
