from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import earmark
from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.experiments import Student, Supervision, one_point
from earmark.labels import LabelSet
from earmark.losses import by_student, norms
from earmark.scores import ScoreFolder
from extras import run_without
from scenes import PROBE
from students import targets_of
from told_workspace import N_TRAIN, TREE, told_workspace, write_chances

FLAGGING = [
    *(f"{name}@10" for name in ("mask", "flip", "soft", "hedge", "weight", "random")),
    *("precision/soft@0.5", "positives_quantile/mask@0.25", "psla/mask@0.25", "global/hedge@0.6"),
    *("confident/soft", "budget/hedge@5", "ancestors/flip", "distil", "all/weight"),
    *("chance/hedge@0", "chance/soft@0.3", "chance/percentile/hedge@6", "filled+hedge@10"),
]
RIVALS = [
    *("weak-negatives@0.1", "an-ls", "em@0.2", "splc", "ll-r@5"),
    *("consistency", "hedge@10+em", "filled", "mask@0"),
]
STRATEGIES = [name.replace("@10+em", "+em@10") for name in (*FLAGGING, *RIVALS)]
OF_WORKSPACES = ["truth", "oracle/mask", "truth+an-ls"]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, ScoreFolder]:
    workspace, scores = told_workspace(tmp_path_factory.mktemp("told"))
    write_chances(workspace, scores)
    return workspace, scores


class Sweep:
    """A student of ``earmark compare``: what its training makes of logits."""

    def __init__(self, workspace: Workspace, scores: ScoreFolder, name: str) -> None:
        strategy, point = one_point(name)
        student = Student(PROBE, "train", 7, strategy, point).trained
        self.provider = targets_of(workspace, scores, [student])

    def loss(self, logits: Tensor, rows: np.ndarray, epoch: int, reduction: Any) -> Tensor:
        """As the loop computes it (``earmark.training.loop``)."""
        targets = self.provider.targets(rows)
        entries = self.provider.entries(logits.unsqueeze(0), targets, epoch)
        return by_student(entries, norms(targets.weight, reduction).expand(1)).sum()


def assert_the_same(own: Supervision, sweep: Sweep) -> None:
    """Compare losses and gradients over two epochs of batches, memories included."""
    random = np.random.default_rng(3)
    for epoch in (0, 1):
        for reduction in ("sum", "mean_kept"):
            rows = random.permutation(N_TRAIN)[:50]
            values = torch.from_numpy(random.normal(0, 2, (50, 4)).astype(np.float32))
            found, expected = (values.clone().requires_grad_() for _ in range(2))
            loss = own.loss(found, rows, epoch=epoch, reduction=reduction)
            told = sweep.loss(expected, rows, epoch, reduction)
            assert loss.item() == told.item()
            loss.backward()
            told.backward()
            assert found.grad is not None
            assert torch.equal(found.grad, expected.grad)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_loss_is_that_of_a_student_of_the_sweep(
    scored: tuple[Workspace, ScoreFolder], name: str
) -> None:
    workspace, scores = scored
    train = workspace.rows("train")
    own = Supervision(
        workspace.labels.select(train),
        scores.logits_path,
        name,
        ontology=TREE,
        recordings=workspace.clips["source"].gather(train).to_list(),
        seed=7,
    )
    assert_the_same(own, Sweep(workspace, scores, name))


@pytest.mark.parametrize("name", ["hedge@10", "chance/hedge@0", "consistency", *OF_WORKSPACES])
def test_a_workspace_tells_what_its_students_are_told(
    scored: tuple[Workspace, ScoreFolder], name: str
) -> None:
    own = Supervision.from_workspace(scored[0].root, name, seed=7)
    assert_the_same(own, Sweep(*scored, name))


def test_what_is_told_differs_from_the_labels_as_they_are(
    scored: tuple[Workspace, ScoreFolder],
) -> None:
    """Else all of the comparisons above would be of nothing."""
    labels, logits = scored[0].labels.select(scored[0].rows("train")), scored[1].logits
    plain = torch.from_numpy((labels.states() > 0).astype(np.float32))
    for name in FLAGGING:
        told = Supervision(labels, logits, name, ontology=TREE)
        target, weight = told.targets(range(N_TRAIN))
        assert not (torch.equal(target, plain) and bool((weight == 1).all())), name


