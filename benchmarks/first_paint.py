"""How large the pages of a dataset with many classes are, and when a browser first paints them.

Makes labels and scores of 527 classes, a scan's page (``earmark scan``) and a workspace's report
(``earmark report``) of them, and opens each in a real Chromium, several times. The aims: 2 MB at
most, and the first paint within a second. On a machine that others use, too, a second passes with
little done, so it also tells the CPU seconds of the page's own thread until then. Prints a table
and writes ``results/first_paint.json``. Needs Chromium and Playwright.

    python benchmarks/first_paint.py [--clips 4000] [--classes 527] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from playwright.sync_api import CDPSession, sync_playwright

from earmark import stages
from earmark.datasets import write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.scores import write_score_folder
from machine import chromium_path

PAINTED = "performance.getEntriesByName('first-contentful-paint').map(one => one.startTime)"
MOST_BYTES, MOST_SECONDS = 2_000_000, 1.0


def make_pages(folder: Path, n_clips: int, n_classes: int, seed: int = 0) -> dict[str, Path]:
    """Make a scan's page and a workspace's report of labels of which a third was given."""
    rng = np.random.default_rng(seed)
    present = rng.random((n_clips, n_classes)) < rng.uniform(0.01, 0.2, n_classes)
    given = present & (rng.random(present.shape) < 0.33)
    clip_ids = [f"clip{i:05}" for i in range(n_clips)]
    class_ids = tuple(f"class{i:03}" for i in range(n_classes))
    labels = LabelSet.from_dense(given.astype(np.int8), clip_ids, class_ids)
    logits = rng.normal(2.5 * present - 2, 1).astype(np.float32)
    stages.scan(labels, logits, out=folder / "scan")
    nowhere = pl.Series([None] * n_clips, dtype=pl.Float64)
    clips = pl.DataFrame(
        {
            "clip_id": clip_ids,
            "audio": pl.Series([None] * n_clips, dtype=pl.String),
            "start_seconds": nowhere,
            "end_seconds": nowhere,
            "split": ["train"] * n_clips,
            "source": clip_ids,
        }
    )
    workspace = write_dataset(folder / "work", clips, Ontology(class_ids), labels)
    scores = workspace.scores_folder("teacher")
    patches = np.ones(present.shape, np.uint16)
    about = {"out_of_fold": True, "digest": "made up"}
    write_score_folder(scores, clips["clip_id"], class_ids, logits, patches, **about)
    stages.write_flags(workspace)
    return {"scan": folder / "scan" / "index.html", "report": stages.make_report(workspace)}


def painted_seconds(path: Path, n_repeats: int) -> list[tuple[float, float]]:
    """Return when a page was first painted, and the CPU seconds of its thread until it was seen.

    Each time in a browser of its own.
    """
    chromium = chromium_path()
    found = []
    for _ in range(n_repeats):
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            watch = page.context.new_cdp_session(page)
            watch.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(path.as_uri())
            while (painted := seconds_of(watch)) is None:
                page.wait_for_timeout(50)
            told = watch.send("Performance.getMetrics")["metrics"]
            cpu_seconds = next(one["value"] for one in told if one["name"] == "TaskDuration")
            found.append((painted, cpu_seconds))
            browser.close()
    return found


def seconds_of(watch: CDPSession) -> float | None:
    """Return when the page was first painted, None before; asked beside its own scripts' rules."""
    told = watch.send("Runtime.evaluate", {"expression": PAINTED, "returnByValue": True})
    milliseconds = told["result"]["value"]
    return milliseconds[0] / 1000 if milliseconds else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=4_000)
    parser.add_argument("--classes", type=int, default=527)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        for kind, path in make_pages(Path(name), options.clips, options.classes).items():
            seconds, cpu = zip(*painted_seconds(path, options.repeats), strict=True)
            n_bytes = path.stat().st_size
            times = {"first_paint_seconds": seconds, "cpu_seconds": cpu}
            results[kind] = {"bytes": n_bytes, **times}
            is_met = n_bytes <= MOST_BYTES and min(seconds) < MOST_SECONDS
            least, most = min(seconds), max(seconds)
            told = f"{kind}: {n_bytes:,} bytes, painted after {least:.2f} to {most:.2f} s"
            print(f"{told} ({min(cpu):.2f} CPU s): {'met' if is_met else 'missed'}")
    facts = {"n_classes": options.classes, "load_average": os.getloadavg()[0]}
    path = Path(__file__).parent / "results" / "first_paint.json"
    path.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
