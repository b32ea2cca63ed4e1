"""The front end against librosa, a decoder against the whole way to frames, and patches read.

    python benchmarks/front_end.py                  # needs librosa: pip install librosa
    python benchmarks/front_end.py --extraction     # also whole extractions on 1 and 2 cores

Log-mel frames of a clip of 10 s, one clip at a time, on one thread; librosa is given the same
window, hop, bands and magnitudes. It computes its mel filters anew in every call, so a second rival
keeps them. The decoder alone is libsndfile's, of mono files at 16 kHz: what conversion of rates
costs is left out. Times are the best of many turns, taken in turn, in CPU seconds: a busy machine
does not tilt the ratio. The extraction is timed by the clock and needs the machine for itself.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from earmark.audio import YAMNET, FrameStore, log_mel, mel_matrix, read_clip, write_store
from earmark.datasets import Workspace, extract_frames
from earmark.runs import LocalEngine, read_json, write_json
from machine import processor_name

GOAL_AGAINST_LIBROSA = 4.0
GOAL_PATCHES_PER_SECOND = 50_000
GOAL_TWO_CORES = 1.7
CLIP_SECONDS = 10


def import_librosa() -> Any:
    try:
        import librosa  # a rival to measure against, not a dependency
    except ImportError:
        raise SystemExit("this benchmark compares with librosa: pip install librosa") from None
    return librosa


def rivals(librosa: Any) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    spectrum = {
        "n_fft": YAMNET.fft_samples,
        "win_length": YAMNET.window_samples,
        "hop_length": YAMNET.hop_samples,
        "center": False,
    }
    mel = {
        "sr": YAMNET.sample_rate_hz,
        "n_mels": YAMNET.n_bands,
        "fmin": YAMNET.low_hz,
        "fmax": YAMNET.high_hz,
        "htk": True,
        "norm": None,
    }
    kept = np.ascontiguousarray(mel_matrix().T)
    return {
        "earmark log_mel": log_mel,
        "librosa feature.melspectrogram": lambda waveform: librosa.feature.melspectrogram(
            y=waveform, power=1.0, **spectrum, **mel
        ),
        "librosa stft, mel filters kept": lambda waveform: (
            kept @ np.abs(librosa.stft(waveform, **spectrum))
        ),
    }


def best_cpu_seconds(functions: dict[str, Callable[[], object]], n_turns: int) -> dict[str, float]:
    for function in functions.values():  # caches, compilers
        function()
    best = dict.fromkeys(functions, np.inf)
    for _ in range(n_turns):
        for name, function in functions.items():
            start = time.process_time()
            function()
            best[name] = min(best[name], time.process_time() - start)
    return best


def compare_front_ends(n_turns: int) -> list[dict[str, object]]:
    waveform = np.random.default_rng(0).uniform(-1, 1, CLIP_SECONDS * 16_000).astype(np.float32)
    functions = {
        name: (lambda function=function: function(waveform))
        for name, function in rivals(import_librosa()).items()
    }
    seconds = best_cpu_seconds(functions, n_turns)
    ours = seconds["earmark log_mel"]
    return [
        {"what": name, "ms_per_clip": 1e3 * each, "times_earmarks": each / ours}
        for name, each in seconds.items()
    ]


def made_up_sound() -> np.ndarray:
    """Tones that come and go over soft noise: what codecs are made for, unlike loud noise."""
    random, seconds = np.random.default_rng(0), np.arange(CLIP_SECONDS * 16_000) / 16_000
    sound = 0.01 * random.standard_normal(len(seconds))
    for hz in random.uniform(100, 6_000, 12):
        sound += 0.08 * np.sin(2 * np.pi * hz * seconds) * np.sin(random.uniform(1, 9) * seconds)
    return sound.astype(np.float32)


def compare_decoders(folder: Path, n_turns: int) -> list[dict[str, object]]:
    import soundfile  # only this part needs it

    functions: dict[str, Callable[[], object]] = {}
    for kind in ("flac", "ogg", "mp3"):
        path = folder / f"clip.{kind}"
        soundfile.write(path, made_up_sound(), 16_000)
        functions[kind] = lambda path=path: soundfile.read(path, dtype="float32")
        functions[f"{kind}, whole"] = lambda path=path: log_mel(
            read_clip(path, YAMNET.sample_rate_hz)
        ).astype(np.float16)
    seconds = best_cpu_seconds(functions, n_turns)
    return [
        {
            "kind": kind,
            "decoder_ms": 1e3 * seconds[kind],
            "whole_ms": 1e3 * seconds[f"{kind}, whole"],
            "whole_against_decoder": seconds[f"{kind}, whole"] / seconds[kind],
        }
        for kind in ("flac", "ogg", "mp3")
    ]


def measure_patches(folder: Path, n_clips: int, batch: int, n_batches: int) -> dict[str, object]:
    random = np.random.default_rng(0)
    frames = random.standard_normal((1008, YAMNET.n_bands)).astype(np.float16)
    shape = {"patch_frames": YAMNET.patch_frames, "patch_hop_frames": YAMNET.patch_hop_frames}
    clips = ((f"clip{i}", frames) for i in range(n_clips))
    store = write_store(folder, clips, clips_per_shard=100, **shape)
    chosen = [
        (random.integers(0, n_clips, batch), random.integers(0, 20, batch))
        for _ in range(n_batches)
    ]
    for clips_of_batch, patches in chosen:  # warm the cache
        store.patches(clips_of_batch, patches)
    start = time.perf_counter()
    for clips_of_batch, patches in chosen:
        store.patches(clips_of_batch, patches)
    per_second = batch * n_batches / (time.perf_counter() - start)
    return {
        "patches_per_second": per_second,
        "batch": batch,
        "store_mb": store.meta.n_frames * store.n_bands * 2 / 1e6,
        "bytes_per_10_s_clip": frames.nbytes,
    }


def write_flacs(root: Path, n_clips: int) -> Workspace:
    import soundfile  # only this part needs it

    noise = np.random.default_rng(0).uniform(-0.3, 0.3, (CLIP_SECONDS * 44_100, 2))
    soundfile.write(root / "clip.flac", noise, 44_100)
    clip_ids = [f"clip{i}" for i in range(n_clips)]
    clips = pl.DataFrame({"clip_id": clip_ids, "source": clip_ids}).with_columns(
        audio=pl.lit("clip.flac"), split=pl.lit("train"), start_seconds=None, end_seconds=None
    )
    clips.write_parquet(root / "clips.parquet")
    return Workspace(root)


def measure_extraction(root: Path, n_clips: int) -> dict[str, object]:
    seconds = {}
    for n_workers in (1, 2):
        place = root / f"{n_workers}"
        place.mkdir()
        workspace = write_flacs(place, n_clips)
        start = time.perf_counter()
        store: FrameStore = extract_frames(workspace, YAMNET, engine=LocalEngine(n_workers))
        seconds[n_workers] = time.perf_counter() - start
        assert len(store.clip_ids) == n_clips
    return {
        "clips_per_second_1_core": n_clips / seconds[1],
        "clips_per_second_2_cores": n_clips / seconds[2],
        "two_cores_against_one": seconds[1] / seconds[2],
    }


def show(results: dict[str, Any]) -> None:
    table = Table("figure", "measured", "goal", title="Front end and frame store, 10 s clips")
    for row in results["front_ends"]:
        is_goal = row["what"] == "librosa feature.melspectrogram"
        table.add_row(
            row["what"],
            f"{row['ms_per_clip']:.2f} ms, {row['times_earmarks']:.2f} x earmark's",
            f"{GOAL_AGAINST_LIBROSA} x" if is_goal else "",
        )
    for row in results["decoders"]:
        table.add_row(
            f"{row['kind']} 16 kHz: decoder alone, whole to frames",
            f"{row['decoder_ms']:.2f} ms, {row['whole_ms']:.2f} ms: "
            f"{row['whole_against_decoder']:.2f} x",
        )
    patches = results["patches"]
    table.add_row(
        "random patches/s, warm cache",
        f"{patches['patches_per_second']:,.0f}",
        f"{GOAL_PATCHES_PER_SECOND:,}",
    )
    table.add_row("bytes per clip of 10 s", f"{patches['bytes_per_10_s_clip']:,}", "")
    if extraction := results["extraction"]:
        one, two = (extraction[f"clips_per_second_{n}"] for n in ("1_core", "2_cores"))
        ratio = f"{extraction['two_cores_against_one']:.2f} x"
        table.add_row("FLAC stereo 44.1 kHz to store, 1 core", f"{one:.0f} clips/s", "")
        table.add_row("the same, 2 cores", f"{two:.0f} clips/s, {ratio}", f"{GOAL_TWO_CORES} x")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--clips", type=int, default=1_000, help="clips in the store of patches")
    parser.add_argument("--extraction", action="store_true")
    options = parser.parse_args()
    path = Path(__file__).parent / "results" / "front_end.json"
    before = read_json(path) if path.exists() else {"extraction": None}
    with tempfile.TemporaryDirectory() as folder:
        results = {
            "machine": {"processor": processor_name(), "numpy": np.__version__},
            "front_ends": compare_front_ends(options.turns),
            "decoders": compare_decoders(Path(folder), options.turns),
            "patches": measure_patches(Path(folder) / "store", options.clips, 128, 300),
            "extraction": before["extraction"],  # unless it is measured anew
        }
        if options.extraction:
            results["extraction"] = measure_extraction(Path(folder), 2_000)
    show(results)
    write_json(path, results)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
