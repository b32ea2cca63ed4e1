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

CORE_ROOMS = {"compute", "config", "flags", "labels", "metrics", "native", "scores", "storage"}
"""Packages that need no extra, and neither do their tests."""

NEEDS_MORE = {
    "compute/test_ray.py",
    "storage/test_audio_access.py",
    "storage/test_claims.py",  # a table by pyarrow
}
"""Tests in these packages of what only extras can do."""

CORE_IS_ENOUGH = {
    "cli/test_checks.py",
    "cli/test_commands.py",
    "cli/test_core_alone.py",
    "cli/test_imports.py",
    "cli/test_raters.py",
    "cli/test_short_output.py",
    "pipeline/test_adversarial.py",
    "pipeline/test_check.py",
    "pipeline/test_dataset_checks.py",
    "pipeline/test_demo.py",
    "pipeline/test_health.py",
    "pipeline/test_opening.py",
    "pipeline/test_scan_inputs.py",
    "review/test_answers.py",
    "review/test_cells.py",
    "review/test_estimates.py",
    "review/test_judgements.py",
    "review/test_precision.py",
    "review/test_queue.py",
    "review/test_random_queue.py",
    "review/test_raters.py",
    "review/test_relabel.py",
    "test_errors.py",
    "test_memory.py",
    "test_public.py",
    "test_supply_chain.py",
    "test_text.py",
}
"""Tests of other packages that need no extra."""


def is_installed(library: str) -> bool:
    return find_spec(library) is not None


def needs_core_alone(path: Path) -> bool:
    """Tell whether `make test-core` runs a file of tests, with no extra installed."""
    parts = path.relative_to(TESTS).parts
    name = "/".join(parts)
    return name in CORE_IS_ENOUGH or (parts[0] in CORE_ROOMS and name not in NEEDS_MORE)


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
