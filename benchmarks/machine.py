"""What a benchmark ran on, and where its results are written."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def processor_name() -> str:
    """Return the processor's name, which Python does not know on Linux."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write results as JSON, after the processor and how busy the machine is."""
    facts = {"processor": processor_name(), "load_average": round(os.getloadavg()[0], 1)}
    path.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    print(f"wrote {path}")
