"""Find the labels that a large multi-label sound dataset is missing, and train unhurt by them.

The package follows Fonseca et al. 2020 and reads like it. In this order, each module importing
only those above it:

- ``errors``: the one family of users' mistakes
- ``params``: frozen parameter records, recipe files, digests
- ``remote_files``: files named by a URL
- ``artefacts``: files that are either whole or not there
- ``progress``: how far a long job is
- ``engine``, ``ray_engine``, ``ray_training``: where work runs, here or on a cluster
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
- ``shards``, ``frames``: the store of frames on disk
- ``extraction``: sound files into that store, a task for each shard
- ``datasets``: source files into clips, classes and labels
- ``model_card``: what a trained network is, so that it can be used without its workspace
- ``models``: MobileNetV1, ResNet-50 and probes over embeddings
- ``metrics``: lwlrap, AUC, d', average precision
- ``intervals``, ``offsets``: how sure a number is; offsets per class
- ``losses``: binary cross-entropy that ignores flagged labels
- ``replicas``: processes that train one network together
- ``rivals``: losses that suspect labels without a teacher
- ``number_types``: float32, or mixed with a shorter type
- ``networks``: networks of any kind, built, written and loaded
- ``onnx_graphs``: networks as ONNX graphs, for use elsewhere and for faster scoring
- ``examples``, ``supervision``: what a network sees of clips, and what it is told about them
- ``batches``, ``augment``, ``loading``: which examples make a batch, changed and read how
- ``history``, ``checkpoints``: the course of a training, and its state on disk
- ``train``: one resumable loop for teacher and students
- ``scoring``: frames to clip scores; folds and cross-fitting
- ``class_maps``, ``foreign_models``, ``foreign_scoring``: a teacher from elsewhere
- ``kernels``, ``binning``: the loops over single scores, and passes over scores of any size
- ``bracketing``, ``sharded_scores``: exact order statistics of scores larger than memory
- ``histograms``, ``mixture``, ``counting``: how many labels of a class are missing
- ``operating_points``, ``policies``: the paper's thresholds, and other rules to flag by
- ``flagging``: flags, and what else scores tell at once
- ``strata``: implicit labels by class and band, in a fixed random order
- ``judgements``: the append-only store of raters' answers
- ``sampling``: the review queue, with blind controls
- ``judgement_files``: judgements and queues in other programs' formats
- ``precision``: how many flags are right; the raters' controls and agreement
- ``calibration``: judged samples to chances
- ``relabel``: judgements and labels to corrected labels
- ``scan_inputs``, ``scan_findings``, ``scan_page``, ``scan``: suspects and counts from labels and
  scores alone
- ``named_labels``: labels as given, corrected or true
- ``evaluation``: scores and labels to results, per class and overall
- ``measured_card``: a model card with figures
- ``held_out``: the teacher's scores of the evaluation splits
- ``strategies``, ``treatments``: what becomes of flagged labels, by name and batch by batch
- ``stacking``: students that train at once
- ``students``: what each student is told, and their training
- ``assessment``: students held against labels, with the calibration controls
- ``student_cards``: the model cards of students, with their figures
- ``sweep``: students at all operating points
- ``compare``, ``iterating``: strategies against one another; students as the next teachers
- ``figures``: the paper's figures and ours
- ``tagging``, ``timeline``: which classes a sound file holds, and when
- ``verdict``: what the results say, in a sentence
- ``tables``, ``class_tables``, ``comparison_tables``: the paper's tables and ours, as CSV and LaTeX
- ``bench_figures``: strategies compared, rounds of teaching, trainings
- ``charts``: what the report's page draws and tells
- ``summary``: what a run found, in plain words
- ``page_parts``, ``report_figures``, ``heard``, ``methods``: the parts of the report
- ``report``: one self-contained page
- ``pipeline``: all stages of one run
- ``review``: the listening page and its server
- ``console``, ``model_verbs``, ``reviewing``, ``comparing``, ``importing``, ``cli``: the command
  line, one verb per stage
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earmark import losses, metrics
    from earmark.errors import EarmarkError, EarmarkWarning
    from earmark.flags.counts import count_missing
    from earmark.flags.flag import flag
    from earmark.flags.thresholds import Thresholds, thresholds
    from earmark.labels.label_set import LabelSet
    from earmark.losses import ignored
    from earmark.metrics.evaluation import evaluate
    from earmark.runs.parameters import PAPER_DISCARD_PERCENTS

__version__ = "0.1.0"

__all__ = [
    "PAPER_DISCARD_PERCENTS",
    "EarmarkError",
    "EarmarkWarning",
    "LabelSet",
    "Thresholds",
    "count_missing",
    "evaluate",
    "flag",
    "ignored",
    "losses",
    "metrics",
    "thresholds",
]

_HOMES = {
    "PAPER_DISCARD_PERCENTS": "runs.parameters",
    "EarmarkError": "errors",
    "EarmarkWarning": "errors",
    "LabelSet": "labels.label_set",
    "Thresholds": "flags.thresholds",
    "count_missing": "flags.counts",
    "evaluate": "metrics.evaluation",
    "flag": "flags.flag",
    "ignored": "losses",
    "thresholds": "flags.thresholds",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for, so that importing earmark is instant."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"earmark.{_HOMES[name]}"), name)
    if name in ("losses", "metrics"):
        return importlib.import_module(f"earmark.{name}")
    raise AttributeError(f"module 'earmark' has no attribute {name!r}")
