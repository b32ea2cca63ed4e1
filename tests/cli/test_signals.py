"""Ctrl-C exits with 130 and SIGTERM with 143, whenever they come, and neither shows a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from listening import open_tones

WHILE_LOADING = """
import os, runpy, sys

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), number)

module, number = sys.argv[1], int(sys.argv[2])
sys.argv = ["earmark", "check", "nowhere"]
sys.meta_path.insert(0, Sender())
runpy.run_module("earmark", run_name="__main__")
"""
"""A command that is sent a signal when it begins to load a module."""


@pytest.mark.parametrize(
    ("module", "number", "code"),
    [
        ("lazy_loader", signal.SIGINT, 130),
        ("typer", signal.SIGTERM, 143),
        ("earmark.errors", signal.SIGINT, 130),
        ("earmark.pipeline", signal.SIGTERM, 143),
        ("polars", signal.SIGINT, 130),
    ],
)
def test_a_signal_while_a_command_loads(module: str, number: int, code: int) -> None:
    command = [sys.executable, "-c", WHILE_LOADING, module, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr


def test_ctrl_c_ends_the_page_and_the_answers_are_counted(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    open_tones(tmp_path, n_clips=20).judgements.close()
    command = [sys.executable, "-m", "earmark", "review", str(tmp_path), "--port", "0", "--no-open"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith("next: "):
            break
    server.send_signal(signal.SIGINT)
    out, told = server.communicate(timeout=60)
    assert server.returncode == 130, told
    assert "Traceback" not in told
    assert "0 answers are kept" in out
