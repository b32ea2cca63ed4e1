"""The optional libraries: what each extra brings, and Pythons in which they are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).parent

LIBRARIES = {
    "audio": {"soundfile", "soxr", "av"},
    "train": {"torch", "safetensors", "tensorboard"},
    "report": {"matplotlib", "PIL"},
    "onnx": {"onnx", "onnxruntime", "onnxscript"},
    "review": {"starlette", "uvicorn"},
    "cluster": {"ray", "fsspec", "s3fs"},
}
"""Names to import, by the extra that brings them."""

OPTIONAL = set().union(*LIBRARIES.values())


def is_installed(library: str) -> bool:
    return find_spec(library) is not None


def run_without(
    libraries: Iterable[str], arguments: list[str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments, and with libraries that it cannot find."""
    paths = [str(TESTS / "hiding"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "HIDDEN_LIBRARIES": " ".join(sorted(libraries)),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