def made_up(n_clips: int = 60, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    states = random.choice(np.array([1, -1, 0], np.int8), (n_clips, n_classes), p=(0.2, 0.1, 0.7))
    return states, (2.0 * states + random.normal(size=states.shape)).astype(np.float32)


def test_labels_and_scores_come_in_any_form(tmp_path: Path) -> None:
    states, logits = made_up()
    np.save(tmp_path / "scores.npy", logits)
    expected = Supervision(LabelSet.from_dense(states), logits, "hedge@10").targets([3, 5])
    for labels in (states, torch.from_numpy(states), states.tolist()):
        for scores in (
            tmp_path / "scores.npy",
            str(tmp_path / "scores.npy"),
            np.load(tmp_path / "scores.npy", mmap_mode="r"),
            np.asfortranarray(logits),
            logits.astype(np.float64),
            torch.from_numpy(logits).requires_grad_(),
        ):
            found = Supervision(labels, scores, "hedge@10").targets([3, 5])  # type: ignore[arg-type]
            assert all(map(torch.equal, found, expected))


def test_chances_of_scores_in_a_file_are_those_of_scores_in_memory(tmp_path: Path) -> None:
    states, logits = made_up(400)
    np.save(tmp_path / "scores.npy", logits)
    in_memory = Supervision(states, logits, "chance/hedge@0")
    in_file = Supervision(states, tmp_path / "scores.npy", "chance/hedge@0")
    assert torch.equal(in_memory.targets(range(400))[0], in_file.targets(range(400))[0])


def test_chances_may_be_given(tmp_path: Path) -> None:
    states, logits = made_up()
    np.save(tmp_path / "chances.npy", logits - 3)
    told = Supervision(states, None, "chance/hedge@0", chances=tmp_path / "chances.npy")
    target, weight = told.targets([4])
    hedged = 1 / (1 + np.exp(3 - logits[4])) / 2
    np.testing.assert_allclose(
        target[0], np.where(states[4] == 0, hedged, states[4] > 0), rtol=1e-5
    )
    assert bool((weight == 1).all())


@pytest.mark.parametrize(
    "rows", [[5, 2, 2], np.array([5, 2, 2]), torch.tensor([5, 2, 2]), range(3)]
)
def test_rows_come_in_any_form(rows: Any) -> None:
    states, logits = made_up()
    told = Supervision(states, logits, "hedge@10")
    target, _ = told.targets(rows)
    assert target.shape == (3, 3)
    assert torch.equal(target[1:2], told.targets(int(rows[1]))[0])


def test_an_ignored_label_has_no_gradient_and_others_have(tmp_path: Path) -> None:
    states, logits = made_up()
    told = Supervision(states, logits, "mask@20")
    rows = np.arange(60)
    outputs = torch.zeros(60, 3, requires_grad=True)
    told.loss(outputs, rows).backward()
    edges = earmark.thresholds(told.labels, logits, 20).values[0]
    is_ignored = earmark.ignored(states, logits, edges)
    assert is_ignored.any()
    assert outputs.grad is not None
    np.testing.assert_array_equal(outputs.grad.numpy() == 0, is_ignored)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["hedge@10", "splc", "em@0.1", "ll-r@5"])
def test_short_numbers_lose_nothing_in_the_loss(name: str, dtype: torch.dtype) -> None:
    states, logits = made_up()
    values = torch.linspace(-30, 30, 12).view(4, 3)
    outputs = values.to(dtype).requires_grad_()
    loss = Supervision(states, logits, name).loss(outputs, range(4), epoch=1)
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    exact = Supervision(states, logits, name).loss(values.to(dtype).double(), range(4), epoch=1)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-6)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad.dtype == dtype
    assert bool(outputs.grad.isfinite().all())


def test_the_loss_is_where_the_logits_are() -> None:
    states, logits = made_up()
    told = Supervision(states, logits, "hedge@10")
    assert told.loss(torch.zeros(2, 3, device="meta"), [0, 1]).device.type == "meta"
    assert told.targets([0, 1], "meta")[0].device.type == "meta"


def test_mixed_precision_gives_the_same_loss() -> None:
    states, logits = made_up()
    told, network = Supervision(states, logits, "hedge@10"), torch.nn.Linear(5, 3)
    inputs = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        outputs = network(inputs)
        loss = told.loss(outputs, range(4))
    assert outputs.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, told.loss(outputs.float(), range(4)))


def test_targets_and_loss_agree_for_a_loss_of_ones_own() -> None:
    states, logits = made_up()
    told, outputs = Supervision(states, logits, "weight@20"), torch.randn(8, 3)
    target, weight = told.targets(range(8))
    entries = told.loss(outputs, range(8), reduction="none")
    own = torch.nn.functional.binary_cross_entropy_with_logits(
        outputs, target, weight, reduction="none"
    )
    torch.testing.assert_close(entries, own)
    torch.testing.assert_close(told.loss(outputs, range(8)), own.sum() / 8)


