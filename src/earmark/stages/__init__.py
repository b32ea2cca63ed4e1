"""Every verb's work as one Python function with a typed result: what a notebook calls.

A stage opens what it needs, calls the rooms below, writes what it made into the workspace and
returns it. It takes a workspace or its folder, and a recipe (the one used last, where none is
given). It runs in this process unless an engine is passed, and shows its progress unless it is
given another. Options, printing and advice on what to do next belong to :mod:`earmark.cli`.

Rooms that import torch or a web server are imported inside the functions, because ``scan``,
``write_flags`` and most others do without.

>>> from earmark import stages
>>> stages.scan.__name__, stages.write_flags.__name__
('scan', 'write_flags')
"""

from dataclasses import is_dataclass

from earmark.errors import short_repr
from earmark.stages.checks.card import WrittenCard, write_card
from earmark.stages.checks.check import CheckedDataset, check_dataset, check_files
from earmark.stages.checks.difference import ComparedLabels, compare_labels
from earmark.stages.checks.evaluation import evaluate_scores
from earmark.stages.checks.lint import CheckedLabels, check_labels
from earmark.stages.find import FoundMissing, default_work, find
from earmark.stages.flag import (
    Exported,
    Flagged,
    export_atlas,
    export_hub,
    export_labels,
    write_flags,
)
from earmark.stages.listening.queue import DrawnQueue, draw_ahead, draw_queue
from earmark.stages.listening.raters import HeardRaters, draw_adjudication, weigh_raters
from earmark.stages.listening.review import (
    CorrectedLabels,
    HeardPrecision,
    correct_labels,
    export_judgements,
    import_judgements,
    measure_precision,
    serve_review,
)
from earmark.stages.models import ExportedModel, TaggedFile, export_model, tag_files
from earmark.stages.opening import choose_recipe, choose_tracker, open_scored, open_workspace
from earmark.stages.prepare import (
    Dealt,
    Features,
    Hidden,
    Subset,
    hide_labels,
    make_dataset,
    make_features,
    make_mixtures,
    split_dataset,
    take_subset,
)
from earmark.stages.report import make_report
from earmark.stages.scanning.own_scores import ScoredByFile, score_by_file
from earmark.stages.scanning.scan import ScanResult, scan
from earmark.stages.study import Compared, Iterated, Swept, compare, iterate, sweep
from earmark.stages.teach import Trained, keep_own_scores, score, train_teacher
from earmark.stages.teachers import Taught, asked_recipe, default_teacher, examined, teach
from earmark.stages.whole.demo import Demo, run_demo
from earmark.stages.whole.run import Outcome, run

__all__ = [
    "CheckedDataset",
    "CheckedLabels",
    "Compared",
    "ComparedLabels",
    "CorrectedLabels",
    "Dealt",
    "Demo",
    "DrawnQueue",
    "Exported",
    "ExportedModel",
    "Features",
    "Flagged",
    "FoundMissing",
    "HeardPrecision",
    "HeardRaters",
    "Hidden",
    "Iterated",
    "Outcome",
    "ScanResult",
    "ScoredByFile",
    "Subset",
    "Swept",
    "TaggedFile",
    "Taught",
    "Trained",
    "WrittenCard",
    "asked_recipe",
    "check_dataset",
    "check_files",
    "check_labels",
    "choose_recipe",
    "choose_tracker",
    "compare",
    "compare_labels",
    "correct_labels",
    "default_teacher",
    "default_work",
    "draw_adjudication",
    "draw_ahead",
    "draw_queue",
    "evaluate_scores",
    "examined",
    "export_atlas",
    "export_hub",
    "export_judgements",
    "export_labels",
    "export_model",
    "find",
    "hide_labels",
    "import_judgements",
    "iterate",
    "keep_own_scores",
    "make_dataset",
    "make_features",
    "make_mixtures",
    "make_report",
    "measure_precision",
    "open_scored",
    "open_workspace",
    "run",
    "run_demo",
    "scan",
    "score",
    "score_by_file",
    "serve_review",
    "split_dataset",
    "sweep",
    "tag_files",
    "take_subset",
    "teach",
    "train_teacher",
    "weigh_raters",
    "write_card",
    "write_flags",
]

for _name in __all__:  # results hold tables and arrays; a prompt shows them on one line
    if is_dataclass(_result := globals()[_name]):
        _result.__repr__ = short_repr  # type: ignore[method-assign]
