"""`earmark review` in a process of its own, on a workspace of tones with a queue that learns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from earmark.config import ReviewParams
from earmark.pipeline import draw_queue
from earmark.review import JudgementStore
from listening import RECIPE, tone_workspace
from named_attacks import Target

PARAMS = ReviewParams(aim="find", flags_per_block=5, overlap=0.01)
RATERS = ("ann", "bob")

BROWSER = """\
#!{python}
import os, sys
with open({seen!r}, "w") as file:
    file.write("\\n".join([*sys.argv, *os.environ.values()]))
"""
"""A browser that notes what it is told, and what everybody could read of it."""


@dataclass(frozen=True)
class Running:
    """A server, and what its process leaves behind."""

    target: Target
    process: subprocess.Popen[str]
    log: Path
    seen_by_browser: Path


def make_workspace(root: Path) -> None:
    """Make a workspace whose labels can be heard by two raters."""
    workspace = tone_workspace(root, n_clips=60, seconds=1.5)
    draw_queue(workspace, RECIPE, params=PARAMS)


def answers(root: Path) -> set[str]:
    """Return the identifiers of all answers that are stored."""
    path = root / "review" / "judgements.sqlite"
    with JudgementStore(path, must_exist=True) as store:
        return set(store.rows()["id"])


@contextmanager
def running(root: Path, aside: Path) -> Iterator[Running]:
    """Run `earmark review` until the end of the block; ``aside`` keeps its log."""
    aside.mkdir(parents=True, exist_ok=True)
    log, seen, browser = aside / "log.txt", aside / "seen.txt", aside / "browser"
    browser.write_text(BROWSER.format(python=sys.executable, seen=str(seen)))
    browser.chmod(0o700)
    command = [sys.executable, "-m", "earmark", "review", str(root), "--port", "0"]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "--raters", ",".join(RATERS)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "BROWSER": f"{browser} %s"},
        ) as process,
    ):
        try:
            yield Running(_target(process, root, log), process, log, seen)
        finally:
            process.kill()


def _target(process: subprocess.Popen[str], root: Path, log: Path) -> Target:
    assert process.stdout is not None
    told = ""
    while "next: " not in told:
        line = process.stdout.readline()
        assert line, log.read_text()
        told += line
    (path,) = re.findall(r"^addresses: (.+)$", told, re.MULTILINE)
    pattern = r"^(\w+): http://127\.0\.0\.1:(\d+)/\?token=(\S+)$"
    found = re.findall(pattern, Path(path).read_text(), re.MULTILINE)
    tokens = {rater: token for rater, _, token in found}
    return Target(int(found[0][1]), tokens, root)


def _clip_of(target: Target, item: str, rater: str) -> str:
    return str(target.ask(f"/api/items/{item}/clip", rater=rater).json["clip_id"])


def taught(target: Target) -> Target:
    """Have blocks drawn for both raters; return what there is to attack."""
    shared = target.post({}, "/api/blocks/next", rater="ann").json["block"]["block"]
    target.post({}, "/api/blocks/next", rater="bob")
    own = target.post({"after": shared}, "/api/blocks/next", rater="bob").json["block"]["block"]
    items = [row["item"] for row in target.ask(f"/api/blocks/{shared}").json["items"]]
    item = items[0]
    # A rater may judge any label of a clip that is in their blocks.
    known_clips = {_clip_of(target, one, "ann") for one in items}
    bobs_items = [
        row["item"] for row in target.ask(f"/api/blocks/{own}", rater="bob").json["items"]
    ]
    bobs = next(one for one in bobs_items if _clip_of(target, one, "bob") not in known_clips)
    known = replace(target, item=item, bobs_item=bobs, bobs_block=own)
    said = known.said(rater="bob")
    assert target.post(said, rater="bob").status == 201
    return replace(known, bobs_answer=str(said["id"]))
