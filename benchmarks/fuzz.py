"""Damaged files by the thousand for readers of files: what Earmark does when it is handed them.

    python benchmarks/fuzz.py                        # 1,000 inputs for each reader
    python benchmarks/fuzz.py --inputs 200 --only labels

A good file is damaged (its bytes, or what they mean, packed again) and read in a process that works
through many inputs. A reader may read it or refuse it by an ``EarmarkError`` that names the file.
These count as faults:

- traceback: any other exception, or a refusal without the file's name
- killed: the process ended (a crash, an abort)
- hang: more than 10 s of the processor's time, or a minute of waiting
- memory: more than 1 GB, or an error for want of memory
- left: a half-written file in the folder that the reader was to write to, or beside the input

Prints a table; the exit status is 1 if there was a fault. An input is a function of reader, seed
and number: ``--only NAME --first N --inputs 1`` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark import audio, config, datasets, labels, pipeline, review
from earmark.config import shipped_recipes
from earmark.errors import EarmarkError
from earmark.scores import open_score_file

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # some good files are those of the tests

SECONDS_ALLOWED, SECONDS_TO_WAIT = 10, 60  # of the processor's time; of waiting
BYTES_ALLOWED, BYTES_BEYOND = 2**30, 3 * 2**30  # resident; address space, then allocations fail
MOST_BYTES = 900_000  # of an input
FAULTS = ("traceback", "killed", "hang", "memory", "left")
CLIPS, CLASSES = [f"clip{i}" for i in range(12)], ["dog", "cat", "rain"]

Rng = np.random.Generator
Mutation = Callable[[bytes, Rng], bytes]
Outcome = dict[str, Any]

# How files are damaged

EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
ODD_TEXTS = (
    "", "\0", "../../outside", "/etc/passwd", "a" * 5_000, "9" * 5_000, "[/i]", "NaN", "-inf",
    "1e999", "\u202e", "𝕏", "%s%n", "=1+1", '"', "{}", "null", "1_000", "a\nb", "\ufeff", " ", "..",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 0.5, float("nan"), float("inf"), 1e308, 2**31, 2**64, 10**400, -(2**63), [],
    {}, [[]], [None], {"a": None}, [1, "a"], "\ud800", *ODD_TEXTS,
)  # fmt: skip
BOMBS = (
    b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5_000, b",", b"\t" * 5_000, b'"', b'"\\ud800"',
    b"\xed\xa0\x80", b"\n" * 1_000, b"\r", b"\0", b"a" * 100_000, b"1e999", b"\xff\xfe",
)  # fmt: skip


def pick(rng: Rng, choices: Sequence[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def offset(content: bytes, rng: Rng) -> int:
    """Return an offset; headers and footers, where counts and lengths are, come up more often."""
    n_bytes = max(len(content), 1)
    kind, near = rng.random(), int(rng.integers(min(n_bytes, 256)))
    return near if kind < 0.25 else n_bytes - 1 - near if kind < 0.5 else int(rng.integers(n_bytes))


def flip_bits(content: bytes, rng: Rng) -> bytes:
    damaged = bytearray(content)
    for _ in range(pick(rng, (1, 1, 2, 8, 64)) if damaged else 0):
        damaged[offset(content, rng)] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def cut(content: bytes, rng: Rng) -> bytes:
    start = offset(content, rng)
    return content[:start] + content[start + pick(rng, (1, 8, 64, MOST_BYTES)) :]


def overwrite_number(content: bytes, rng: Rng) -> bytes:
    """Put a number at the edge of its range where there may be a count, a length or an offset."""
    kind = pick(rng, ("<B", "<H", "<I", "<Q", ">H", ">I", ">Q"))
    size, start = struct.calcsize(kind), offset(content, rng)
    number = struct.pack(kind, pick(rng, EDGES) % 2 ** (8 * size))
    return content[:start] + number + content[start + size :]


def insert_bomb(content: bytes, rng: Rng) -> bytes:
    start = offset(content, rng)
    bomb: bytes = pick(rng, BOMBS)
    return content[:start] + bomb + content[start + int(pick(rng, (0, 0, 1, 8))) :]


def odd_text(content: bytes, rng: Rng) -> bytes:
    """Replace a word or a number of a text by an odd one."""
    words = list(re.finditer(rb"[\w.+-]+", content))
    word = pick(rng, words)
    new: str = pick(rng, ODD_TEXTS)
    return content[: word.start()] + new.encode() + content[word.end() :]


def odd_json(content: bytes, rng: Rng) -> bytes:
    """Replace one value of a JSON text, at any depth, by an odd one."""
    whole: dict[Any, Any] = {0: json.loads(content)}
    parent: Any = whole
    key: Any = 0
    while isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.85:
        parent = parent[key]
        key = pick(rng, list(parent) if isinstance(parent, dict) else range(len(parent)))
    parent[key] = pick(rng, ODD_VALUES)
    return json.dumps(whole[0], ensure_ascii=False).encode("utf-8", "surrogatepass")


def odd_parquet(content: bytes, rng: Rng) -> bytes:
    """Give one column of a table another type, other values or another name, or drop it."""
    rows = pl.read_parquet(io.BytesIO(content))
    name, n = str(pick(rng, rows.columns)), rows.height
    columns = (
        pl.lit(None), pl.lit(pick(rng, ODD_TEXTS)), pl.lit(-1), pl.lit(2**63 - 1),
        pl.lit(float("nan")), pl.lit(value=True), pl.lit(b"\xff"), pl.lit(0).cast(pl.Datetime),
        pl.Series([[[1.0]]] * n), pl.Series([{"a": 1}] * n), pl.Series([["a"]] * n),
    )  # fmt: skip
    tables = (rows.clear(), rows.head(1), rows.drop(name), pl.concat([rows, rows]))
    renamed = rows.rename({name: "odd" + pick(rng, ODD_TEXTS)})
    cells = rows.with_columns(pick(rng, columns).alias(name))
    file = io.BytesIO()
    pick(rng, (*tables, renamed, *[cells] * 5)).write_parquet(file)
    return file.getvalue()


def odd_npy(content: bytes, rng: Rng) -> bytes:
    """Claim another shape, type or order than the array has."""
    shapes = (
        "(-1, 3)", "(0, 3)", "(4, 3)", "(1000000000000, 3)", "()", "(2, 2, 2)", "('a',)", "None",
        "(9223372036854775807, 9)", "(True, 3)", "[3, 4]", "(" * 500, "(400000000, 1)",
    )  # fmt: skip
    types = ("<f4", "<f8", "|O", "<U5", "|S5", "<M8[s]", "x", "|b1", "<c16", "|V4", "<f2", "|u1")
    order = pick(rng, ("False", "True", "0", "None"))
    header = f"{{'descr': '{pick(rng, types)}', 'fortran_order': {order}, 'shape': "
    header = pick(rng, (*[header + pick(rng, shapes) + ", }"] * 8, "{", "[" * 200, "None", "{}"))
    body: bytes = header.encode() + b"\n"
    version = int(pick(rng, (1, 1, 1, 2, 9)))
    length = struct.pack("<H" if version == 1 else "<I", len(body))
    return b"\x93NUMPY" + bytes([version, 0]) + length + body + content[128:]


def odd_zip(content: bytes, rng: Rng) -> bytes:
    """Make a member of an archive odd and zip it again, so that its checksum is right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = pick(rng, list(members))
    odd = pick(rng, (*ANY, odd_npy, odd_npy, odd_npy, odd_npy))(members.pop(name), rng)
    members[pick(rng, (*[name] * 8, "../a.npy", "é.npy"))] = odd
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for member, inside in members.items():
            archive.writestr(member, inside)
    return file.getvalue()


