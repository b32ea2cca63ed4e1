"""Find the labels that a large multi-label sound dataset is missing, and train unhurt by them.

The package follows Fonseca et al. 2020 and reads like it: a few rooms, each with a noun of the
paper, and each importing only the rooms below it (ARCHITECTURE.md has the tree, the layers and four
walks through them).

- ``cli``: options and printing; ``stages``: every verb's work as one Python function
- ``report``: numbers into words, tables, figures and pages
- ``experiments``: students, compared; ``review``: flags heard by people, and labels corrected
- ``training``: one loop for teachers and students; ``networks``: what is trained
- ``flags``: which labels are suspect, how many, how likely; ``datasets``: the workspace and how
  data gets into it
- ``scores``: what a teacher said; ``metrics``: how good that is; ``audio``: sound to frames
- ``labels``: what people said; ``losses``: equations (1) and (2)
- ``runs``: parameters, recipes, files on disk, tasks; ``errors``: users' mistakes
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earmark import losses, metrics
    from earmark.datasets.workspace import Workspace
    from earmark.errors import EarmarkError, EarmarkWarning
    from earmark.flags.counts import count_missing
    from earmark.flags.flag import flag
    from earmark.flags.thresholds import Thresholds, thresholds
    from earmark.labels.label_set import LabelSet
    from earmark.losses import ignored
    from earmark.metrics.evaluation import evaluate
    from earmark.runs.parameters import PAPER_DISCARD_PERCENTS
    from earmark.stages import run, scan

__version__ = "0.1.0"

__all__ = [
    "PAPER_DISCARD_PERCENTS",
    "EarmarkError",
    "EarmarkWarning",
    "LabelSet",
    "Thresholds",
    "Workspace",
    "count_missing",
    "evaluate",
    "flag",
    "ignored",
    "losses",
    "metrics",
    "run",
    "scan",
    "thresholds",
]

_ROOMS = {
    "PAPER_DISCARD_PERCENTS": "runs.parameters",
    "EarmarkError": "errors",
    "EarmarkWarning": "errors",
    "LabelSet": "labels.label_set",
    "Thresholds": "flags.thresholds",
    "Workspace": "datasets.workspace",
    "count_missing": "flags.counts",
    "evaluate": "metrics.evaluation",
    "flag": "flags.flag",
    "ignored": "losses",
    "run": "stages",
    "scan": "stages",
    "thresholds": "flags.thresholds",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for, so that importing earmark is instant."""
    if name in _ROOMS:
        return getattr(importlib.import_module(f"earmark.{_ROOMS[name]}"), name)
    if name in ("losses", "metrics", "stages"):
        return importlib.import_module(f"earmark.{name}")
    raise AttributeError(f"module 'earmark' has no attribute {name!r}")
