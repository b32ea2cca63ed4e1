"""Damaged files, thousands for every reader: what earmark does when it is handed them.

    python benchmarks/fuzz.py                        # 10,000 inputs for each reader, resumable
    python benchmarks/fuzz.py --inputs 200 --seconds 60 --only labels

A good file is damaged (``fuzz_mutations.py``) and read (``fuzz_readers.py``, ``fuzz_datasets.py``)
in a process of its own, which works through many. A reader may read it or refuse it by an
``EarmarkError`` that names the file. What counts against it:

- traceback: any other exception, or a refusal without the file's name
- killed: the process ended (a crash, an abort)
- hang: more than 10 s of the processor's time, or a minute of waiting
- memory: more than 1 GB for a file below 1 MB, or an error for want of memory
- left: a half-written file in a folder that the reader was to write to, or beside the input

An input is a function of reader, seed and number: ``--only NAME --first N --inputs N+1`` repeats
one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from earmark.errors import EarmarkError
from earmark.runs import write_json

SECONDS_ALLOWED, SECONDS_TO_WAIT = 10, 60
"""Of the processor's time, and of waiting: on a busy machine they differ."""

BYTES_ALLOWED = 2**30
BEYOND = 3 * 2**30
"""Address space beyond what a process has at its start; past this an allocation fails."""

FAULTS = ("traceback", "killed", "hang", "memory", "left")


@dataclass
class Tally:
    """What became of the inputs of one reader; ``faults`` are the first few, with their numbers."""

    n_inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[dict[str, Any]] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    most_seconds: float = 0.0
    most_bytes: int = 0
    inputs_per_second: float = 0.0
    """The best that was measured, the damaging included: other work slows a machine."""
    commits: Counter[str] = field(default_factory=Counter)
    """The inputs by the commit of the code that read them."""

    def add(self, told: dict[str, Any]) -> None:
        """Count one input."""
        self.n_inputs += 1
        self.commits[commit()] += 1
        self.outcomes[told["outcome"]] += 1
        self.most_seconds = max(self.most_seconds, told.get("seconds", 0.0))
        self.most_bytes = max(self.most_bytes, told.get("bytes", 0))
        if told["outcome"] in FAULTS:
            self.places[told.get("place", "")] += 1
            if self.places[told.get("place", "")] <= 3:
                self.faults.append(told)

    @property
    def n_faults(self) -> int:
        """The inputs that something was wrong with."""
        return sum(self.outcomes[name] for name in FAULTS)

    def seconds_to(self, n_inputs: int) -> float:
        """Return how long so many inputs will take, as far as one knows."""
        return (n_inputs - self.n_inputs) / (self.inputs_per_second or 1e-9)


