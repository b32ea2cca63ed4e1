"""Whether anything is lost: the whole path, killed and on a full disk.

Tiny workspaces go from the import to the report, once undisturbed and then again and again with one
stage disturbed at a random moment, several times in a row. The stage is then run to its end, and
every file of the workspace has to be what it was without the disturbance, byte for byte, except:

- the columns seconds and clips_per_second of a network's history,
- the order of pages inside SQLite's files, whose rows are compared.

No unfinished file may be left, and no process may outlive its driver by more than ten seconds. A
stage that could not do its work ends with code 2 and no traceback.

Trials are forked from one process that has imported everything, so that a trial costs what the
stage does. A full disk is a tmpfs, for which one has to be root; otherwise it is left out. Prints a
table; the exit status is 1 if anything went wrong.

    python benchmarks/torture.py [--disturbances 200] [--minutes 30] [--stages NAME,...]
                                 [--faults NAME,...] [--seed 0] [--quick]
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECIPE = """
name = "torture"
tracker = "none"
scenes = {n_train = 24, n_tune = 16, n_eval = 16, clip_seconds = 1.0}
cross_fit = {n_folds = 2}
report = {flag_percent = 5, listen_flags = 2}
[teacher]
name = "teacher"
model = {width = 0.04}
train = {epochs = 1, batch_patches = 16, checkpoint_seconds = 0.05}
[[students]]
name = "student"
model = {width = 0.04}
train = {epochs = 1, batch_patches = 16, checkpoint_seconds = 0.05}
[sweep]
discard_percents = [0, 5]
random_control_percents = [5]
n_resamples = 100
[compare]
strategies = ["mask@5", "hedge@5"]
seeds = [0]
n_resamples = 100
"""

N_CLIPS, CLASSES = 240, ("bark", "meow", "rain")

STAGES = {
    "scan": "scan --labels labels.csv --scores scores.npy --clips clips.csv --classes classes.txt "
    "--out scanned",
    "scan again": "scan --labels labels.csv --scores scores.npy --clips clips.csv --classes "
    "classes.txt --out scanned --discard-percent 2",
    "embeddings": "import table labels.csv --clips clips.csv --embeddings vectors.npy --work V",
    "own scores": "score V --from scores.npy --clips clips.csv --classes classes.txt",
    "flag": "flag V --chances",
    "queue": "review V --write-only --aim measure",
    "answers": "answers V --import ../answers.csv",
    "relabel": "relabel V",
    "export": "export V exported.csv",
    "import": "import scenes W --recipe tiny.toml --workers 1",
    "features": "features W --workers 1",
    "score": "score W --workers 1",
    "sweep": "sweep W --workers 1",
    "compare": "compare W --workers 1",
    "report": "report W",
}
"""A scan and one in its place; then the path of two workspaces: V with an owner's tables and
scores, W with sound and networks."""

LIGHT = tuple(itertools.takewhile(lambda name: name != "import", STAGES))
"""Stages that need the core alone."""

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
"""Faults that are sent to the whole group."""

CODES = {"SIGKILL": {-9, 0}, "SIGTERM": {0, 143, -15}, "SIGINT": {0, 130, -2}, "full disk": {0, 2}}
"""Faults, and the codes with which a disturbed verb may end; before Python has begun, a signal
ends it."""

IN_A_ROW = {"SIGKILL": 5, "SIGTERM": 2, "SIGINT": 2, "full disk": 2}
"""How often a fault comes before a stage may end."""

MOST_SECONDS, ORPHAN_SECONDS = 600.0, 10.0


@dataclass(frozen=True)
class Ended:
    """How a verb ended: code, output, and the processor seconds of its driver without children."""

    code: int
    output: str
    cpu_seconds: float
    is_struck: bool
    """Whether the signal came before the end."""


def write_inputs(place: Path) -> None:
    """Write an owner's tables, scores and vectors, and the recipe of scenes."""
    import numpy as np

    place.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    is_present = rng.random((N_CLIPS, len(CLASSES))) < 0.3
    rows = [
        f"clip{clip},{name},{int(is_present[clip, column])}"
        for clip in range(N_CLIPS)
        for column, name in enumerate(CLASSES)
        if rng.random() < 0.5
    ]
    clips = [f"clip{clip}" for clip in range(N_CLIPS)]
    (place / "labels.csv").write_text("\n".join(["clip_id,class_id,present", *rows]))
    (place / "clips.csv").write_text("\n".join(["clip_id", *clips]))
    (place / "classes.txt").write_text("\n".join(CLASSES))
    (place / "tiny.toml").write_text(RECIPE)
    np.save(place / "scores.npy", rng.normal(2.0 * is_present, 1).astype(np.float32))
    np.save(place / "vectors.npy", rng.normal(size=(N_CLIPS, 8)).astype(np.float32))


