"""Whether anything is lost: the whole path, killed, on full and failing disks, by a jumping clock.

Tiny workspaces go from the import to the report, once undisturbed and then again and again with one
stage disturbed at a random moment, several times in a row. The stage is then run to its end, and
every file of the workspace has to be what it was without the disturbance, byte for byte, but for
``ASIDE``. No lock and no unfinished file may be left, and no process may outlive its driver by more
than ten seconds. A stage that could not do its work ends with code 2 and no traceback.

Trials are forked from one process that has imported everything, so that one costs what the stage
does. A C compiler makes the failing disk and the jumping clock; full and read-only disks are a
tmpfs, for which one has to be root. What cannot be had is left out and said.

Prints a table and writes ``results/torture.json``, to which later calls add.

    python benchmarks/torture.py [--disturbances 600] [--minutes 60] [--folder FOLDER] [--anew]
                                 [--stages NAME,...] [--faults NAME,...] [--out FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "torture.json"

ASIDE = {
    r"models/.*/history(_by_student)?\.csv": "its columns seconds and clips_per_second",
    r"review/judgements\.sqlite": "the pages of the file; its rows are compared",
    r"report/.*\.svg": "nothing, but matplotlib's random identifiers",
}
"""What may differ, and in what."""

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
    "queue": "queue V --aim measure",
    "answers": "judgements import V ../answers.csv",
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

BY_WORKERS = ("import", "features", "score", "sweep")
"""Stages that have workers."""

OF_WORKERS = ("driver killed", "worker killed")

FAULTS = {
    "SIGKILL": "the whole group, at a random moment",
    "SIGTERM": "the whole group, at a random moment",
    "SIGINT": "the whole group, at a random moment",
    "driver killed": "SIGKILL to the driver alone; its two workers have 10 s",
    "worker killed": "SIGKILL to one of two workers",
    "full disk": "a tmpfs with a random number of pages left",
    "file limit": "no file may be larger than a random size",
    "forbidden": "folders in which one may not write",
    "read-only": "a tmpfs that cannot be written",
    "EIO": "a random write, sync or rename fails",
    "clock": "the time of day jumps by ten years, back and forth",
}
ROUNDS = (
    "SIGKILL", "full disk", "driver killed", "SIGKILL", "worker killed", "EIO", "SIGKILL",
    "SIGTERM", "driver killed", "SIGKILL", "full disk", "file limit", "SIGINT", "worker killed",
    "SIGKILL", "EIO", "read-only", "forbidden", "SIGKILL", "clock",
)  # fmt: skip
"""What comes in a round over all stages; then from the beginning again."""

TWICE = ("SIGTERM", "SIGINT", "full disk", "EIO")
"""Faults that come twice before a stage may end."""

PATIENCE_SECONDS, ORPHAN_SECONDS = 600.0, 10.0


@dataclass(frozen=True)
class Ended:
    """How a verb ended, what it told, and the seconds that it took, by the clock and of work.

    The work is the driver's own, without its children's: that is what a moment is told by.
    """

    code: int
    told: str
    seconds: float
    work_seconds: float
    is_struck: bool = True
    """Whether the disturbance came before the end."""


@dataclass
class Torture:
    """The place of all trials, and what they found."""

    folder: Path
    stages: list[str]
    randomly: random.Random
    taken: dict[str, Ended]

    @property
    def place(self) -> Path:
        """The folder in which verbs run: a tmpfs where that can be had."""
        return self.folder / "run"

    def before(self, stage: str) -> Path:
        """The state in which a stage finds everything."""
        return self.folder / "states" / str(self.stages.index(stage))

    def after(self, stage: str) -> Path:
        """The state in which a stage leaves everything, undisturbed."""
        return self.folder / "states" / str(self.stages.index(stage) + 1)

    def prepare(self) -> None:
        """Go through all stages undisturbed, and keep the state between them."""
        write_inputs(self.place)
        for stage in self.stages:
            copy_tree(self.place, self.before(stage))
            if stage == "answers":
                write_answers(self.place)
            self.taken[stage] = run_verb(self.place, words_of(stage))
            if self.taken[stage].code:
                raise SystemExit(f"{stage}: {self.taken[stage].told}")
            copy_tree(self.place, self.after(stage))

    def try_out(self, stage: str, fault: str) -> dict[str, Any]:
        """Disturb a stage some times in a row, let it end, and say what is wrong then."""
        copy_tree(self.before(stage), self.place)
        wrong: list[str] = []
        codes: list[int] = []
        n_struck = 0
        for _ in range(n_in_a_row(stage, fault)):
            ended = DISTURB[fault](self, stage)
            codes.append(ended.code)
            n_struck += ended.is_struck
            wrong += judged(fault, ended)
            if not ended.is_struck and not wrong:  # nothing is left to disturb
                wrong += differences(self.after(stage), self.place)
                copy_tree(self.before(stage), self.place)
        last = run_verb(self.place, words_of(stage))
        if last.code:
            wrong.append(f"resumed with code {last.code}: {last.told[-2000:]}")
        else:
            wrong += differences(self.after(stage), self.place)
        told = {"stage": stage, "fault": fault, "codes": codes, "n_struck": n_struck}
        return {**told, "wrong": wrong}

    def moment(self, stage: str) -> float:
        """Return a random moment of a stage, in seconds of work; now and then after its end."""
        return self.randomly.uniform(0, 1.05) * self.taken[stage].work_seconds


def n_in_a_row(stage: str, fault: str) -> int:
    """Return how often a fault comes before a stage may end; training takes longest."""
    if fault == "SIGKILL":
        return 5 if stage in ("score", "sweep", "compare", "report") else 10
    return 2 if fault in TWICE else 1


def words_of(stage: str, n_workers: int = 1) -> list[str]:
    """Return a stage's command."""
    return STAGES[stage].replace("--workers 1", f"--workers {n_workers}").split()


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
    place: Path,
    words: list[str],
    disturb: Callable[[int], bool] | None = None,
    environment: dict[str, str] | None = None,
    begin: Callable[[], None] | None = None,
) -> Ended:
    """Fork a verb; ``disturb`` is asked again and again, with its number, until it was done.

    Whatever it started and left behind gets ten seconds to end, and is counted against it.
    """
    told_path = place.parent / "told.txt"
    told_path.unlink(missing_ok=True)
    began = time.monotonic()
    process = os.fork()
    if process == 0:
        _be_a_verb(place, words, told_path, environment or {}, begin)
    work, is_done = 0.0, False
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            break
        work = max(work, work_seconds(process))
        is_done = is_done or disturb is None or disturb(process)
        if time.monotonic() - began > PATIENCE_SECONDS:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return Ended(-99, "hangs", PATIENCE_SECONDS, work)
        time.sleep(0.002)
    orphans = wait_for_orphans(process)
    told = told_path.read_text(errors="replace") if told_path.exists() else ""
    if orphans:
        told += f"\nORPHANS: {orphans} processes outlived their driver by {ORPHAN_SECONDS} s\n"
    is_struck = disturb is None or is_done
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, told, time.monotonic() - began, work, is_struck)