ANY: tuple[Mutation, ...] = (flip_bits, flip_bits, cut, overwrite_number, insert_bomb)
BY_ENDING: dict[str, tuple[Mutation, ...]] = {
    "csv": (odd_text,) * 4, "toml": (odd_text,) * 4, "json": (odd_json,) * 6,
    "parquet": (odd_parquet,) * 6, "npy": (odd_npy,) * 6, "npz": (odd_zip,) * 6,
}  # fmt: skip


def damage(name: str, content: bytes, rng: Rng) -> bytes:
    """Return the damaged content of a file, by a mutation that fits the ending of its name."""
    mutation = pick(rng, (*ANY, *BY_ENDING.get(name.rpartition(".")[2], ())))
    damaged: bytes = mutation(content, rng)[:MOST_BYTES]
    return damaged


# Reading, in a process of its own


def work_through(name: str, numbers: range, seed: int, parent: Connection) -> None:
    """Send the number of each input of a reader before it is read, and its outcome after."""
    warnings.simplefilter("ignore")
    for stream in (1, 2):  # what libraries print, panics included
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    for outcome in read_inputs(name, numbers, seed):
        parent.send(outcome)
    parent.close()


def read_inputs(name: str, numbers: range, seed: int) -> Iterator[Outcome]:
    """Yield the number of an input before it is read, and then its outcome."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as scratch:
        reader, folder, out = READERS[name], Path(scratch, "in"), Path(scratch, "out")
        folder.mkdir()
        out.mkdir()
        reader.write(folder)
        good = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        targets = sorted(path for path in good if any(path.match(t) for t in reader.targets))
        with contextlib.suppress(EarmarkError):
            reader.read(folder, out)  # what is loaded late is loaded now
        for number in numbers:
            rng = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
            path = pick(rng, targets)
            yield {"number": number}
            shutil.rmtree(out)
            out.mkdir()
            path.write_bytes(damage(path.name, good[path], rng))
            outcome = judge(reader.read, folder, out)
            if (leftover := find_leftover(folder, out, good)) and outcome["outcome"] not in FAULTS:
                outcome = {"outcome": "left", "where": leftover}
            for other in [each for each in folder.rglob("*") if each.is_file()]:
                if other not in good:
                    other.unlink()
            for other, content in good.items():
                other.write_bytes(content)
            yield outcome | {"number": number, "file": path.name}


def judge(read: Callable[[Path, Path], object], folder: Path, out: Path) -> Outcome:
    """Read an input under the limits; return what became of it."""
    page = resource.getpagesize()
    mapped, resident = (int(n) * page for n in Path("/proc/self/statm").read_text().split()[:2])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + BYTES_BEYOND, before[1]))
    Path("/proc/self/clear_refs").write_text("5")  # begins to count the peak anew
    signal.setitimer(signal.ITIMER_PROF, SECONDS_ALLOWED)  # ends the process
    signal.alarm(SECONDS_TO_WAIT)
    outcome = {"outcome": "read"}
    try:
        read(folder, out)
    except EarmarkError as error:
        outcome = {"outcome": "refused"}
        if isinstance(error.__cause__, MemoryError):
            outcome = {"outcome": "memory", "where": line_of(error.__cause__)}
        elif str(folder) not in str(error) and str(out) not in str(error):
            outcome = {"outcome": "traceback", "where": f"no file named: {str(error)[:200]}"}
    except MemoryError as error:
        outcome = {"outcome": "memory", "where": line_of(error)}
    except BaseException as error:  # a panic of Rust's is no Exception
        outcome = {"outcome": "traceback", "where": line_of(error)}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, before)
    status = Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]
    if peak - resident > BYTES_ALLOWED:
        outcome = {"outcome": "memory", "where": f"{(peak - resident) / 2**30:.1f} GB"}
    return outcome


def line_of(error: BaseException) -> str:
    """Return the kind of an error and the last line of Earmark's that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/earmark/" in frame.filename] or list(frames)
    return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"