def test_what_a_rule_remembers_goes_into_a_checkpoint() -> None:
    states, _ = made_up()
    outputs = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    recordings = [row // 3 for row in range(60)]

    def new() -> Supervision:
        return Supervision(states, strategy="consistency", recordings=recordings)

    first, resumed = new(), new()
    first.loss(outputs, range(30))
    forgetful = new().loss(-outputs, range(30))
    resumed.load_state_dict(first.state_dict())
    assert resumed.loss(-outputs, range(30)) == first.loss(-outputs, range(30)) != forgetful
    assert Supervision(states, strategy="em@0.1").state_dict() == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"strategy": "hedge"}, "one operating point.*hedge@1"),
        ({"strategy": "hedge@1,2"}, "one operating point"),
        ({"strategy": "hedgehog@1"}, "did you mean 'hedge'"),
        ({"strategy": "hedge@1+adjust"}, "after @ come numbers"),
        ({"strategy": "hedge+adjust@1"}, "'adjust' changes the scores"),
        ({"strategy": "corrected+hedge@1"}, "from_workspace"),
        ({"strategy": "oracle/mask"}, "from_workspace"),
        ({"scores": None}, "'hedge@10' needs scores"),
        ({"strategy": "filled"}, "needs ontology"),
        ({"strategy": "consistency"}, "needs recordings"),
        ({"strategy": "consistency", "recordings": ["a"]}, "each of 60 clips, got 1"),
        ({"scores": np.zeros((3, 60))}, r"expected shape \(60, 3\).*transpose"),
        ({"scores": np.full((60, 3), 0.5)}, "give logits and not probabilities"),
        ({"scores": np.zeros((60, 3)) - 1, "strategy": "chance/hedge@0"}, "do not know the labels"),
        ({"labels": np.full((2, 2), 0.5)}, r"\+1, -1 or 0"),
    ],
)
def test_what_cannot_be_told_is_refused(given: dict[str, Any], told: str) -> None:
    states, logits = made_up()
    arguments = {"labels": states, "scores": logits, "strategy": "hedge@10"} | given
    with pytest.raises(EarmarkError, match=told):
        Supervision(**arguments)


@pytest.mark.parametrize(
    ("logits", "rows", "told"),
    [
        (torch.zeros(2, 3), [0], r"shape \(1, 3\).*got torch.float32 \(2, 3\)"),
        (torch.zeros(1, 4), [0], r"got torch.float32 \(1, 4\)"),
        (torch.zeros(1, 3), [60], "from 0 to 59"),
        (torch.zeros(1, 3), [-1], "from 0 to 59"),
        (torch.zeros(1, 3), [0.0], "got float64"),
    ],
)
def test_batches_that_do_not_fit_are_named(logits: Tensor, rows: list[Any], told: str) -> None:
    states, scores = made_up()
    with pytest.raises(EarmarkError, match=told):
        Supervision(states, scores, "hedge@10").loss(logits, rows)


@pytest.mark.parametrize("name", ["splc", "ll-r@1"])
def test_rules_that_change_with_the_epoch_ask_for_it(name: str) -> None:
    told = Supervision(made_up()[0], strategy=name)
    with pytest.raises(EarmarkError, match="pass the epoch"):
        told.loss(torch.zeros(1, 3), [0])


def test_it_can_be_sent_to_another_process(tmp_path: Path) -> None:
    states, logits = made_up(5_000)
    np.save(tmp_path / "scores.npy", logits)
    told = Supervision(LabelSet.from_dense(states), tmp_path / "scores.npy", "hedge@10")
    expected = told.targets(range(50))
    sent = pickle.dumps(told)
    again = pickle.loads(sent)
    assert all(map(torch.equal, again.targets(range(50)), expected))
    assert logits[:50].tobytes() not in sent, "scores of a file are read there, and not sent"
    assert logits[:50].tobytes() in pickle.dumps(Supervision(states, logits, "hedge@10"))


def test_it_shows_itself_in_one_line() -> None:
    assert repr(Supervision(*made_up())) == "Supervision('hedge@1', 60 x 3 labels)"


def test_importing_earmark_needs_no_torch_and_supervision_says_so() -> None:
    result = run_without(["torch"], ["-c", "import earmark; earmark.LabelSet; earmark.Supervision"])
    assert result.returncode == 1
    assert "earmark[train]" in result.stderr
    assert "in LabelSet" not in result.stderr
