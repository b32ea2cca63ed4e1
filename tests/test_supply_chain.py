"""What gets in from outside is read, never run: no pickle, no code out of text, no shell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents import ROOT

OURS = [
    path
    for folder in ("src", "examples", "site", ".ci")
    for path in sorted((ROOT / folder).glob("**/*.py"))
]
PACKAGE = ROOT / "src"

RUNS_WHAT_IT_READS = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code",
    "imp", "runpy",
}  # fmt: skip
"""Modules that make objects or code out of bytes; ``pickletools`` only lists what is there."""

STARTS_PROGRAMS = {"subprocess", "pty", "commands", "popen2"}
"""Modules that the package itself does without; what builds and publishes it may use them."""

TRIES_PARQUET = PACKAGE / "earmark" / "storage" / "parquet.py"
"""Starts Python with a fixed program: a damaged Parquet file ends the process that reads it."""

FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.spawnl", "os.execv",
    "tempfile.mktemp", "yaml.load", "yaml.unsafe_load", "pandas.read_pickle", "ET.parse",
    "ET.fromstring", "ssl._create_unverified_context", "torch.hub.load", "torch.jit.load",
}  # fmt: skip
"""Calls that run what they are given, or trust it more than a file from outside deserves."""

NEVER = {
    "shell": True,
    "allow_pickle": True,
    "trust_remote_code": True,
    "verify": False,
}
"""Options that no call may have with this value."""


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield what a file calls, by the name it is called by."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, by their first names."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in named}


def options(call: ast.Call) -> dict[str, object]:
    return {
        one.arg: one.value.value
        for one in call.keywords
        if one.arg and isinstance(one.value, ast.Constant)
    }


def faults(path: Path) -> list[str]:
    """Name all that a file does with what it reads and should not."""
    found = [f"imports {name}" for name in sorted(imported(path) & RUNS_WHAT_IT_READS)]
    if PACKAGE in path.parents and path != TRIES_PARQUET:
        found += [f"imports {name}" for name in sorted(imported(path) & STARTS_PROGRAMS)]
    for name, call in calls(path):
        said = options(call)
        found += [f"calls {name}"] if name in FORBIDDEN else []
        found += [
            f"{name} with {key}={value}" for key, value in NEVER.items() if said.get(key) is value
        ]
        if name == "torch.load" and said.get("weights_only") is not True:
            found.append("torch.load without weights_only=True")
        if name.endswith(".extractall"):
            found.append(f"calls {name}: members of an archive are looked at one by one")
    return found


ASKS_THE_NETWORK = {
    "compute/ray.py": "a cluster that the user names",
    "models/pretrained/catalogue.py": "earmark teachers get",
    "models/pretrained/huggingface.py": "a network hf:OWNER/NAME",
    "review/server/app.py": "the listening page",
    "storage/audio_access.py": "sound imported with --remote",
}
"""The files of the package that use the network, and for what, as SECURITY.md says."""

NETWORK = re.compile(
    r"urllib\.request|http\.client|from_pretrained|socket\.socket|\b(?:fsspec|aiohttp|httpx|requests)\."
    r"|import (?:requests|httpx|aiohttp|ray)\b|smtplib|ftplib|load_library\(\"(?:ray|fsspec)"
)


def test_the_network_is_used_in_few_places() -> None:
    folder = PACKAGE / "earmark"
    files = {str(path.relative_to(folder)): path for path in folder.glob("**/*.py")}
    asking = {name for name, path in files.items() if NETWORK.search(path.read_text())}
    assert asking == set(ASKS_THE_NETWORK)


def test_nothing_that_is_read_is_run() -> None:
    assert len(OURS) > 100
    wrong = {str(path.relative_to(ROOT)): faults(path) for path in OURS}
    assert {path: found for path, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "from joblib import load", "eval(text)", "exec(text)", "os.system(text)",
        "subprocess.run(text, shell=True)", "torch.load(path)", "torch.load(path, 'cpu')",
        "torch.load(path, weights_only=False)", "yaml.load(text)", "tar.extractall(folder)",
        "np.load(path, allow_pickle=True)", "Model.from_pretrained(name, trust_remote_code=True)",
        "requests.get(url, verify=False)",
    ],
)  # fmt: skip
def test_each_would_be_seen(line: str, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(f"{line}\n")
    assert faults(tmp_path / "one.py")
