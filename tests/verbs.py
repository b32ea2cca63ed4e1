"""Run several commands in one process, and tell what each printed and how it ended.

``python tests/verbs.py < commands.json > results.json``: a list of lists of words, and a list of
:class:`Outcome` fields. In one process, because most of a command's time is spent on imports.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Outcome:
    """How a command ended; ``code`` is 1 and stderr has the traceback if it broke down."""

    code: int
    stdout: str
    stderr: str


def run_verb(words: list[str]) -> Outcome:
    """Run ``earmark WORDS`` as from a shell."""
    from earmark.cli.app import main

    sys.argv = ["earmark", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
    return Outcome(code, out.getvalue(), err.getvalue())


if __name__ == "__main__":
    json.dump([asdict(run_verb(words)) for words in json.load(sys.stdin)], sys.stdout)
