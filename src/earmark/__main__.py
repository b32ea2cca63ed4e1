"""Run the command line: ``earmark``, and ``python -m earmark``.

Signals are heeded before anything else is loaded, and still when all is done: neither start-up nor
end shows a traceback.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Load the command line and run a verb."""
    _end_at_signals()
    from earmark.memory import OutOfMemory, check_address_space  # as below

    try:
        check_address_space()
        from earmark.cli.app import main as run_verb  # only now: a signal may come while it loads

        run_verb()
    except OutOfMemory as error:
        sys.stderr.write(f"earmark: {error}\n")
        sys.exit(2)
    finally:
        _end_at_signals()


def _end_at_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    del frame
    os._exit(128 + number)


if __name__ == "__main__":
    main()
