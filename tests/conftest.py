from __future__ import annotations

import os

# One thread each: with OpenMP's spinning barriers two busy processes stall each other for minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
