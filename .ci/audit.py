"""Ask PyPI which of the pinned versions have known vulnerabilities: ``python .ci/audit.py``.

PyPI answers for every version with what the advisory database says of it. Ends with 1 where
something is known. Where the index does not tell (a mirror, no network), it says so and ends with
0: what cannot be asked is no failure.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
ADDRESS = "https://pypi.org/pypi/{}/{}/json"
SECONDS = 20

Pin = tuple[str, str]
Ask = Callable[[Pin], list[dict[str, Any]] | None]


def pins(text: str) -> list[Pin]:
    """Return the names and versions of a file of constraints."""
    return re.findall(r"^([\w.-]+)==([\w.+!-]+)", text, re.MULTILINE)


def ask(pin: Pin) -> list[dict[str, Any]] | None:
    """Return what is known against a version; None where nobody can be asked."""
    try:
        with urllib.request.urlopen(ADDRESS.format(*pin), timeout=SECONDS) as answer:
            found = json.load(answer)
    except (OSError, ValueError):  # no network, no such page, no JSON
        return None
    known: list[dict[str, Any]] = found.get("vulnerabilities", [])
    return [one for one in known if not one.get("withdrawn")]


def audit(wanted: Sequence[Pin], ask_one: Ask = ask) -> int:
    """Say what is known against some versions; return the exit code."""
    if not wanted or ask_one(wanted[0]) is None:
        print("audit: skipped, because PyPI's JSON cannot be reached from here")
        return 0
    with ThreadPoolExecutor(8) as threads:
        answers = dict(zip(wanted, threads.map(ask_one, wanted), strict=True))
    unasked = [name for (name, _), found in answers.items() if found is None]
    known = {pin: found for pin, found in answers.items() if found}
    for (name, version), found in known.items():
        for one in found:
            fixed = ", ".join(one.get("fixed_in") or []) or "no version"
            print(f"{name} {version}: {one['id']}, mended in {fixed}: {one.get('link', '')}")
    print(f"audit: {len(answers) - len(unasked)} versions asked about, {len(known)} vulnerable")
    if unasked:
        print(f"audit: nothing was said of {len(unasked)}: {', '.join(unasked[:10])}")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(audit(pins(CONSTRAINTS.read_text(encoding="utf-8"))))