def _be_a_verb(
    place: Path,
    words: list[str],
    told: Path,
    environment: dict[str, str],
    begin: Callable[[], None] | None,
) -> None:
    """Become ``earmark WORDS``; never return."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where this is in background
    os.chdir(place)
    file = os.open(told, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    sys.argv = ["earmark", *words]
    code: Any = 1
    try:
        from earmark.cli.app import main

        if begin is not None:
            begin()
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


def wait_for_orphans(session: int) -> int:
    """Wait until all processes of a session are gone; end those that stay, and count them."""
    deadline = time.monotonic() + ORPHAN_SECONDS
    while (left := processes_of(session)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for number in left:
        os.kill(number, signal.SIGKILL)
    return len(left)


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


def work_seconds(process: int) -> float:
    """Return the processor seconds that a process has used."""
    try:
        return time.clock_gettime((~process << 3) | 2)
    except OSError:
        return 0.0


def signalled(number: signal.Signals) -> Callable[[Torture, str], Ended]:
    """Return the fault that sends a signal to the whole group."""

    def disturb(torture: Torture, stage: str) -> Ended:
        moment = torture.moment(stage)

        def strike(process: int) -> bool:
            if work_seconds(process) < moment:
                return False
            with suppress(ProcessLookupError):  # not yet a group of its own
                os.killpg(process, number)
                return True
            return False

        return run_verb(torture.place, words_of(stage), strike)

    return disturb


def struck(of_driver: bool) -> Callable[[Torture, str], Ended]:
    """Return the fault that kills the driver, or a worker, where there are two workers."""

    def disturb(torture: Torture, stage: str) -> Ended:
        share = torture.randomly.uniform(0, 1)
        seen: list[float] = []

        def strike(process: int) -> bool:
            workers = workers_of(process)
            if not workers:
                return False
            seen.append(time.monotonic())
            if time.monotonic() - seen[0] < share * max(torture.taken[stage].seconds, 2.0):
                return False
            os.kill(process if of_driver else torture.randomly.choice(workers), signal.SIGKILL)
            return True

        return run_verb(torture.place, words_of(stage, 2), strike)

    return disturb


def workers_of(driver: int) -> list[int]:
    """Return the workers that a driver has started."""
    found = []
    for number in processes_of(driver):
        try:
            command = Path(f"/proc/{number}/cmdline").read_bytes()
        except OSError:
            continue
        if number != driver and b"spawn_main" in command:
            found.append(number)
    return found


def fill_disk(torture: Torture, stage: str) -> Ended:
    """Run a stage with few pages left, then give room again."""
    status = os.statvfs(torture.place)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    needed = max(size_of(torture.after(stage)) - size_of(torture.before(stage)), 4096)
    left = torture.randomly.randrange(0, max(needed // 4096, 1) + 8) * 4096
    remount(torture.place, f"size={used + left}")
    try:
        return run_verb(torture.place, words_of(stage))
    finally:
        remount(torture.place, "size=1g")


def forbid_writing(torture: Torture, stage: str) -> Ended:
    """Run a stage on a disk that cannot be written."""
    remount(torture.place, "ro")
    try:
        return run_verb(torture.place, words_of(stage))
    finally:
        remount(torture.place, "rw")


def limit_files(torture: Torture, stage: str) -> Ended:
    """Run a stage that may write no file above a random size."""
    size = int(2 ** torture.randomly.uniform(11, 20))

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return run_verb(torture.place, words_of(stage), begin=begin)


def take_rights(torture: Torture, stage: str) -> Ended:
    """Run a stage in folders that belong to somebody else, as far as the kernel is concerned."""
    folders = [torture.place, *(path for path in torture.place.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        return run_verb(torture.place, words_of(stage), begin=drop_privileges)
    finally:
        for folder in folders:
            folder.chmod(0o755)


def drop_privileges() -> None:
    """Have permissions count, as they do for all but root: give up CAP_DAC_*, bits 1 and 2."""
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    rights = (ctypes.c_uint32 * 6)()
    libc.capget(header, rights)
    for place in (0, 1):  # effective and permitted, of the first 32
        rights[place] &= ~0b110
    if libc.capset(header, rights):
        raise SystemExit("the kernel keeps the rights of root")


def fail_once(torture: Torture, stage: str) -> Ended:
    """Run a stage in which one write, sync or rename fails."""
    wanted = int(2 ** torture.randomly.uniform(0, 7))
    environment = {"TORTURE_EIO": f"{wanted} {torture.place.resolve()}"}
    return run_verb(torture.place, words_of(stage), environment=environment)


def turn_clock(torture: Torture, stage: str) -> Ended:
    """Run a stage while the time of day jumps."""
    seconds = torture.randomly.choice((-1, 1)) * 10 * 365 * 86_400
    environment = {"TORTURE_CLOCK": str(seconds)}
    return run_verb(torture.place, words_of(stage), environment=environment)


DISTURB: dict[str, Callable[[Torture, str], Ended]] = {
    "SIGKILL": signalled(signal.SIGKILL),
    "SIGTERM": signalled(signal.SIGTERM),
    "SIGINT": signalled(signal.SIGINT),
    "driver killed": struck(of_driver=True),
    "worker killed": struck(of_driver=False),
    "full disk": fill_disk,
    "file limit": limit_files,
    "forbidden": take_rights,
    "read-only": forbid_writing,
    "EIO": fail_once,
    "clock": turn_clock,
}

ENDS = {
    "SIGKILL": {-9, 0}, "SIGTERM": {0, -15}, "SIGINT": {0, 130, -2}, "driver killed": {-9, 0},
    "worker killed": {0, 2}, "full disk": {0, 2}, "read-only": {0, 2}, "EIO": {0, 2}, "clock": {0},
    "file limit": {0, 2}, "forbidden": {0, 2},
}  # fmt: skip
"""The codes with which a disturbed verb may end; before Python has begun, a signal ends it."""


def judged(fault: str, ended: Ended) -> list[str]:
    """Say what is wrong with how a disturbed verb ended."""
    wrong = []
    if ended.code not in ENDS[fault]:
        wrong.append(f"ended with {ended.code}: {ended.told[-2000:]}")
    elif "Traceback" in ended.told and ended.code != -9:
        wrong.append(f"a traceback: {ended.told[-2000:]}")
    if "ORPHANS" in ended.told:
        wrong.append(ended.told[-200:])
    return wrong


def differences(expected: Path, place: Path) -> list[str]:
    """Say which files differ from an undisturbed state, and what should not be there at all."""
    wanted, found = digests(expected), digests(place)
    wrong = [f"{name}: not there" for name in wanted.keys() - found.keys()]
    wrong += [f"{name}: should not be there" for name in found.keys() - wanted.keys()]
    wrong += [
        f"{name}: differs" for name in wanted.keys() & found.keys() if wanted[name] != found[name]
    ]
    return sorted(wrong)


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


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def mount(place: Path) -> bool:
    """Put a tmpfs in place; tell whether one may."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=1g", "earmark-torture", str(place)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def load_shim(folder: Path) -> bool:
    """Start anew with the failing disk and the jumping clock; tell whether they are loaded."""
    library = folder / "torture_shim.so"
    if os.environ.get("LD_PRELOAD") == str(library):
        return True
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(library),
        str(HERE / "torture_shim.c"),
        "-ldl",
    ]
    try:
        is_made = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        is_made = False
    if is_made:
        os.environ["LD_PRELOAD"] = str(library)
        os.environ["TORTURE_FOLDER"] = str(folder)
        os.execv(sys.executable, [sys.executable, __file__, *sys.argv[1:]])
    return False


