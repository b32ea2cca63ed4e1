"""What a benchmark ran on."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def processor_name() -> str:
    """Return the processor's name, which Python does not know on Linux."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def chromium_path() -> str:
    """Return where a Chromium is installed."""
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        raise SystemExit(f"none of {', '.join(CHROMIUMS)} is installed: pages are opened in one")
    return path
