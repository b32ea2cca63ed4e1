from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.storage import check_replaceable, put_in_place, scratch_beside

KILLED_BETWEEN = """
import os, signal, sys
from pathlib import Path
from earmark.storage import put_in_place, scratch_beside

replace = os.replace

def killed_after(source, target):
    replace(source, target)
    if Path(target).name == "a.txt":
        os.kill(os.getpid(), signal.SIGKILL)

out = Path(sys.argv[1])
with scratch_beside(out) as scratch:
    for name in ("a.txt", "b.txt", "meta.json"):
        (scratch / "made").mkdir(exist_ok=True)
        (scratch / "made" / name).write_text("newest")
    os.replace = killed_after
    put_in_place(scratch / "made", out, "scan")
"""


def write(out: Path, made_by: str = "scan", **files: str) -> None:
    with scratch_beside(out) as scratch:
        for name, text in files.items():
            path = scratch / "made" / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        put_in_place(scratch / "made", out, made_by)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder that has been written once."""
    write(tmp_path / "out", a_txt="first", data__old_txt="first", meta_json="first")
    return tmp_path / "out"


def texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".earmark.json"
    }


def test_files_of_the_manifest_are_replaced_or_removed_and_all_others_stay(out: Path) -> None:
    (out / ".git").mkdir()
    (out / ".git" / "HEAD").write_text("ref")
    (out / "data" / "notes.md").write_text("mine")
    write(out, a_txt="second", b_txt="second", meta_json="second")
    assert texts(out) == {
        "a.txt": "second",
        "b.txt": "second",
        "meta.json": "second",
        ".git/HEAD": "ref",
        "data/notes.md": "mine",
    }
    assert os.listdir(out.parent) == ["out"]
    named = json.loads((out / ".earmark.json").read_text())
    assert sorted(named["files"]) == ["a.txt", "b.txt", "meta.json"]
    assert "earlier" not in named


def test_a_file_that_somebody_edited_is_refused_before_anything_changes(out: Path) -> None:
    (out / "a.txt").write_text("edited")
    before = texts(out)
    with pytest.raises(EarmarkError, match=r"'a\.txt' was changed after `scan` wrote it; nothing"):
        check_replaceable(out, "scan")
    with pytest.raises(EarmarkError, match=r"'a\.txt' was changed after `scan` wrote it; nothing"):
        write(out, a_txt="second")
    assert texts(out) == before
    (out / "a.txt").unlink()
    write(out, a_txt="second")
    assert texts(out) == {"a.txt": "second"}


def test_a_file_of_somebody_else_in_the_place_of_a_new_one_is_refused(out: Path) -> None:
    (out / "b.txt").write_text("mine")
    before = texts(out)
    with pytest.raises(EarmarkError, match=r"'b\.txt' is not from an earlier `scan`"):
        write(out, a_txt="second", b_txt="second")
    assert texts(out) == before


def test_no_manifest_leads_through_a_link(out: Path) -> None:
    key = out.parent / "elsewhere" / "key"
    key.parent.mkdir()
    key.write_text("first")  # whose digest the manifest has
    path = out / ".earmark.json"
    named = json.loads(path.read_text())
    (out / "link").symlink_to("../elsewhere")
    named["files"]["link/key"] = named["files"]["a.txt"]
    path.write_text(json.dumps(named))
    with pytest.raises(EarmarkError, match=r"'link/key' was changed after `scan` wrote it"):
        write(out, a_txt="second")
    assert key.read_text() == "first"
    assert texts(out)["a.txt"] == "first"


@pytest.mark.parametrize("manifest", ["none", "another command's", "of another place"])
def test_folders_without_a_manifest_of_ours_are_refused(out: Path, manifest: str) -> None:
    path = out / ".earmark.json"
    named = json.loads(path.read_text())
    if manifest == "none":
        path.unlink()
    elif manifest == "another command's":
        path.write_text(json.dumps({**named, "made_by": "export --to hf"}))
    else:
        (out.parent / "key").write_text("mine")
        path.write_text(json.dumps({**named, "files": {"../key": ""}}))
    with pytest.raises(EarmarkError, match=r"not touched|leads elsewhere"):
        write(out, a_txt="second")
    assert texts(out)["a.txt"] == "first"


def test_killed_between_two_files_it_is_unfinished_and_the_next_run_goes_on(out: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED_BETWEEN, str(out)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert texts(out) == {"a.txt": "newest"}, "no seal says that it is whole"
    (out / "notes.md").write_text("mine")
    with pytest.warns(EarmarkWarning, match="killed run was removed"):
        write(out, b_txt="third", meta_json="third")
    assert texts(out) == {"b.txt": "third", "meta.json": "third", "notes.md": "mine"}
    assert os.listdir(out.parent) == ["out"]
