from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.errors import EarmarkError
from earmark.experiments.rounds import run_rounds
from earmark.experiments.strategies import one_point
from earmark.experiments.sweep import by_seed
from earmark.runs.parameters import CompareParams
from earmark.scores.folder import ScoreFolder
from scenes import FOLDS, ONE, PROBE, scored_workspace

PARAMS = CompareParams(seeds=(0, 1), n_resamples=100)


def test_every_round_has_a_teacher_of_its_own_and_a_row_in_the_curve(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    curve = run_rounds(workspace, PROBE, PARAMS, "mask@20", scores, FOLDS, 2, engine=ONE)
    shown = curve.filter(split="eval", labels="truth", metric="lwlrap")
    assert shown["round"].to_list() == [0, 1, 2]
    assert set(curve["n_seeds"]) == {2}
    assert set(curve["labels"]) == {"given", "ignored", "truth"}
    found = [
        ScoreFolder.open(workspace.scores_folder(f"probe-train-seed0-mask20{name}-teacher"))
        for name in ("", "-round1")
    ]
    assert all(one.out_of_fold for one in found)
    assert not np.array_equal(found[0].logits, found[1].logits)
    assert workspace.compare_table_path("rounds").exists()


def test_rounds_need_one_point() -> None:
    strategy, point = one_point("soft@2", PARAMS.discard_percents)
    assert (strategy.treatment, point) == ("soft", 2.0)
    with pytest.raises(EarmarkError, match="write it as in 'mask@1'"):
        one_point("mask", PARAMS.discard_percents)
    assert by_seed([]) == []
