"""The optional libraries: what each extra brings, and Pythons in which they are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from earmark.errors import EXTRAS

TESTS = Path(__file__).parent

LIBRARIES = {
    extra: {library for library, its_extra in EXTRAS.items() if its_extra == extra}
    for extra in EXTRAS.values()
}
"""Names to import, by the extra that brings them."""

OPTIONAL = set(EXTRAS)

EXTRAS_OF_ROOMS: dict[str, set[str]] = {
    "compute": set(),
    "config": set(),
    "storage": set(),
    "labels": set(),
    "scores": set(),
    "metrics": set(),
    "flags": set(),
    "audio": {"audio"},
    "datasets": {"audio"},
}
"""Rooms whose tests all run as soon as these extras are installed, if any."""

NEEDS_MORE = {
    "storage/test_claims.py",  # a table by pyarrow
    "flags/test_ppi.py",  # the reference of totals
    "compute/test_ray.py",
    "compute/test_ray_training.py",
    "storage/test_audio_access.py",
    "audio/test_front_end.py",  # the same front end as a torch module
    "audio/test_pictures.py",
    "datasets/test_hub_library.py",
    "datasets/test_hugging_face.py",  # a file that pyarrow would not survive
}
"""Tests in these rooms of what only other extras can do."""

CORE_IS_ENOUGH = {
    "cli/test_checks.py",
    "cli/test_core_alone.py",  # and the extra `audio`, with which it runs once more
    "cli/test_raters.py",
    "cli/test_short_output.py",
    "review/test_answers.py",
    "review/test_estimates.py",
    "review/test_precision.py",
    "review/test_judgements.py",
    "review/test_queue.py",
    "review/test_random_queue.py",
    "review/test_raters.py",
    "review/test_relabel.py",
    "review/test_cells.py",
    "pipeline/test_adversarial.py",
    "pipeline/test_demo.py",
    "pipeline/test_health.py",
    "pipeline/test_scan_inputs.py",
    "test_supply_chain.py",
}
"""Tests in other rooms that take long, and find the same whatever else is installed."""


def is_installed(library: str) -> bool:
    return find_spec(library) is not None


def must_run(path: Path) -> bool:
    """Say whether a file of tests has to run here: no missing library is a reason to skip it."""
    parts = path.relative_to(TESTS).parts
    name = "/".join(parts)
    extras = set() if name in CORE_IS_ENOUGH else EXTRAS_OF_ROOMS.get(parts[0])
    if extras is None or name in NEEDS_MORE:
        return False
    return all(map(is_installed, set().union(*(LIBRARIES[extra] for extra in extras))))


def missing_library(error: BaseException | None) -> str | None:
    """Return the optional library that is not installed here and whose want led to an error."""
    while error is not None:
        library = (getattr(error, "name", None) or "").partition(".")[0]
        is_import = isinstance(error, ModuleNotFoundError)
        if is_import and library in OPTIONAL and not is_installed(library):
            return library
        error = error.__cause__ or error.__context__
    return None


def run_without(
    libraries: Iterable[str], arguments: list[str], folder: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments, and with libraries that it cannot find."""
    paths = [str(TESTS / "hiding"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "HIDDEN_LIBRARIES": " ".join(sorted(libraries)),
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
