"""The short form of ``benchmarks/torture.py``: stages that need the core alone, and a few kills."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT

STAGES = "embeddings,own scores,flag,export"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes by /proc")
def test_killed_stages_end_as_if_nothing_had_been(tmp_path: Path) -> None:
    options = ["--stages", STAGES, "--disturbances", "6", "--minutes", "5"]
    command = [sys.executable, str(ROOT / "benchmarks" / "torture.py"), *options]
    done = subprocess.run(
        [*command, "--faults", "SIGKILL,full disk"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 trials went wrong" in done.stdout
    assert list(tmp_path.iterdir()) == []