@functools.cache
def commit() -> str:
    """Return the commit of the code; where nobody knows, nothing."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


# In the child


def work_through(plan: dict[str, Any]) -> None:
    """Read damaged inputs of several readers; say before and after each what happens, in JSON."""
    from fuzz_readers import READERS

    importlib.import_module("fuzz_datasets")
    warnings.simplefilter("ignore")
    told = os.fdopen(os.dup(1), "w")
    ends_at = time.monotonic() + plan["seconds"]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    for place, (name, first) in enumerate(plan["readers"]):
        # What a quick reader leaves of its share of the time goes to those after it.
        share = (ends_at - time.monotonic()) / (len(plan["readers"]) - place)
        numbers, began, n_read = range(first, plan["last"]), time.monotonic(), 0
        for outcome in _outcomes(READERS[name], plan["seed"], numbers, began + share):
            print(json.dumps({"reader": name} | outcome), file=told, flush=True)
            n_read += "outcome" in outcome
        rate = n_read / (time.monotonic() - began)
        print(json.dumps({"reader": name, "is_done": True, "rate": rate}), file=told, flush=True)


def _outcomes(reader: Any, seed: int, numbers: range, ends_at: float) -> Iterator[dict[str, Any]]:
    """Yield the number of an input before it is read, and then what became of it."""
    from fuzz_mutations import mutated

    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast_folder()) as scratch:
        folder, work = Path(scratch) / "in", Path(scratch) / "out"
        for each in (folder, work):
            each.mkdir()
        reader.write(folder)
        contents, everything = [*map(_content, reader.files(folder))], _contents(folder)
        with _in_silence(), contextlib.suppress(EarmarkError):
            reader.read(folder, work)  # the good file; what is loaded late is loaded now
            _restore(folder, everything)
        for number in numbers:
            if time.monotonic() > ends_at:
                return
            rng = np.random.default_rng([seed, zlib.crc32(reader.name.encode()), number])
            path, content = contents[int(rng.integers(len(contents)))]
            damaged = mutated(path.name, content, rng)
            yield {"number": number}
            shutil.rmtree(work)
            work.mkdir()
            path.write_bytes(damaged)
            with _in_silence(), _limited_memory():
                outcome = _judged(reader, folder, work)
            left = _left(folder, work, everything)
            if left and outcome["outcome"] not in FAULTS:
                outcome |= {"outcome": "left", "place": f"left: {left}"}
            path.write_bytes(content)
            _restore(folder, everything)
            yield outcome | {"number": number, "file": path.name, "size": len(damaged)}


def _judged(reader: Any, folder: Path, work: Path) -> dict[str, Any]:
    before, start = _resident(), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # begins to count the peak anew
    signal.setitimer(signal.ITIMER_PROF, SECONDS_ALLOWED)  # ends the process
    signal.alarm(SECONDS_TO_WAIT)
    told: dict[str, Any] = {"outcome": "read"}
    try:
        reader.read(folder, work)
    except EarmarkError as error:
        told = {"outcome": "refused"}
        if isinstance(error.__cause__, MemoryError):
            told = {"outcome": "memory", "place": _place(error.__cause__)}
        elif str(folder) not in str(error) and str(work) not in str(error):
            told = {"outcome": "traceback", "place": f"no file named: {_place(error)}"}
        told["message"] = str(error)[:200]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        outcome = "memory" if isinstance(error, MemoryError) else "traceback"
        told = {"outcome": outcome, "place": _place(error), "message": str(error)[:200]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    told |= {"seconds": time.process_time() - start, "bytes": _peak() - before}
    if told["bytes"] > BYTES_ALLOWED:
        told |= {"outcome": "memory", "place": f"{told['bytes'] / 2**30:.1f} GB"}
    return told


def _place(error: BaseException) -> str:
    """Return the kind of an error and the last line of earmark's that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/earmark/" in frame.filename] or list(frames)
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}" if own else "?"
    return f"{type(error).__name__} at {where}"


def _left(folder: Path, work: Path, everything: dict[Path, bytes]) -> str:
    """Name a file that no reader should leave behind."""
    for path in work.rglob("*"):
        if path.name.endswith((".partial", ".tmp", ".columns")):
            return path.name
    others = ("-wal", "-shm")  # of SQLite: another process may be about to use them
    for path in folder.rglob("*"):
        if path.is_file() and path not in everything and not path.name.endswith(others):
            return str(path.relative_to(folder))
    return ""


def _content(path: Path) -> tuple[Path, bytes]:
    return path, path.read_bytes()


def _contents(folder: Path) -> dict[Path, bytes]:
    return dict(_content(path) for path in folder.rglob("*") if path.is_file())


def _restore(folder: Path, everything: dict[Path, bytes]) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path not in everything:
            path.unlink()
    for path, content in everything.items():
        if not path.exists() or path.stat().st_size != len(content):
            path.write_bytes(content)


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """Send what libraries print of their own, panics included, nowhere."""
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    """Let allocations beyond the limit fail, as they would on a machine that is full."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + BEYOND, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


# In the driver


def fuzz(tallies: dict[str, Tally], n_inputs: int, seconds: float, seed: int = 0) -> Iterator[str]:
    """Hand readers inputs until there were enough or the time is up; yield those that are done.

    One process works through all of them, those first that are known to need least; where it ends,
    another goes on after the fatal input.
    """
    ends_at = time.monotonic() + seconds
    waiting = [name for name, tally in tallies.items() if tally.n_inputs < n_inputs]
    waiting.sort(key=lambda name: tallies[name].seconds_to(n_inputs))
    while waiting:
        plan = {
            "readers": [(name, tallies[name].n_inputs) for name in waiting],
            "last": n_inputs,
            "seed": seed,
            "seconds": ends_at - time.monotonic(),
        }
        for told in _child(plan):
            name = told.pop("reader")
            if "is_done" in told:
                rates = tallies[name].inputs_per_second, round(told["rate"], 1)
                tallies[name].inputs_per_second = max(rates)
                waiting.remove(name)
                yield name
            else:
                tallies[name].add(told)


def _child(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a process says that works through a plan, and how it ended if it did so early."""
    command = [sys.executable, __file__, "--child", json.dumps(plan)]
    alone = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=alone, **pipes) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        told: dict[str, Any] = {}
        for line in child.stdout:
            told = json.loads(line)
            if told.keys() & {"outcome", "is_done"}:
                yield dict(told)
        ended = child.wait()
        if told.keys() == {"reader", "number"}:
            how = signal.Signals(-ended).name if ended < 0 else f"exit {ended}"
            is_hang = how in ("SIGPROF", "SIGALRM")
            yield told | {"outcome": "hang" if is_hang else "killed", "place": how}
        elif ended:
            said = child.stderr.read().decode()[-2_000:]
            raise RuntimeError(f"after {told}: {said}")


