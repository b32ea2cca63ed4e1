"""What a benchmark ran on."""

from __future__ import annotations

import platform
from pathlib import Path


def processor_name() -> str:
    """Return the processor's name, which Python does not know on Linux."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
