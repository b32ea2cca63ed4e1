"""Two verbs at once in one workspace: every pair of those that write, as real processes.

A tiny workspace is brought to its export (``torture.py``); then two verbs, or one twice, are
started a random moment apart. Either may be refused, in one line that says who writes; it is then
run again. At the end every file has to be what it is when the two run one after the other, in that
order, byte for byte, and no lock and nothing unfinished may be left.

Prints a table and writes ``results/pairs.json``.

    python benchmarks/pairs.py [--rounds 5] [--minutes 20] [--out FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from torture import (
    HERE,
    LIGHT,
    STAGES,
    Torture,
    _be_a_verb,
    commit,
    copy_tree,
    differences,
    import_all,
    run_verb,
)

VERBS = {
    "import": STAGES["embeddings"].replace("labels.csv", "other.csv") + " --replace",
    "score": STAGES["own scores"].replace("scores.npy", "other.npy"),
    "flag": "flag V --discard-percent 2",
    "queue": "queue V --aim measure --seed 1",
    "precision": "precision V",
    "relabel": "relabel V",
    "raters": "raters V",
}
"""Other tables and options than those that made the workspace, so that there is work to do."""

REFUSED = "is writing here; wait for it, or stop it first"


def write_others(place: Path) -> None:
    """Write other labels and scores than those that the workspace was made of."""
    import numpy as np

    lines = (place / "labels.csv").read_text().splitlines()
    (place / "other.csv").write_text("\n".join(lines[:-40]))
    scores = np.load(place / "scores.npy")
    np.save(place / "other.npy", scores[::-1] * np.float32(0.5) + scores)


def in_order(torture: Torture, before: Path, names: tuple[str, str]) -> Path:
    """Return the state that two verbs leave, one after the other; it is made once."""
    kept = torture.folder / "-".join(names)
    if not kept.exists():
        copy_tree(before, torture.place)
        for name in names:
            run_verb(torture.place, VERBS[name].split())
        copy_tree(torture.place, kept)
    return kept


def at_once(place: Path, names: tuple[str, str], apart_seconds: float) -> list[tuple[int, str]]:
    """Start two verbs, the second so much later; return how each ended and what it told."""
    started = []
    for number, name in enumerate(names):
        told = place.parent / f"told-{number}.txt"
        process = os.fork()
        if process == 0:
            _be_a_verb(place, VERBS[name].split(), told, {}, None)
        started.append((process, told))
        time.sleep(apart_seconds if number == 0 else 0)
    ended = {}
    for process, told in started:
        status = os.waitpid(process, 0)[1]
        ended[process] = os.waitstatus_to_exitcode(status), told.read_text(errors="replace")
    return [ended[process] for process, _ in started]


def tried(torture: Torture, before: Path, names: tuple[str, str], apart: float) -> dict[str, Any]:
    """Try a pair once; say what is wrong then."""
    copy_tree(before, torture.place)
    ended = at_once(torture.place, names, apart)
    refused = [REFUSED in " ".join(told.split()) for _, told in ended]
    wrong = [f"a traceback: {told[-1500:]}" for _, told in ended if "Traceback" in told]
    orders = [names, names[::-1]]
    if any(refused):
        last = refused.index(True)
        orders = [(names[1 - last], names[last])]
        run_verb(torture.place, VERBS[names[last]].split())
    left = torture.folder / "left"
    copy_tree(torture.place, left)
    found = [differences(in_order(torture, before, order), left) for order in set(orders)]
    if all(refused) or not any(one == [] for one in found):
        wrong += min(found, key=len)[:5] or ["both were refused"]
    told = {"pair": " + ".join(names), "codes": [code for code, _ in ended]}
    return {**told, "refused": sum(refused), "wrong": wrong}


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "pairs.json")
    return parser.parse_args()


def summed(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is published."""
    pairs = Counter(one["pair"] for one in trials)
    return {
        "commit": commit(),
        "pairs": len(pairs),
        "trials": len(trials),
        "refused": sum(one["refused"] for one in trials),
        "wrong": sum(bool(one["wrong"]) for one in trials),
        "verbs": VERBS,
        "by_pair": dict(pairs),
        "each": trials,
    }


def main() -> None:
    """Try all pairs, round after round, and publish what came of it."""
    began, options = time.monotonic(), asked()
    folder = Path(tempfile.mkdtemp(prefix="pairs-", dir="/dev/shm")).resolve()
    trials: list[dict[str, Any]] = []
    try:
        import_all(list(LIGHT))
        torture = Torture(folder, list(LIGHT), random.Random(0), {})
        torture.prepare()
        write_others(torture.place)
        before = folder / "before"
        copy_tree(torture.place, before)
        pairs = list(itertools.combinations_with_replacement(VERBS, 2))
        for _, names in itertools.product(range(options.rounds), pairs):
            if time.monotonic() - began > 60 * options.minutes:
                break
            apart = torture.randomly.uniform(0, 0.4)
            trials.append(tried(torture, before, names, apart))
            told = "; ".join(trials[-1]["wrong"])[:300] or "well"
            print(f"{trials[-1]['pair']}: {trials[-1]['codes']}: {told}", flush=True)
            options.out.write_text(json.dumps(summed(trials), indent=1) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    told = summed(trials)
    print(f"{told['trials']} trials of {told['pairs']} pairs, {told['refused']} times refused, "
          f"{told['wrong']} went wrong")  # fmt: skip
    sys.exit(told["wrong"] > 0)


if __name__ == "__main__":
    main()
