"""Find the labels that a large multi-label sound dataset is missing, and train unhurt by them.

The package follows Fonseca et al. 2020 and reads like it. In this order, each module importing
only those above it:

- ``errors``: the one family of users' mistakes
- ``params``: frozen parameter records, recipe files, digests
- ``artefacts``: files that are either whole or not there
- ``progress``: how far a long job is
- ``engine``: where work runs
- ``ontology``: the class tree
- ``labels``: explicit labels in three states, kept sparse
- ``hierarchy``: what a child's label says of its ancestors
- ``scores``: score matrices, in memory or on disk
- ``workspace``: the folder of one dataset
- ``splits``: recordings into splits, folds and nested subsets
- ``foreign_files``, ``label_files``, ``score_files``, ``probabilities``: labels and scores in the
  formats that people have
- ``hiding``: hide known labels the way nomination does, and keep the truth
- ``audio``: decode, mix down, resample
- ``features``: waveform to log-mel frames to patches
- ``frames``: the store of frames on disk
- ``datasets``: source files into clips, classes and labels
- ``models``: MobileNetV1, ResNet-50 and probes over embeddings
- ``metrics``: lwlrap, AUC, d', average precision
- ``losses``: binary cross-entropy that ignores flagged labels
- ``train``: one resumable loop for teacher and students
- ``scoring``: frames to clip scores; folds and cross-fitting
- ``bracketing``: exact order statistics of scores larger than memory
- ``counting``: how many labels of a class are missing
- ``flagging``: thresholds, flags, policies
- ``scan_inputs``, ``scan_page``, ``scan``: suspects and counts from labels and scores alone
- ``evaluation``: scores and labels to results with intervals
- ``students``: what each student of a sweep ignores, and their training
- ``sweep``: students at all operating points, evaluated with controls
- ``figures``: the paper's figures and ours
- ``verdict``: what the results say, in a sentence
- ``tables``: the paper's tables, as CSV and LaTeX
- ``report``: one self-contained page
- ``pipeline``: all stages of one run
- ``console``, ``importing``, ``cli``: the command line, one verb per stage
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earmark import losses, metrics
    from earmark.errors import EarmarkError, EarmarkWarning
    from earmark.evaluation import evaluate
    from earmark.flagging import Thresholds, flag, ignored, thresholds
    from earmark.labels import LabelSet
    from earmark.params import PAPER_DISCARD_PERCENTS

__version__ = "0.1.0"

__all__ = [
    "PAPER_DISCARD_PERCENTS",
    "EarmarkError",
    "EarmarkWarning",
    "LabelSet",
    "Thresholds",
    "evaluate",
    "flag",
    "ignored",
    "losses",
    "metrics",
    "thresholds",
]

_HOMES = {
    "PAPER_DISCARD_PERCENTS": "params",
    "EarmarkError": "errors",
    "EarmarkWarning": "errors",
    "LabelSet": "labels",
    "Thresholds": "flagging",
    "evaluate": "evaluation",
    "flag": "flagging",
    "ignored": "flagging",
    "thresholds": "flagging",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for, so that importing earmark is instant."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"earmark.{_HOMES[name]}"), name)
    if name in ("losses", "metrics"):
        return importlib.import_module(f"earmark.{name}")
    raise AttributeError(f"module 'earmark' has no attribute {name!r}")
