"""The public names: what a prompt completes and shows, and which version it is."""

from __future__ import annotations

import re
from dataclasses import is_dataclass

import numpy as np
from typer.testing import CliRunner

import earmark
from documents import ROOT
from earmark import pipeline
from earmark.cli.app import app
from earmark.errors import short_repr
from earmark.flags import count_missing, survey
from earmark.labels import LabelSet
from earmark.metrics import evaluate
from earmark.scores import open_scores

LONGEST = 400
"""Characters that a prompt shows on a few lines."""


def test_a_prompt_completes_to_the_public_names() -> None:
    stub = (ROOT / "src" / "earmark" / "__init__.pyi").read_text()
    assert set(dir(earmark)) == set(re.findall(r" as (\w+)$", stub, re.MULTILINE))
    assert len(dir(earmark)) <= 18
    assert "scores" not in dir(earmark), "a room that was loaded is no public name"


def test_the_version_has_one_place() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"earmark {earmark.__version__}\n")
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == earmark.__version__
    assert "\nversion =" not in (ROOT / "pyproject.toml").read_text().partition("[tool.")[0]


def test_results_of_labels_and_scores_are_short() -> None:
    random = np.random.default_rng(0)
    states = random.choice(np.array([1, -1, 0], np.int8), (900, 30), p=(0.1, 0.1, 0.8))
    logits = (2.0 * states + random.normal(size=states.shape)).astype(np.float32)
    labels = LabelSet.from_dense(states)
    found = [
        labels,
        earmark.thresholds(labels, logits),
        count_missing(labels, logits),
        survey(labels, logits),
        evaluate(states, logits),
        open_scores(logits, labels),
    ]
    for result in found:
        assert len(repr(result)) < LONGEST, type(result)
        assert "\n" not in repr(result), type(result)
    n_present = (states > 0).sum()
    assert repr(labels).startswith("LabelSet(900 clips, 30 classes; explicit labels: ")
    assert f"{n_present:,} present" in repr(labels)
    assert repr(found[1]).startswith("Thresholds(30 classes at 0")


def test_every_stage_returns_what_a_prompt_can_show() -> None:
    results = [getattr(pipeline, name) for name in pipeline.__all__]
    shown = [result for result in results if is_dataclass(result)]
    assert len(shown) > 20
    assert all(result.__repr__ is short_repr for result in shown)
