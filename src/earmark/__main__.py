"""Run the command line: ``python -m earmark``."""

from __future__ import annotations

from earmark.cli.app import main

if __name__ == "__main__":
    main()
