from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from earmark.errors import EarmarkWarning
from earmark.runs import put_in_place, scratch_beside, sweep_leftovers

KILLED_BETWEEN = """
import os, signal, sys
from pathlib import Path
from earmark.runs import put_in_place, scratch_beside

rename = os.rename

def killed_after(source, target):
    rename(source, target)
    os.kill(os.getpid(), signal.SIGKILL)

out = Path(sys.argv[1])
with scratch_beside(out) as scratch:
    (scratch / "found").mkdir()
    (scratch / "found" / "result.txt").write_text("new")
    os.rename = killed_after
    put_in_place(scratch / "found", out)
"""


def replace(out: Path, text: str) -> None:
    with scratch_beside(out) as scratch:
        (scratch / "found").mkdir()
        (scratch / "found" / "result.txt").write_text(text)
        put_in_place(scratch / "found", out)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder that has been written once."""
    replace(tmp_path / "out", "earlier")
    return tmp_path / "out"


def killed(out: Path) -> None:
    """Have a process killed that was about to replace a folder, when it had moved it away."""
    ended = subprocess.run([sys.executable, "-c", KILLED_BETWEEN, str(out)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not out.exists()


def test_a_folder_is_replaced_and_nothing_is_left(out: Path) -> None:
    replace(out, "new")
    assert (out / "result.txt").read_text() == "new"
    assert os.listdir(out.parent) == ["out"]


def test_killed_between_the_renames_the_earlier_folder_comes_back(out: Path) -> None:
    killed(out)
    with (
        pytest.warns(EarmarkWarning, match="killed run was removed"),
        pytest.warns(EarmarkWarning, match="put back"),
        scratch_beside(out),
    ):
        assert (out / "result.txt").read_text() == "earlier"
    assert os.listdir(out.parent) == ["out"]


def test_whoever_sweeps_puts_it_back(out: Path) -> None:
    killed(out)
    with pytest.warns(EarmarkWarning, match="put back"):
        assert sweep_leftovers(out.parent) == 1
    assert (out / "result.txt").read_text() == "earlier"


def test_what_came_meanwhile_stays(out: Path) -> None:
    killed(out)
    out.mkdir()
    (out / "result.txt").write_text("by hand")
    assert sweep_leftovers(out.parent) == 1
    assert (out / "result.txt").read_text() == "by hand"


def test_a_rename_that_fails_leaves_the_earlier_folder(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def fail_for_new(source: Path, target: Path) -> None:
        if Path(source).name == "found":
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_for_new)
    with pytest.raises(OSError, match="Input/output"):
        replace(out, "new")
    assert (out / "result.txt").read_text() == "earlier"
    assert os.listdir(out.parent) == ["out"]


def test_an_interrupt_between_the_renames_leaves_the_earlier_folder(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def interrupted(source: Path, target: Path) -> None:
        rename(source, target)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace(out, "new")
    assert (out / "result.txt").read_text() == "earlier"
    assert os.listdir(out.parent) == ["out"]
