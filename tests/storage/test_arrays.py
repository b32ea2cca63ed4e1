from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from earmark.storage import write_array

NO_ROOM = """
import resource, sys
import numpy as np
from earmark.storage import write_array

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
try:
    write_array(sys.argv[1], np.zeros(300, np.float32))
except OSError as error:
    sys.exit(error.errno)
"""


def test_an_array_is_written_as_numpy_does(tmp_path: Path) -> None:
    for number, array in enumerate((np.arange(6.0).reshape(2, 3), np.zeros((0, 4)), np.eye(3).T)):
        write_array(tmp_path / f"{number}.npy", array)
        np.save(tmp_path / "numpy.npy", array)
        assert (tmp_path / f"{number}.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()


def test_the_last_block_is_not_lost_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NO_ROOM, str(tmp_path / "a.npy")]
    assert subprocess.run(command, check=False).returncode == 27, "file too large"
    assert list(tmp_path.iterdir()) == []