def find_leftover(folder: Path, out: Path, good: dict[Path, bytes]) -> str:
    """Name a file that no reader should leave behind, if there is one."""
    unfinished = [one for one in out.rglob("*") if one.name.endswith((".partial", ".tmp"))]
    added = [one for one in folder.rglob("*") if one.is_file() and one not in good]
    added = [one for one in added if not one.name.endswith(("-wal", "-shm"))]  # SQLite's own
    return next((one.name for one in [*unfinished, *added]), "")


def fuzz(name: str, n_inputs: int, first: int = 0, seed: int = 0) -> list[Outcome]:
    """Hand a reader inputs; where one ends the process, another process goes on after it."""
    outcomes: list[Outcome] = []
    spawn = multiprocessing.get_context("spawn")
    while len(outcomes) < n_inputs:
        numbers = range(first + len(outcomes), first + n_inputs)
        here, there = spawn.Pipe(duplex=False)
        child = spawn.Process(target=work_through, args=(name, numbers, seed, there))
        child.start()
        there.close()
        last: Outcome = {}
        with contextlib.suppress(EOFError):
            while True:
                last = here.recv()
                outcomes += [last] if "outcome" in last else []
        child.join()
        if "number" in last and "outcome" not in last:
            how = signal.Signals(-(child.exitcode or 0)).name
            is_hang = how in ("SIGPROF", "SIGALRM")
            outcomes.append(last | {"outcome": "hang" if is_hang else "killed", "where": how})
        elif child.exitcode:
            raise SystemExit(f"{name}: the process ended with {child.exitcode} after {last}")
    return outcomes