def known(out: Path, seed: int) -> dict[str, Tally]:
    """Return what an earlier run counted, to go on from there."""
    found = json.loads(out.read_text()) if out.exists() else {"seed": None}
    if found["seed"] != seed:
        return {}
    tallies = {}
    for name, values in found["readers"].items():
        counts = {key: Counter(values.pop(key)) for key in ("outcomes", "places", "commits")}
        values.pop("n_faults")
        tallies[name] = Tally(**values, **counts)
    return tallies


def kept(tallies: dict[str, Tally], seed: int) -> dict[str, Any]:
    """Return the results as they are written."""
    return {
        "seed": seed,
        "python": platform.python_version(),
        "allowed": {"seconds": SECONDS_ALLOWED, "bytes": BYTES_ALLOWED},
        "n_inputs": sum(one.n_inputs for one in tallies.values()),
        "n_faults": sum(one.n_faults for one in tallies.values()),
        "readers": {name: vars(one) | {"n_faults": one.n_faults} for name, one in tallies.items()},
    }


def shown(tallies: dict[str, Tally]) -> Table:
    """Return the table of all readers."""
    table = Table("reader", "inputs", "read", "refused", *FAULTS, "s at most", "MB at most")
    for name, one in tallies.items():
        counts = [one.outcomes[kind] for kind in ("read", "refused", *FAULTS)]
        most = f"{one.most_seconds:.2f}", f"{one.most_bytes / 2**20:,.0f}"
        table.add_row(name, f"{one.n_inputs:,}", *(f"{n:,}" if n else "-" for n in counts), *most)
    return table


def available(only: list[str]) -> list[str]:
    """Return the readers whose libraries are installed, or those of them that are asked for."""
    from fuzz_readers import READERS

    importlib.import_module("fuzz_datasets")
    there = [
        name
        for name, one in READERS.items()
        if all(importlib.util.find_spec(library) is not None for library in one.needs)
    ]
    return [name for name in there if not only or any(part in name for part in only)]


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        work_through(json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000, help="for each reader")
    parser.add_argument("--seconds", type=float, default=7_200, help="for all of them")
    parser.add_argument("--only", nargs="*", default=[], help="parts of readers' names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--anew", action="store_true", help="forget what was counted before")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/fuzz.json"))
    options = parser.parse_args()
    tallies = {} if options.anew else known(options.out, options.seed)
    chosen = {
        name: tallies.setdefault(name, Tally(options.first)) for name in available(options.only)
    }
    for name in fuzz(chosen, options.inputs, options.seconds, options.seed):
        write_json(options.out, kept(tallies, options.seed))
        counts = tallies[name].outcomes
        told = {kind: counts[kind] for kind in FAULTS if counts[kind]}
        print(f"{name}: {tallies[name].n_inputs:,} inputs, {told or 'no fault'}", flush=True)
    Console(width=130).print(shown(tallies))
    for name, one in tallies.items():
        for fault in one.faults:
            print(name, fault)
    n_inputs, n_faults = (kept(tallies, 0)[key] for key in ("n_inputs", "n_faults"))
    print(f"{n_inputs:,} damaged inputs, {n_faults:,} faults")
    sys.exit(1 if n_faults else 0)


if __name__ == "__main__":
    main()
