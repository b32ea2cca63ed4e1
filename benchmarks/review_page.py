"""How long a rater waits: the listening page in a real Chromium, with a very long queue.

Makes 20,000 clips of 60 classes (a million labels, sounds from forty recordings), flags 100,000 of
them and draws two queues: one that was drawn at once, with 100,000 items (``measure``), and one
that learns, with half a million candidates (``find``, by class and by clip). A browser opens the
page, answers by keys, ends blocks and looks at all classes, while the server learns. Prints a
table and writes ``results/review_page.json``. Needs Chromium and Playwright; some minutes.

    python benchmarks/review_page.py [--answers 120]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import soundfile
from playwright.sync_api import Page, sync_playwright

from earmark.datasets import Workspace, write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.runs import ReviewParams
from earmark.scores import write_score_folder
from earmark.stages import draw_queue, write_flags
from machine import chromium_path

N_CLIPS, N_CLASSES, N_SOUNDS, SECONDS, RATE_HZ = 20_000, 60, 40, 3.0, 16_000
N_FLAGS = 100_000


def make_workspace(root: Path, seed: int = 0) -> Workspace:
    """Make clips whose scores know the labels; a third of what is there was labelled."""
    rng = np.random.default_rng(seed)
    (root / "audio").mkdir(parents=True)
    for number in range(N_SOUNDS):
        sound = 0.1 * rng.standard_normal(round(SECONDS * RATE_HZ)).astype(np.float32)
        soundfile.write(root / "audio" / f"{number}.wav", sound, RATE_HZ)
    clip_ids = [f"clip{i:05}" for i in range(N_CLIPS)]
    class_ids = tuple(f"class{i:02}" for i in range(N_CLASSES))
    present = rng.random((N_CLIPS, N_CLASSES)) < rng.uniform(0.02, 0.25, N_CLASSES)
    given = present & (rng.random(present.shape) < 0.33)
    denied = ~present & (rng.random(present.shape) < 0.01)
    states = np.where(given, 1, np.where(denied, -1, 0)).astype(np.int8)
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": [f"audio/{i % N_SOUNDS}.wav" for i in range(N_CLIPS)],
            "start_seconds": pl.Series([None] * N_CLIPS, dtype=pl.Float64),
            "end_seconds": pl.Series([None] * N_CLIPS, dtype=pl.Float64),
            "split": ["train"] * N_CLIPS,
            "source": clip_ids,
        }
    )
    labels = LabelSet.from_dense(states, clip_ids, class_ids)
    workspace = write_dataset(root, clips, Ontology(class_ids), labels)
    logits = rng.normal(2.5 * present - 2, 1).astype(np.float32)
    patches = np.ones(present.shape, np.uint16)
    folder = workspace.scores_folder("teacher")
    write_score_folder(
        folder, clips["clip_id"], class_ids, logits, patches, out_of_fold=True, digest="made up"
    )
    return workspace


class Server:
    """``earmark review`` in a process of its own."""

    def __init__(self, work: Path, *options: str) -> None:
        asked = [
            sys.executable,
            "-m",
            "earmark",
            "review",
            str(work),
            "--port",
            "0",
            "--no-open",
            *options,
        ]
        begun = time.perf_counter()
        own = dict(os.environ, PYTHONUNBUFFERED="1")
        self.process = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, env=own)
        assert self.process.stdout is not None
        told = ""
        while "next:" not in told:
            told += self.process.stdout.readline()
        self.seconds_to_start = time.perf_counter() - begun
        found = re.search(r"http://\S+", told)
        assert found is not None
        self.url = found[0]

    @property
    def megabytes(self) -> float:
        """Return the memory that the server has taken at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else float("nan")

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def seconds_until(page: Page, selector: str, act: str | None = None, text: str = "") -> float:
    """Return how long something takes to appear, from a key press on."""
    begun = time.perf_counter()
    if act is not None:
        page.keyboard.press(act)
    page.locator(selector, has_text=text).first.wait_for(timeout=120_000)
    return time.perf_counter() - begun


def answer(page: Page, keys: str, n_most: int) -> list[float]:
    """Answer until the block is over; return how long the blocks' ends took."""
    ends, number = [], 0
    while number < n_most:
        page.wait_for_selector("#answers:not(.locked)", timeout=120_000)
        page.keyboard.press("Enter" if keys == "clip" else keys[number % len(keys)])
        number += 1
        page.wait_for_timeout(20)
        if page.get_attribute("body", "data-view") == "summary":
            ends.append(seconds_until(page, "body[data-view=work]", " "))
    return ends


def measure(
    work: Path, browser, name: str, options: list[str], n_answers: int
) -> dict[str, object]:
    """Hear a queue in the browser; return what was waited for."""
    server = Server(work, *options)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    begun = time.perf_counter()
    page.goto(server.url)
    page.wait_for_selector("#gate:not([hidden])", timeout=120_000)
    opened = time.perf_counter() - begun
    first = seconds_until(page, "body[data-view=work]", " ")
    for _ in range(2):
        page.keyboard.press("r")
    ends = answer(page, "clip" if "--clips" in options else "fjfh", n_answers)
    waits = page.evaluate(
        "performance.getEntriesByName('key-to-sound').map((entry) => entry.duration)"
    )
    overview = seconds_until(page, "#classes tbody tr", "o")
    page.keyboard.press("o")
    page.wait_for_timeout(300)
    again = seconds_until(page, "#classes tbody tr", "o")
    heap = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
    found = {
        "queue": name,
        "start_seconds": server.seconds_to_start,
        "open_seconds": opened,
        "first_clip_seconds": first,
        "next_block_seconds": max(ends, default=float("nan")),
        "key_to_sound_median_ms": float(np.median(waits)),
        "key_to_sound_95_ms": float(np.percentile(waits, 95)),
        "key_to_sound_max_ms": max(waits),
        "all_classes_seconds": overview,
        "all_classes_again_seconds": again,
        "server_megabytes": server.megabytes,
        "page_megabytes": heap,
        "n_answers": len(waits),
        "load": os.getloadavg()[0],
    }
    context.close()
    server.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=120)
    parser.add_argument("--only", default="", help="one of measure, find, clips")
    arguments = parser.parse_args()
    path = chromium_path()
    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        workspace = make_workspace(Path(folder, "w"))
        write_flags(workspace, policy="budget", n_flags=N_FLAGS)
        queues = {
            "measure": (ReviewParams(aim="measure", n_items=N_FLAGS), []),
            "find": (ReviewParams(aim="find"), []),
            "clips": (ReviewParams(aim="find"), ["--clips"]),
        }
        for name, (params, options) in queues.items():
            if arguments.only in ("", name):
                shutil.rmtree(workspace.review_folder, ignore_errors=True)
                draw_queue(workspace, params=params)
                n = arguments.answers if name != "clips" else max(arguments.answers // 4, 1)
                rows.append(measure(workspace.root, browser, name, options, n))
                print(json.dumps(rows[-1], indent=1), flush=True)
        browser.close()
    out = Path(__file__).parent / "results" / "review_page.json"
    out.write_text(json.dumps({"flags": N_FLAGS, "clips": N_CLIPS, "rows": rows}, indent=1) + "\n")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