# Readers


@dataclass(frozen=True)
class Reader:
    """A reader of files: ``write`` makes good ones, ``read`` reads them all into a new folder."""

    write: Callable[[Path], object]
    read: Callable[[Path, Path], object]
    targets: tuple[str, ...] = ("*",)
    needs: tuple[str, ...] = ()


def states() -> NDArray[np.int8]:
    return np.random.default_rng(0).integers(-1, 2, (12, 3)).astype(np.int8)


def scores() -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(0, 2, (12, 3)).astype(np.float32)


def label_rows() -> pl.DataFrame:
    rows, columns = np.nonzero(states())
    present = states()[rows, columns] > 0
    names = {"clip_id": [CLIPS[row] for row in rows], "class_id": [CLASSES[c] for c in columns]}
    return pl.DataFrame({**names, "present": present})


def score_rows() -> pl.DataFrame:
    columns = dict(zip(CLASSES, scores().T.tolist(), strict=True))
    return pl.DataFrame({"clip_id": CLIPS, **columns})


def write_workspace(folder: Path) -> None:
    from told_workspace import told_workspace

    workspace, _ = told_workspace(folder)
    pipeline.write_flags(workspace)
    pipeline.draw_queue(workspace)


def read_workspace(folder: Path, out: Path) -> None:
    workspace = datasets.Workspace.open(folder)
    _ = workspace.clips, workspace.ontology, workspace.labels, workspace.truth
    datasets.find_stale(workspace)
    review.read_queue(workspace)
    audio.FrameStore.open(workspace.frames_folder).frames(0).sum()
    pipeline.export_labels(folder, out / "labels.csv")


def write_answers(folder: Path) -> None:
    from reviews import judgement

    with review.JudgementStore(folder / "j.sqlite") as store:
        store.add_all([judgement(number) for number in range(30)])


def read_answers(folder: Path, _out: Path) -> None:
    with review.JudgementStore(folder / "j.sqlite", must_exist=True) as store:
        store.rows()


def write_table(folder: Path) -> None:
    label_rows().write_csv(folder / "labels.csv")
    pl.DataFrame({"clip_id": CLIPS, "split": ["train"] * 12}).write_csv(folder / "clips.csv")
    np.save(folder / "e.npy", np.random.default_rng(0).random((12, 4, 8)).astype(np.float32))


def read_table(folder: Path, out: Path) -> None:
    tables = (folder / "clips.csv", folder / "labels.csv")
    datasets.import_table(*tables, out / "w", embeddings=folder / "e.npy")


