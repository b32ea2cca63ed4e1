"""How long earmark takes to start, beside the libraries that it stands on.

    python benchmarks/start_up.py

Each line is the least of several runs of a new Python, less the time of a Python that does
nothing. The aim is 0.3 s for ``import earmark``: public names are loaded when they are first used.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from earmark.storage import write_json

AIM_SECONDS = 0.3
STARTS = {
    "import earmark": ["-c", "import earmark"],
    "import earmark; earmark.LabelSet": ["-c", "import earmark; earmark.LabelSet"],
    "earmark --help": ["-m", "earmark", "--help"],
    "import numpy": ["-c", "import numpy"],
    "import polars": ["-c", "import polars"],
}


def least_seconds(arguments: list[str], n_runs: int) -> float:
    """Return the least time of several runs: what else the machine does only ever adds."""
    taken = []
    for _ in range(n_runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/start_up.json"))
    options = parser.parse_args()
    nothing = least_seconds(["-c", ""], options.runs)
    seconds = {
        name: least_seconds(arguments, options.runs) - nothing for name, arguments in STARTS.items()
    }
    table = Table("start", "seconds")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.3f}")
    Console().print(table)
    is_met = seconds["import earmark"] < AIM_SECONDS
    print(f"aim: import earmark in {AIM_SECONDS} s: {'met' if is_met else 'missed'}")
    facts = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load_average": round(os.getloadavg()[0], 1),  # above the number of cores: times too long
    }
    write_json(options.out, {**facts, "python_alone": nothing, "seconds": seconds})
    print(f"wrote {options.out}: {json.dumps(facts)}")


if __name__ == "__main__":
    main()
