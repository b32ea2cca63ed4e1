from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.storage import (
    HOLDER,
    LOCK,
    WAIT,
    Holder,
    aside_of,
    expect_leftovers,
    holder_of,
    sweep_leftovers,
    writing,
)

HOLDS = """
import sys
from pathlib import Path
from earmark.storage import aside_of, writing
with writing(sys.argv[1], "flag"):
    aside_of(Path(sys.argv[1]) / "flags.parquet").write_text("half")
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes in the folder."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()


def holder(folder: Path, verb: str = "score") -> Holder:
    """Write in a folder; return who does."""
    with writing(folder, verb):
        found = holder_of(folder)
    assert found is not None
    return found


def test_a_second_writer_is_told_who_the_first_is(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    wanted = rf"`flag` \(process {other.pid}, .* on .*, since 20.*\) is writing here; wait"
    with pytest.raises(EarmarkError, match=wanted), writing(tmp_path, "score"):
        pytest.fail("two write at once")


def test_a_killed_process_holds_nothing_and_what_it_left_is_removed(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert len(list(tmp_path.glob(".*.partial"))) == 1
    wanted = r"`flag` .*was killed here; .*1 unfinished file of a killed run was removed"
    with pytest.warns(EarmarkWarning, match=wanted):
        held = holder(tmp_path, "score")
    assert (held.verb, held.process) == ("score", str(os.getpid()))
    assert holder_of(tmp_path) is None
    assert os.listdir(tmp_path) == [LOCK]


def test_a_second_writer_may_wait(
    tmp_path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAIT, "60")
    assert other.stdin is not None
    threading.Timer(0.5, other.stdin.close).start()
    with pytest.warns(EarmarkWarning) as told:  # what it left is swept if it has ended by then
        holder(tmp_path)
    assert "waiting for `flag`" in str(told[0].message)
    assert other.wait() == 0
    monkeypatch.setenv(WAIT, "soon")
    with pytest.raises(EarmarkError, match="not a number of seconds"), writing(tmp_path, "score"):
        pass


@pytest.mark.parametrize("text", ["", "[]", '{"verb": 1}'])
def test_a_damaged_holder_file_is_explained_and_stops_nobody(
    tmp_path: Path, other: subprocess.Popen[str], text: str
) -> None:
    (tmp_path / HOLDER).write_text(text)
    wanted = r"`an unknown command` \(.*\) is writing here; wait"
    with pytest.raises(EarmarkError, match=wanted), writing(tmp_path, "score"):
        pytest.fail("two write at once")
    other.kill()
    other.wait()
    with pytest.warns(EarmarkWarning, match="`an unknown command`.*was killed here"):
        assert holder(tmp_path, "score").verb == "score"
    assert os.listdir(tmp_path) == [LOCK]


def test_who_only_looks_leaves_the_lock_to_others(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    assert holder_of(tmp_path) is None
    with writing(tmp_path, "flag"):
        pass


def test_a_writer_may_call_another_and_a_failure_gives_the_lock_back(tmp_path: Path) -> None:
    def outer(place: Path) -> None:
        with writing(place, "run"):
            with writing(place, "flag"):
                assert (place / HOLDER).exists()
            assert json.loads((place / HOLDER).read_text())["verb"] == "run"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        outer(tmp_path / "new")
    assert not (tmp_path / "new").exists(), "nothing came of it"


def test_another_thread_is_another_writer(tmp_path: Path) -> None:
    refused = []

    def second() -> None:
        try:
            with writing(tmp_path, "score"):
                pass
        except EarmarkError as error:
            refused.append(str(error))

    with writing(tmp_path, "flag"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("")
    for place in (tmp_path / "work", tmp_path / "work" / "below"):
        with pytest.raises(EarmarkError, match="a file is where"), writing(place, "import"):
            pass


def test_of_processes_that_train_together_the_first_asks_for_all(
    tmp_path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert holder(tmp_path, "train").verb == "flag"


def test_what_living_and_unknown_writers_have_begun_is_left_alone(tmp_path: Path) -> None:
    own = aside_of(tmp_path / "labels.parquet")
    own.write_text("")
    foreign = tmp_path / ".labels.parquet.0123abcd-17.0123abcd.partial"
    foreign.write_text("")
    assert sweep_leftovers(tmp_path) == 0
    os.utime(foreign, (0, 0))
    os.utime(own, (0, 0))
    assert sweep_leftovers(tmp_path) == 1
    assert own.exists()


def test_only_names_of_our_own_unfinished_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / "audio" / "deep").mkdir(parents=True)
    names = ["download.wav.partial", ".notes.partial", "x.0123abcd-17.0123abcd.partial"]
    names += [".x.0123abcd.partial", ".x.somebody.0123abcd.partial", "audio/deep/a.partial"]
    for name in names:
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (0, 0))
    with writing(tmp_path, "flag"):
        pass
    assert sweep_leftovers(tmp_path) == 0
    assert all((tmp_path / name).exists() for name in names)


def test_what_ended_workers_left_goes_with_the_failure(tmp_path: Path) -> None:
    left = aside_of(tmp_path / "x")
    left = left.with_name(left.name.replace(f"-{os.getpid()}.", "-4194305."))  # no process has it

    def fail() -> None:
        with writing(tmp_path, "score"):
            left.write_text("")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert left.exists(), "nobody was ended"
    with pytest.warns(EarmarkWarning, match="1 unfinished file of a killed run was removed"):
        holder(tmp_path)
    assert not left.exists()
    expect_leftovers()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert not left.exists()


def test_long_names_have_room_beside_them(tmp_path: Path) -> None:
    aside_of(tmp_path / ("ä" * 127)).write_text("")
