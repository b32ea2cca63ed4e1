"""What is published works where nothing else is: run by ``make wheel``, after the build.

The wheel of ``dist`` is installed into empty environments, of this Python with each extra and of
every other Python that is declared and is here. ``uv`` makes them, because it takes seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = [
    found[1]
    for line in PROJECT["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
]
LIGHT = {"audio": "soundfile", "report": "PIL", "review": "starlette"}
"""Extras that are installed one after another, and a library of each; the others are resolved."""
SOURCES = (".c", ".h")
"""Files of the package that are compiled, and not shipped."""

Run = Callable[..., str]


def run(*words: str | Path, cwd: Path | None = None) -> str:
    """Run a program; return what it prints, or fail with all of it."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def uv(*words: str | Path) -> str:
    """Run uv with the pinned versions; it looks for wheels where pip does."""
    places = os.environ.get("PIP_FIND_LINKS", "").split()
    links = [word for place in places for word in ("--find-links", place)]
    return run("uv", "pip", *words, *links, "--constraint", ROOT / "constraints.txt")


@pytest.fixture(scope="session")
def wheel() -> Path:
    found = sorted((ROOT / "dist").glob("earmark-*.whl"))
    assert len(found) == 1, f"{len(found)} wheels in dist: run `make wheel`"
    return found[0]


@pytest.fixture(scope="session")
def package() -> set[str]:
    """The files of the package that are in the repository."""
    listed = run("git", "ls-files", "src/earmark", cwd=ROOT).splitlines()
    return {name.removeprefix("src/") for name in listed}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path, package: set[str]) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    sources = {name for name in package if name.endswith(SOURCES)}
    compiled = {name for name in names if name.endswith((".so", ".pyd"))}
    assert names - compiled == package - sources
    assert bool(compiled) == bool(sources)


def test_the_source_archive_holds_the_package(package: set[str]) -> None:
    (path,) = (ROOT / "dist").glob("earmark-*.tar.gz")
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {f"src/{name}" for name in package} <= names
    assert {"pyproject.toml", "LICENSE", "README.md"} <= names


def python_of(version: str) -> str | None:
    """Return a Python of a version: one on the path that starts, or one of pyenv's."""
    own = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in filter(None, (shutil.which(f"python{version}"), *map(str, own))):
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


def environment(folder: Path, version: str) -> SimpleNamespace:
    """Make an empty environment, and return its Python and the program that it will have."""
    python = python_of(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    run("uv", "venv", "--quiet", "--python", python, folder)
    return SimpleNamespace(python=folder / "bin" / "python", earmark=folder / "bin" / "earmark")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_core_works_alone(version: str, wheel: Path, tmp_path: Path) -> None:
    here = environment(tmp_path / "venv", version)
    uv("install", "--quiet", "--python", here.python, wheel)
    assert wheel.name.split("-")[1] in run(here.earmark, "--version")
    assert "scan" in run(here.earmark, "--help")
    write_small(tmp_path)
    found = tmp_path / "found"
    files = ("--labels", "labels.csv", "--scores", "scores.csv", "--out", found)
    run(here.earmark, "scan", *files, cwd=tmp_path)
    assert " of them right (" in (found / "index.html").read_text()


def write_small(folder: Path) -> None:
    """Write 400 clips of two classes, and scores that know them; every fifth label is missing."""
    labels, scores = ["clip_id,class_id"], ["clip_id,dog,siren"]
    for clip in range(400):
        there = [clip % 3 == 0, clip % 4 == 0]
        noise = [(clip * 37 % 101) / 40, (clip * 53 % 97) / 40]
        told = [f"{4 * is_there - 4 + off:.3f}" for is_there, off in zip(there, noise, strict=True)]
        scores.append(f"clip{clip},{','.join(told)}")
        names = [name for name, is_there in zip(("dog", "siren"), there, strict=True) if is_there]
        labels += [f"clip{clip},{name}" for name in names if clip % 5]
    (folder / "labels.csv").write_text("\n".join(labels))
    (folder / "scores.csv").write_text("\n".join(scores))


@pytest.fixture(scope="module")
def growing(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """An environment into which one extra after the other is installed."""
    here = environment(tmp_path_factory.mktemp("extras") / "venv", VERSIONS[0])
    uv("install", "--quiet", "--python", here.python, wheel)
    return here


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_an_extra_can_be_installed(extra: str, wheel: Path, growing: SimpleNamespace) -> None:
    told = f"earmark[{extra}] @ {wheel.as_uri()}"
    if extra not in LIGHT:
        uv("install", "--quiet", "--dry-run", "--python", growing.python, told)
        return
    uv("install", "--quiet", "--python", growing.python, told)
    run(growing.python, "-c", f"import {LIGHT[extra]}")
    run("uv", "pip", "check", "--quiet", "--python", growing.python)


def test_one_command_shows_it(wheel: Path, tmp_path: Path) -> None:
    pins = ("--constraints", ROOT / "constraints.txt")
    small = ("demo", "--scenes", "400", "--draws", "2")
    run("uvx", "--quiet", *pins, "--from", wheel, "earmark", *small, cwd=tmp_path)
    assert "<audio" in (tmp_path / "demo-work" / "report" / "index.html").read_text()
