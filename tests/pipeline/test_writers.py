"""One writer at a time: every verb that writes is refused while another does, readers are not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from called_verbs import earmark, refusal
from earmark import datasets, pipeline
from earmark.config import Recipe
from earmark.datasets import SCANNED_FOLDER, Workspace
from earmark.errors import EarmarkError
from earmark.storage import INSIDE, holder_of, read_seal, read_table
from told_workspace import told_workspace
from writing_verbs import WRITERS

READERS = {
    "asked_recipe", "check_frames", "check_labels", "choose_teacher",
    "check_workspace", "compare_labels", "gains_so_far", "heard_flags", "open_judgements",
    "open_queue", "read_inputs", "default_teacher", "default_work",
    "evaluate_scores", "examined",
    "export_hub", "export_judgements", "export_labels", "export_model",
    "open_scored", "open_workspace", "tag_files", "write_card",
}  # fmt: skip
"""Stages that change nothing in a workspace."""

IN_PART = {
    "choose_recipe": "where it is another",
    "draw_ahead": "where there is no queue; blocks are kept by SQLite",
    "draw_queue": "where it is drawn",
    "find": "all of it: its folder may be a default",
    "import_judgements": "never: answers are kept by SQLite",
    "measure_precision": "while the table is written",
    "scan": "where it replaces a workspace",
    "serve_review": "where it draws a queue",
    "summarize_answers": "while the tables are written",
}
"""Stages that hold the lock for a part of what they do, and for which."""

HOLDS = """
import sys
from earmark.storage import writing
with writing(sys.argv[1], "sweep"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_writer(folder: Path) -> Iterator[None]:
    """Have another process write in a folder."""
    command = [sys.executable, "-c", HOLDS, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.kill()


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace W in which another process writes, and another workspace."""
    folder = tmp_path_factory.mktemp("held")
    for name in ("W", "OTHER"):
        told_workspace(folder / name)
    with another_writer(folder / "W"), pytest.MonkeyPatch.context() as patched:
        patched.setattr("earmark.storage.lock._LEAST_SECONDS", 0.01)  # nobody lets go
        yield folder


def files_of(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", WRITERS)
def test_a_second_writer_is_refused(
    held: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(held)
    before = files_of(held)
    told = refusal(*command.split())
    assert "`sweep` (process " in told
    assert "is writing here; wait for it, or stop it first" in told
    assert files_of(held) == before


def test_a_search_is_refused(held: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(EarmarkError, match="`sweep`"):
        pipeline.find(held, work=held / "W", recipe=Recipe())


def test_a_workspace_in_the_making_is_not_called_none(tmp_path: Path) -> None:
    with (
        another_writer(tmp_path / "W"),
        pytest.raises(EarmarkError, match=r"`sweep`.*writing here"),
    ):
        Workspace.open(tmp_path / "W")
    with pytest.raises(EarmarkError, match="not a workspace"):
        Workspace.open(tmp_path / "W")


@pytest.mark.parametrize("command", ["export W labels.csv", "check W", "report W --card CARD.md"])
def test_readers_never_wait(held: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(held)
    earmark(*command.split())


def test_every_stage_is_known_to_write_or_not() -> None:
    functions = {name for name in pipeline.__all__ if name.islower()}
    writers = {name for name in functions if hasattr(getattr(pipeline, name), "writes")}
    assert functions - writers == READERS | IN_PART.keys()
    importers = [name for name in dir(datasets) if name.startswith("import_")]
    assert all(hasattr(getattr(datasets, name), "writes") for name in [*importers, "write_scenes"])


def test_two_that_flag_at_once_do_not_mix(tmp_path: Path) -> None:
    """One is refused, or they come one after the other: what is sealed is of one of them."""
    workspace, _ = told_workspace(tmp_path / "W")
    commands = [
        [sys.executable, "-m", "earmark", "flag", str(workspace.root), "--discard-percent", percent]
        for percent in ("5", "50")
    ]
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    ended = [(process.communicate()[1], process.returncode) for process in running]
    assert 0 in [code for _, code in ended], ended
    assert all(code == 0 or "writing here; wait" in " ".join(told.split()) for told, code in ended)
    options = read_seal(workspace.flags_folder)["options"]
    n_flags = len(read_table(workspace.flags_path))
    assert n_flags == len(pipeline.write_flags(workspace, **options).flags)
    assert holder_of(workspace.root) is None


def test_a_part_is_not_mistaken_for_the_whole(tmp_path: Path) -> None:
    """A workspace within a scan's folder has one lock, whichever of the two is named."""
    assert INSIDE == SCANNED_FOLDER
    workspace, _ = told_workspace(tmp_path / "scan" / INSIDE)
    seen = []

    def watch(*_: object) -> np.ndarray:
        seen.append(holder_of(workspace.root))
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("earmark.pipeline.flag.find_flags", watch)
        with pytest.raises(ZeroDivisionError):
            pipeline.write_flags(tmp_path / "scan")
    assert seen[0] is not None
    assert seen[0].verb == "flag"
