"""Verbs that write in a workspace."""

from __future__ import annotations

WRITERS = (
    "import scenes W",
    "import table labels.csv --work W",
    "import sounds . labels.csv --work W",
    "import mixtures . labels.csv --work W",
    "import hf . --work W",
    "import webdataset . --work W",
    "import audioset . --work W",
    "import audioset-features . --work W",
    "import fsd50k . --work W",
    "import workspace OTHER --work W --train-share 0.2",
    "import workspace W --splits 80,10,10",
    "features W",
    "features W --recipe find",
    "train W",
    "score W",
    "score W --from scores.npy",
    "score W --teacher net.onnx",
    "flag W",
    "flag W --chances",
    "sweep W",
    "compare W",
    "review W --write-only",
    "review W --write-only --aim adjudicate",
    "answers W",
    "relabel W",
    "report W",
    "run scenes --work W",
    "demo --work W",
)
"""Every verb that writes in a workspace, W; what it needs beside it comes later."""
