"""How long raters wait in a review that already has many answers, over HTTP.

Makes 20,000 clips of 60 classes (1.2 million labels, sounds from forty recordings), flags 100,000
labels, and gives 104,000 answers of three raters in the blocks of a queue that learns. The raters
answer at the same time: each asks for a block, answers its items, takes some answers back and asks
for the forecast after every block, as the page does. Prints the median, the 99th percentile and the
longest wait of each request in milliseconds, and the limits of answers and undo, and writes
``results/many_answers.json``. Some minutes.

    python benchmarks/many_answers.py [--answers 104000] [--blocks 8] [--work FOLDER] [--quick]
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import polars as pl
import soundfile

from earmark.config import ReviewParams
from earmark.datasets import Workspace, write_dataset
from earmark.labels import LabelSet, Ontology
from earmark.pipeline import draw_queue, serve_review, write_flags
from earmark.review import (
    DrawnBlock,
    Judgement,
    JudgementStore,
    LabelSelection,
    open_drawn,
    read_population,
)
from earmark.scores import write_score_folder
from machine import RESULTS, write_results

if TYPE_CHECKING:
    from earmark.review.server.app import Place

RATERS = ("ann", "bob", "eve")
PER_BLOCK, TURNS_PER_BLOCK = 25, 1
SECONDS_BETWEEN_ANSWERS = 0.2
N_CLIPS, N_CLASSES, N_SOUNDS, SECONDS, RATE_HZ = 20_000, 60, 40, 3.0, 16_000
N_FLAGS = 100_000
MOST_MILLISECONDS = {"answer": 100, "undo": 100}
"""Limits of the 99th percentiles."""


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


def fill(workspace: Workspace, n_answers: int) -> None:
    """Draw blocks and answer them: the likeliest labels first, and turns of the sample."""
    population = read_population(workspace)
    own, rng = population.candidates, np.random.default_rng(0)
    chances = own.p_missing(own.given.model)
    sample = own.sample[: TURNS_PER_BLOCK * (n_answers // PER_BLOCK)]
    is_likely = np.ones(len(own), bool)
    is_likely[sample] = False
    (likely,) = np.nonzero(is_likely)
    likely = likely[np.argsort(-chances[likely], kind="stable")]
    now = datetime.now(UTC)
    judgements: list[Judgement] = []
    n_likely = PER_BLOCK - TURNS_PER_BLOCK
    with open_drawn(workspace, population) as drawn:
        for number in range(n_answers // PER_BLOCK):
            turns = slice(number * TURNS_PER_BLOCK, (number + 1) * TURNS_PER_BLOCK)
            places = np.append(likely[number * n_likely : (number + 1) * n_likely], sample[turns])
            is_sample = np.arange(len(places)) >= n_likely
            selection = LabelSelection(places, is_sample, min(turns.stop, len(sample)))
            items = population.items(selection, chances)
            rater = RATERS[number % len(RATERS)]
            block = DrawnBlock(
                number, rater, False, "class", len(judgements), selection.n_turns, items
            )
            drawn.add(block)
            is_present = rng.random(len(places)) < chances[places]
            judgements += [
                Judgement(
                    id=uuid4(),
                    at=now,
                    rater=rater,
                    item=row["item"],
                    clip_id=row["clip_id"],
                    class_id=row["class_id"],
                    answer="present" if present else "not_present",
                    heard_seconds=1.5,
                )
                for row, present in zip(items.iter_rows(named=True), is_present, strict=True)
            ]
    with JudgementStore(workspace.judgements_path) as store:
        store.add_all(judgements)


def serve(work: Path, ready: Connection) -> None:
    """Serve the page until the process is told to end."""

    def tell(place: Place, tokens: Mapping[str, str]) -> None:
        ready.send((place.port, place.cookie, {name: token for token, name in tokens.items()}))

    serve_review(work, raters=RATERS, port=0, when_ready=tell)


class Rater:
    """One person at the page; ``waits`` collects the milliseconds of each kind of request."""

    def __init__(self, name: str, port: int, cookie: str) -> None:
        self.name, self._cookie = name, cookie
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.waits: dict[str, list[float]] = defaultdict(list)

    def ask(self, kind: str, method: str, path: str, body: Any = None) -> Any:
        """Send a request; note how long the whole response took."""
        headers = {"Cookie": self._cookie, "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body)
        begun = time.perf_counter()
        self._connection.request(method, path, sent, headers)
        response = self._connection.getresponse()
        content = response.read()
        self.waits[kind].append(1000 * (time.perf_counter() - begun))
        if response.status >= 400:
            raise SystemExit(f"{method} {path}: {response.status} {content[:300]!r}")
        return json.loads(content)

    def say(self, kind: str, item: str, answer: str | None, retracts: str | None = None) -> str:
        """Post an answer, or take one back; return its id."""
        posted = {"id": str(uuid4()), "at": datetime.now(UTC).isoformat(), "rater": self.name}
        posted |= {"item": item}
        self.ask(
            kind, "POST", "/api/judgements", {**posted, "answer": answer, "retracts": retracts}
        )
        return posted["id"]

    def listen(self, n_blocks: int) -> None:
        """Answer blocks as a person at the page does."""
        rng = random.Random(self.name)
        self.ask("session", "GET", "/api/session")
        after = None
        for _ in range(n_blocks):
            block = self.ask("next block", "POST", "/api/blocks/next", {"after": after})["block"]
            after = block["block"]
            items = self.ask("block", "GET", f"/api/blocks/{after}")["items"]
            for number, item in enumerate(items):
                time.sleep(SECONDS_BETWEEN_ANSWERS)
                said = rng.choice(["present", "not_present"])
                given = self.say("answer", item["item"], said)
                if number % 5 == 4:
                    self.say("undo", item["item"], None, given)
                    self.say("answer", item["item"], said)
            self.ask("forecast", "GET", "/api/yield")


def measure(work: Path, n_blocks: int) -> dict[str, dict[str, float]]:
    """Let all raters answer at once; return the waits of each kind of request."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(work, there))
    server.start()
    port, cookie, tokens = here.recv()
    raters = [Rater(name, port, f"{cookie}={tokens[name]}") for name in RATERS]
    threads = [threading.Thread(target=rater.listen, args=(n_blocks,)) for rater in raters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGINT)
    server.join()
    waits: dict[str, list[float]] = defaultdict(list)
    for rater in raters:
        for kind, own in rater.waits.items():
            waits[kind] += own
    return {
        kind: {
            "n": len(own),
            "p50_ms": float(np.percentile(own, 50)),
            "p99_ms": float(np.percentile(own, 99)),
            "max_ms": max(own),
        }
        for kind, own in waits.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=104_000)
    parser.add_argument("--blocks", type=int, default=8, help="blocks that each rater answers")
    parser.add_argument("--work", type=Path, help="made there, or used if it is there already")
    parser.add_argument("--quick", action="store_true", help="few answers; nothing is written")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.answers, arguments.blocks = 3_000, 1
    with tempfile.TemporaryDirectory() as folder:
        work = arguments.work or Path(folder, "w")
        if not work.exists():
            workspace = make_workspace(work)
            write_flags(workspace, policy="budget", n_flags=N_FLAGS)
            draw_queue(workspace, params=ReviewParams(aim="find"))
            fill(workspace, arguments.answers)
        waits = measure(work, arguments.blocks)
    for kind, row in waits.items():
        print(f"{kind:12}", *(f"{name} {value:8.1f}" for name, value in row.items()))
    for kind, limit in MOST_MILLISECONDS.items():
        print(f"{kind}: 99 % within {waits[kind]['p99_ms']:.0f} ms (limit {limit})")
    if not arguments.quick:
        write_results(RESULTS / "many_answers.json", {"answers": arguments.answers, "waits": waits})


if __name__ == "__main__":
    main()