def write_samples(folder: Path) -> None:
    with tarfile.open(folder / "x.tar", "w") as tar:
        for name in CLIPS[:4]:
            said = json.dumps({"labels": ["dog"], "split": "train"}).encode()
            for member, inside in {"flac": b"fLaC" + bytes(100), "json": said}.items():
                info = tarfile.TarInfo(f"{name}.{member}")
                info.size = len(inside)
                tar.addfile(info, io.BytesIO(inside))


def write_sound(kind: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        import soundfile

        soundfile.write(folder / f"a.{kind}", np.sin(np.arange(2_000) / 5) / 3, 16_000)

    return write


def read_labels(folder: Path, _out: Path) -> None:
    labels.read_label_file(next(folder.iterdir()))


def read_scores(folder: Path, out: Path) -> None:
    open_score_file(next(folder.iterdir())).write_npy(out / "scores.npy")


NAMES: dict[str, Any] = {"clip_ids": np.array(CLIPS), "class_ids": np.array(CLASSES)}
WORKSPACE = ("*.parquet", "*.json", "flags/*", "review/*", "frames/*")
SOUND = ("soundfile", "av")
READERS = {
    "labels CSV": Reader(lambda f: label_rows().write_csv(f / "l.csv"), read_labels),
    "labels Parquet": Reader(lambda f: label_rows().write_parquet(f / "l.parquet"), read_labels),
    "labels npy": Reader(lambda f: np.save(f / "l.npy", states()), read_labels),
    "labels npz": Reader(lambda f: np.savez(f / "l.npz", labels=states(), **NAMES), read_labels),
    "scores CSV": Reader(lambda f: score_rows().write_csv(f / "s.csv"), read_scores),
    "scores Parquet": Reader(lambda f: score_rows().write_parquet(f / "s.parquet"), read_scores),
    "scores npy": Reader(lambda f: np.save(f / "s.npy", scores()), read_scores),
    "scores npz": Reader(lambda f: np.savez(f / "s.npz", scores=scores(), **NAMES), read_scores),
    "recipe": Reader(
        lambda f: (f / "r.toml").write_bytes(shipped_recipes()["scenes"].read_bytes()),
        lambda f, _: config.find_recipe(str(f / "r.toml")).digest(),
    ),
    "workspace": Reader(write_workspace, read_workspace, WORKSPACE),
    "answers": Reader(write_answers, read_answers),
    "tables": Reader(write_table, read_table),
    "WebDataset": Reader(
        write_samples, lambda f, out: datasets.import_webdataset([str(f / "x.tar")], out / "w")
    ),
    **{
        f"sound {kind}": Reader(
            write_sound(kind),
            lambda f, _: audio.read_clip(next(f.iterdir()), 16_000),
            needs=SOUND,
        )
        for kind in ("wav", "flac", "ogg", "mp3")
    },
}


def available() -> list[str]:
    """Return the readers whose libraries are installed."""
    has = importlib.util.find_spec
    return [name for name, reader in READERS.items() if all(has(one) for one in reader.needs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000, help="for each reader")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers with this in their name")
    parser.add_argument("--quick", action="store_true", help="20 inputs for each reader")
    options = parser.parse_args()
    n_faults = 0
    for name in [name for name in available() if options.only in name]:
        n_inputs = 20 if options.quick else options.inputs
        outcomes = fuzz(name, n_inputs, options.first, options.seed)
        counts = Counter(outcome["outcome"] for outcome in outcomes)
        print(f"{name:16}", ", ".join(f"{n:,} {kind}" for kind, n in counts.items()), flush=True)
        faults = [outcome for outcome in outcomes if outcome["outcome"] in FAULTS]
        print(*faults, sep="\n", end="\n" if faults else "")
        n_faults += len(faults)
    print(f"{n_faults} faults (limit 0)")
    sys.exit(n_faults > 0)


if __name__ == "__main__":
    main()
