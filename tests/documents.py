"""The Markdown files of this project, in parts that tests can hold against the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/*.md")
    for path in sorted(ROOT.glob(pattern))
    # A changelog tells of the past, when commands had other names.
    if path.name != "CHANGELOG.md"
]

BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]*?) -->\n+)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")


@dataclass(frozen=True)
class Piece:
    """A block of code, or code within a sentence."""

    path: Path
    line: int
    text: str
    language: str = ""
    reason_not_to_run: str | None = None

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path) -> Iterator[Piece]:
    """Yield the fenced blocks; a comment ``<!-- not run: why -->`` just above exempts a block."""
    text = path.read_text()
    for found in BLOCK.finditer(text):
        yield Piece(
            path,
            line=_line(text, found.start("text")),
            text=found["text"],
            language=found["language"],
            reason_not_to_run=found["reason"],
        )


def inline_code(path: Path) -> Iterator[Piece]:
    """Yield what stands between backticks within sentences; it may go on in the next line."""
    text = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), path.read_text())
    for found in INLINE.finditer(text):
        yield Piece(path, _line(text, found.start()), " ".join(found[1].split()))


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
