"""Two listening pages of one workspace under attack, while raters answer through both.

Starts two real servers on one workspace, sends answers to both from four connections at once and,
meanwhile, every attack of ``tests/named_attacks.py`` to each, again and again. Counts who got in,
which answers were lost, and what the servers wrote into their logs. Prints a table and writes
``results/attacks.json``; a few minutes.

    python benchmarks/attacks.py [--answers 10000]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the table of attacks is a test's

from named_attacks import ATTACKS, CLOSED, Target
from served_reviews import answers, make_workspace, running, taught

RESULTS = Path(__file__).parent / "results" / "attacks.json"


def attack(targets: list[Target], is_over: threading.Event) -> tuple[int, list[str]]:
    """Attack until it is over, everything at least once; return how often, and what got in."""
    n_sent, got_in = 0, []
    while n_sent < len(ATTACKS) * len(targets) or not is_over.is_set():
        for name, send in ATTACKS.items():
            for target in targets:
                status = send(target).status
                n_sent += 1
                if status != CLOSED and not 400 <= status < 500:
                    got_in.append(f"{name}: {status}")
    return n_sent, got_in


def measure(n_answers: int) -> dict[str, object]:
    """Return what became of answers and attacks."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "work"
        make_workspace(root)
        with (
            running(root, Path(scratch) / "first") as first,
            running(root, Path(scratch) / "second") as second,
            ThreadPoolExecutor(5) as threads,
        ):
            known = taught(first.target)
            other = replace(known, port=second.target.port, tokens=second.target.tokens)
            targets, is_over = [known, other], threading.Event()
            before = answers(root)
            attacked = threads.submit(attack, targets, is_over)
            sent = [(targets[number % 2], known.said()) for number in range(n_answers)]
            start = time.perf_counter()
            done = list(threads.map(lambda one: one[0].post(one[1]).status, sent))
            seconds = time.perf_counter() - start
            is_over.set()
            n_attacks, got_in = attacked.result()
            logs = first.log.read_text() + second.log.read_text()
        kept = answers(root) - before
    told = {str(one["id"]) for (_, one), status in zip(sent, done, strict=True) if status == 201}
    return {
        "answers": n_answers,
        "acknowledged": len(told),
        "lost": len(told - kept),
        "not_sent_by_us": len(kept - {str(one["id"]) for _, one in sent}),
        "attacks": n_attacks,
        "got_in": got_in,
        "tracebacks": logs.count("Traceback"),
        "tokens_in_logs": sum(logs.count(one) for at in targets for one in at.tokens.values()),
        "milliseconds_an_answer": round(1_000 * seconds / n_answers, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=10_000)
    found = measure(parser.parse_args().answers)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    for name, value in found.items():
        print(f"{name.replace('_', ' '):<24}{len(value) if isinstance(value, list) else value:>12}")


if __name__ == "__main__":
    main()