def planned(stages: list[str], faults: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what to try next, in rounds over all stages."""
    for fault in itertools.cycle(one for one in ROUNDS if one in faults):
        for stage in stages:
            if stage in BY_WORKERS or fault not in OF_WORKERS:
                yield stage, fault


def tabulated(trials: list[dict[str, Any]]) -> str:
    """Return disturbances by stage and fault as a table, and all that went wrong."""
    counts: Counter[tuple[str, str]] = Counter()
    for trial in trials:
        counts[trial["stage"], trial["fault"]] += trial["n_struck"]
    stages = list(dict.fromkeys(trial["stage"] for trial in trials))
    faults = [fault for fault in FAULTS if any(trial["fault"] == fault for trial in trials)]
    lines = [f"{'':12}" + "".join(f"{fault:>15}" for fault in faults)]
    lines += [
        f"{stage:12}" + "".join(f"{counts[stage, fault]:15}" for fault in faults)
        for stage in stages
    ]
    total = sum(counts.values())
    wrong = [trial for trial in trials if trial["wrong"]]
    lines.append(f"{total} disturbances in {len(trials)} trials; {len(wrong)} trials went wrong")
    lines += [f"  {one['stage']}, {one['fault']}: {one['wrong'][0][:300]}" for one in wrong]
    return "\n".join(lines)


def summed(trials: list[dict[str, Any]], left_out: list[str]) -> dict[str, Any]:
    """Return what is published."""
    counts: Counter[str] = Counter()
    for trial in trials:
        counts[trial["fault"]] += trial["n_struck"]
    return {
        "disturbances": sum(counts.values()),
        "by_fault": dict(counts),
        "trials": len(trials),
        "commits": dict(Counter(trial["commit"] for trial in trials)),
        "wrong": sum(bool(trial["wrong"]) for trial in trials),
        "may_differ": ASIDE,
        "faults": FAULTS,
        "left_out": left_out,
        "each": trials,
    }


def commit() -> str:
    """Return the commit of the code that is tortured; where nobody knows, nothing."""
    command = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--disturbances", type=int, default=600)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def import_all(stages: list[str]) -> None:
    """Import what the verbs will need, before anything is forked; nothing may run threads yet."""
    import earmark.cli.app
    import earmark.stages

    del earmark
    if not set(stages) <= set(LIGHT):
        import matplotlib.pyplot
        import soundfile

        import earmark.experiments.compare
        import earmark.experiments.sweep
        import earmark.training.loop

        del matplotlib, soundfile, earmark


def main() -> None:
    """Torture the path, and publish what came of it."""
    began, options = time.monotonic(), asked()
    known = os.environ.get("TORTURE_FOLDER")
    folder = options.folder or Path(known or tempfile.mkdtemp(prefix="torture-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    has_shim = load_shim(folder)
    stages = [stage for stage in STAGES if stage in options.stages.split(",")]
    faults = [fault for fault in FAULTS if fault in options.faults.split(",")]
    is_mounted = mount(folder / "run")
    left_out = [] if is_mounted else ["full disk", "read-only"]
    left_out += [] if has_shim else ["EIO", "clock"]
    faults = [fault for fault in faults if fault not in left_out]
    is_there = options.out.exists() and not options.anew
    trials: list[dict[str, Any]] = json.loads(options.out.read_text())["each"] if is_there else []
    known_commit = commit()
    try:
        import_all(stages)
        torture = Torture(folder, stages, random.Random(len(trials)), {})
        torture.prepare()
        for stage, fault in itertools.islice(planned(stages, faults), len(trials), None):
            n_done = sum(trial["n_struck"] for trial in trials)
            if n_done >= options.disturbances or time.monotonic() - began > 60 * options.minutes:
                break
            trials.append(torture.try_out(stage, fault) | {"commit": known_commit})
            told = "; ".join(trials[-1]["wrong"])[:200] or "well"
            print(f"{stage}, {fault}: {trials[-1]['codes']}: {told}", flush=True)
            options.out.write_text(json.dumps(summed(trials, left_out), indent=1) + "\n")
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder / "run")], check=False)
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(tabulated(trials))
    if left_out:
        print("left out, for want of root or of a compiler:", ", ".join(left_out))
    sys.exit(any(trial["wrong"] for trial in trials))


if __name__ == "__main__":
    main()
