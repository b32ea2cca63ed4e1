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
from earmark.runs import aside_of, holder_of, sweep_leftovers, writing
from earmark.runs.writers.leftovers import expect_leftovers
from earmark.runs.writers.lock import LOCK, WAIT, Holder
from earmark.runs.writers.processes import Process

HOLDS = """
import sys
from pathlib import Path
from earmark.runs import aside_of, writing
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


def test_the_lock_of_a_killed_process_is_taken_over_and_what_it_left_is_swept(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert len(list(tmp_path.glob(".*.partial"))) == 1
    wanted = r"`flag` .*was killed here; .*1 unfinished file of a killed run was removed"
    with pytest.warns(EarmarkWarning, match=wanted):
        held = holder(tmp_path, "score")
    assert (held.verb, held.known) == ("score", Process.here())
    assert not list(tmp_path.iterdir())


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


def rewritten(folder: Path, **changes: str) -> None:
    """Leave a lock behind that says something else."""
    with writing(folder, "score"):
        told = json.loads((folder / LOCK).read_text())
    (folder / LOCK).write_text(json.dumps({**told, **changes}))


def test_a_process_that_only_has_the_number_of_the_dead_one_holds_nothing(tmp_path: Path) -> None:
    here = Process.here()
    rewritten(tmp_path, process=str(Process(here.place, here.number, "1")))
    with pytest.warns(EarmarkWarning, match="killed here"), writing(tmp_path, "flag"):
        pass
    assert not list(tmp_path.iterdir())


def test_the_lock_of_another_machine_holds_until_it_is_deleted(tmp_path: Path) -> None:
    rewritten(tmp_path, host="elsewhere", process="0123abcd-17-1")
    wanted = rf"on elsewhere, .* If it is gone: rm {tmp_path}/\.lock\.json"
    with pytest.raises(EarmarkError, match=wanted), writing(tmp_path, "flag"):
        pass


def test_a_damaged_lock_is_named(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"verb": 1}'):
        (tmp_path / LOCK).write_text(text)
        wanted = "says nothing of who holds it"
        with pytest.raises(EarmarkError, match=wanted), writing(tmp_path, "flag"):
            pass


def test_a_writer_may_call_another_and_a_failure_gives_the_lock_back(tmp_path: Path) -> None:
    def outer(place: Path) -> None:
        with writing(place, "run"):
            with writing(place, "flag"):
                assert (place / LOCK).exists()
            assert json.loads((place / LOCK).read_text())["verb"] == "run"
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


def test_without_links_a_lock_is_a_file_that_must_not_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert holder(tmp_path, "flag").verb == "flag"
    assert not list(tmp_path.iterdir())


def test_of_processes_that_train_together_the_first_asks_for_all(
    tmp_path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert holder(tmp_path, "train").verb == "flag"


def test_what_living_and_unknown_writers_have_begun_is_left_alone(tmp_path: Path) -> None:
    own = aside_of(tmp_path / "labels.parquet")
    own.write_text("")
    foreign = tmp_path / ".labels.parquet.0123abcd-17-1.0123abcd.partial"
    foreign.write_text("")
    assert sweep_leftovers(tmp_path) == 0
    os.utime(foreign, (0, 0))
    os.utime(own, (0, 0))
    assert sweep_leftovers(tmp_path) == 1
    assert own.exists()


def test_what_ended_workers_left_goes_with_the_failure(tmp_path: Path) -> None:
    left = tmp_path / f".x.{Process(Process.here().place, 1, 'gone')}.0123abcd.partial"

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