def write_answers(place: Path) -> None:
    """Write answers to the first labels of the queue; elsewhere, for polars starts threads."""
    code = (
        "import sys; from pathlib import Path; import polars as pl\n"
        "place = Path(sys.argv[1]); items = pl.read_parquet(place / 'V/review/queue.parquet')\n"
        "items = items.head(60).with_row_index('row')\n"
        "answer = pl.when(pl.col('row') % 3 == 0).then(pl.lit('present'))\n"
        "answer = answer.otherwise(pl.lit('not_present')).alias('answer')\n"
        "rows = items.select('clip_id', 'class_id', answer, rater=pl.lit('ann'),\n"
        "    at=pl.lit('2026-01-02T03:04:05+00:00'))\n"
        "rows.write_csv(place.parent / 'answers.csv')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(place)], check=True)


def run_verb(
    work: Path, words: list[str], number: signal.Signals | None = None, moment: float = 0.0
) -> Ended:
    """Fork a verb; send a signal to its group once it has used so many processor seconds."""
    output_path = work.parent / "output.txt"
    began, cpu_seconds, is_struck = time.monotonic(), 0.0, False
    process = os.fork()
    if process == 0:
        _become_verb(work, words, output_path)
    while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with suppress(OSError):
            cpu_seconds = time.clock_gettime((~process << 3) | 2)  # the clock of that process
        if number is not None and not is_struck and cpu_seconds >= moment:
            with suppress(ProcessLookupError):  # not yet a group of its own
                os.killpg(process, number)
                is_struck = True
        if time.monotonic() - began > MOST_SECONDS:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.002)
    _, status = os.waitpid(process, 0)
    output = output_path.read_text(errors="replace") if output_path.exists() else ""
    if time.monotonic() - began > MOST_SECONDS:
        output += "\nTraceback: the verb hangs"
    deadline = time.monotonic() + ORPHAN_SECONDS
    while (orphans := processes_of(process)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for orphan in orphans:
        os.kill(orphan, signal.SIGKILL)
        output += f"\nTraceback: a process outlived its driver by {ORPHAN_SECONDS} s"
    return Ended(os.waitstatus_to_exitcode(status), output, cpu_seconds, is_struck)


def _become_verb(work: Path, words: list[str], output: Path) -> None:
    """Become ``earmark WORDS``; never return."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where this is in background
    os.chdir(work)
    file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["earmark", *words]
    code: Any = 1
    try:
        from earmark.cli.app import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def processes_of(session: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX" and int(fields[3]) == session:
            found.append(int(path.name))
    return found


def run_on_full_disk(work: Path, words: list[str], pages_left: int) -> Ended:
    """Run a verb with few pages left, then give space again."""
    status = os.statvfs(work)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    remount = ["mount", "-o", f"remount,size={used + 4096 * pages_left}", str(work)]
    subprocess.run(remount, check=True)
    try:
        return run_verb(work, words)
    finally:
        subprocess.run([*remount[:2], "remount,size=1g", str(work)], check=True)


def differences(expected: Path, work: Path) -> list[str]:
    """Name the files that differ from an undisturbed state, and those of only one of the two."""
    wanted, there = digests(expected), digests(work)
    return sorted(
        f"{name}: {wanted.get(name)} is {there.get(name)}"
        for name in wanted.keys() | there.keys()
        if wanted.get(name) != there.get(name)
    )


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a state, what may differ left out."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): digest_of(path) for path in files if not is_log(path)}


def is_log(path: Path) -> bool:
    """Tell whether a file is SQLite's own, which comes and goes with its readers."""
    return path.name.endswith((".sqlite-wal", ".sqlite-shm"))


def digest_of(path: Path) -> str:
    """Return what has to be the same of a file."""
    content = path.read_bytes()
    if path.name in ("history.csv", "history_by_student.csv"):
        content = without_columns(content.decode(), ("seconds", "clips_per_second")).encode()
    elif path.suffix == ".sqlite":
        content = subprocess.run(
            [sys.executable, "-c", _DUMP, str(path)], check=True, capture_output=True
        ).stdout
    elif path.suffix == ".svg":
        content = re.sub(rb"[mp][0-9a-f]{10}", b"id", content)
    return hashlib.sha256(content).hexdigest()


_DUMP = "import sqlite3, sys\nfor line in sqlite3.connect(sys.argv[1]).iterdump(): print(line)\n"


def without_columns(text: str, names: tuple[str, ...]) -> str:
    """Return a CSV without some of its columns."""
    rows = [line.split(",") for line in text.splitlines()]
    kept = [place for place, name in enumerate(rows[0]) if name not in names] if rows else []
    return "\n".join(",".join(row[place] for place in kept) for row in rows)


def size_of(folder: Path) -> int:
    """Return the bytes of all files, in whole pages."""
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return sum(-(-size // 4096) * 4096 for size in sizes)


def copy_tree(source: Path, target: Path) -> None:
    """Make a folder what another is; the folder itself stays: a disk may be mounted there."""
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(source, target, dirs_exist_ok=True)


def mount(place: Path) -> bool:
    """Put a tmpfs in place; tell whether one may."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=1g", "earmark-torture", str(place)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def prepare(stages: list[str], folder: Path) -> dict[str, float]:
    """Go through all stages undisturbed and keep the states between; return processor seconds."""
    work, seconds = folder / "run", {}
    write_inputs(work)
    for number, stage in enumerate(stages):
        copy_tree(work, folder / "states" / str(number))
        if stage == "answers":
            write_answers(work)
        ended = run_verb(work, STAGES[stage].split())
        if ended.code:
            raise SystemExit(f"{stage}: {ended.output}")
        seconds[stage] = ended.cpu_seconds
    copy_tree(work, folder / "states" / str(len(stages)))
    return seconds


def try_out(
    stage: str, fault: str, states: tuple[Path, Path], seconds: float, rng: random.Random
) -> tuple[int, list[str]]:
    """Disturb a stage some times in a row and let it end; return how often, and what is wrong."""
    (before, after), words = states, STAGES[stage].split()
    work, n_struck, wrong = before.parents[1] / "run", 0, []
    copy_tree(before, work)
    for _ in range(IN_A_ROW[fault]):
        if fault == "full disk":
            pages = max(size_of(after) - size_of(before), 4096) // 4096
            ended = run_on_full_disk(work, words, rng.randrange(pages + 8))
        else:  # now and then after its end
            ended = run_verb(work, words, SIGNALS[fault], rng.uniform(0, 1.05) * seconds)
        n_struck += ended.is_struck or fault == "full disk"
        if ended.code not in CODES[fault] or ("Traceback" in ended.output and ended.code != -9):
            wrong.append(f"ended with {ended.code}: {ended.output[-2000:]}")
    last = run_verb(work, words)
    if last.code:
        wrong.append(f"resumed with code {last.code}: {last.output[-2000:]}")
    return n_struck, wrong or differences(after, work)


def import_all(stages: list[str]) -> None:
    """Import what the verbs will need, before anything is forked; nothing may run threads yet."""
    names = ["earmark.cli.app", "earmark.pipeline"]
    if not set(stages) <= set(LIGHT):
        names += ["soundfile", "earmark.experiments.compare"]
        names += ["earmark.experiments.sweep", "earmark.training.loop"]
    for name in names:
        importlib.import_module(name)


def main() -> None:
    """Torture the path, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--disturbances", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--faults", default=",".join(CODES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="light stages, 12 disturbances")
    options = parser.parse_args()
    if options.quick:
        options.disturbances, options.stages = 12, ",".join(LIGHT)
    deadline = time.monotonic() + 60 * options.minutes
    stages = [stage for stage in STAGES if stage in options.stages.split(",")]
    faults = [fault for fault in CODES if fault in options.faults.split(",")]
    rng, struck, n_wrong = random.Random(options.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        folder = Path(name).resolve()
        is_mounted = mount(folder / "run")
        if not is_mounted and "full disk" in faults:
            faults.remove("full disk")
            print("left out: full disk, for which one has to be root")
        try:
            import_all(stages)
            seconds = prepare(stages, folder)
            for fault, stage in itertools.cycle(itertools.product(faults, stages)):
                if struck.total() >= options.disturbances or time.monotonic() > deadline:
                    break
                number = stages.index(stage)
                states = folder / "states" / str(number), folder / "states" / str(number + 1)
                n_struck, wrong = try_out(stage, fault, states, seconds[stage], rng)
                struck[fault] += n_struck
                n_wrong += bool(wrong)
                print(f"{stage}, {fault}, {n_struck} times: {wrong or 'well'}", flush=True)
        finally:
            if is_mounted:
                subprocess.run(["umount", str(folder / "run")], check=False)
    print(f"{struck.total()} disturbances: {dict(struck)}; {n_wrong} trials went wrong (limit 0)")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()
