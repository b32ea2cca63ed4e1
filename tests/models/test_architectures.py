from __future__ import annotations

import hashlib
import math

import pytest
import torch

from earmark.config import ModelParams
from earmark.errors import EarmarkError
from earmark.models import build_model, build_probe, cost, kept_units
from earmark.models.architectures import draws

MOBILENET = ModelParams(architecture="mobilenet_v1")
RESNET = ModelParams(architecture="resnet50")


@pytest.mark.parametrize(
    ("params", "n_classes", "n_parameters", "n_multiply_adds"),
    [
        (MOBILENET, 521, 3_729_481, 69_165_056),
        (RESNET, 3_087, 29_827_023, 1_856_403_456),
    ],
)
def test_the_networks_have_the_papers_size(
    params: ModelParams, n_classes: int, n_parameters: int, n_multiply_adds: int
) -> None:
    size = cost(params, n_classes)
    assert (size.n_parameters, size.n_multiply_adds) == (n_parameters, n_multiply_adds)


@pytest.mark.parametrize(("params", "grid"), [(MOBILENET, (3, 2)), (RESNET, (6, 4))])
def test_the_mean_is_taken_over_the_papers_grid(params: ModelParams, grid: tuple[int, int]) -> None:
    network = build_model(params.model_copy(update={"width": 0.125}), 4)
    assert network.body(torch.zeros(1, 1, 96, 64)).shape[2:] == grid


def test_strided_convolutions_pad_at_the_end_only() -> None:
    network = build_model(ModelParams(width=0.25), 4)
    stem = network.body[0]
    image = torch.zeros(1, 1, 96, 64)
    image[0, 0, 0, 0] = 1.0  # only the first output may see the first pixel, at kernel place (0, 0)
    output = stem(image)
    assert torch.equal(output[0, :, 0, 0], stem.weight[:, 0, 0, 0])
    assert output.count_nonzero() == output[0, :, 0, 0].count_nonzero()


def test_an_initialisation_that_cannot_learn_is_refused() -> None:
    with pytest.raises(EarmarkError, match=r"init_sd = 0\.001.*norm_epsilon = 0\.0001"):
        build_model(ModelParams(init_sd=0.001, norm_epsilon=1e-4), 4)


PROBES = ("linear_probe", "mlp_probe", "attention_probe")


@pytest.mark.parametrize("architecture", PROBES)
def test_a_stack_of_probes_is_the_same_as_each_alone(architecture: str) -> None:
    params = ModelParams(architecture=architecture, n_hidden=8, dropout=0.5)
    stack, alone = build_probe(params, 5, 3, n_students=2), build_probe(params, 5, 3)
    frames, n_frames = torch.randn(4, 6, 5), torch.tensor([6, 1, 3, 6])
    logits = []
    for probe in (stack, alone):
        probe.reseed(7, 0, 1)
        logits.append(probe.train()(frames, n_frames))
    assert logits[0].shape == (2, 4, 3)
    for student in logits[0]:
        assert torch.allclose(student, logits[1][0], atol=1e-6)


@pytest.mark.parametrize("architecture", PROBES)
def test_padding_does_not_change_what_a_probe_sees(architecture: str) -> None:
    probe = build_probe(ModelParams(architecture=architecture), 5, 3).eval()
    frames = torch.randn(1, 4, 5)
    padded = torch.cat([frames, torch.full((1, 3, 5), 99.0)], dim=1)
    n_frames = torch.tensor([4])
    assert torch.allclose(probe(frames, n_frames), probe(padded, n_frames), atol=1e-6)


def test_a_probe_drops_nothing_when_it_scores_and_repeats_its_masks_when_reseeded() -> None:
    probe = build_probe(ModelParams(architecture="linear_probe", dropout=0.5), 5, 3)
    inputs = torch.randn(2, 4, 5), torch.tensor([4, 4])
    assert torch.equal(probe.eval()(*inputs), probe(*inputs))
    outputs = []
    for keys in ((1, 2), (1, 2), (1, 3)):
        probe.train().reseed(*keys)
        outputs.append(probe(*inputs))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_a_query_attends_to_the_frames_that_it_matches() -> None:
    params = ModelParams(architecture="attention_probe", n_queries=2, n_hidden=1)
    probe = build_probe(params, 2, 1).eval()
    frames = torch.tensor([[[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]]])
    with torch.no_grad():
        assert probe.queries is not None
        probe.queries.copy_(torch.tensor([[[1e3, 0.0], [0.0, 1e3]]]))
        for weight in probe.weights:
            weight.zero_()
        probe.weights[0][0, 6:, 0] = torch.tensor([1.0, 0.0, 0.0, 1.0])  # past the statistics
        probe.weights[1].fill_(1.0)
    # the first query finds 9 in the first feature, the second 9 in the second: relu(9 + 9)
    assert probe(frames, torch.tensor([3])).item() == pytest.approx(18)


@pytest.mark.parametrize("architecture", PROBES)
def test_a_probe_may_look_at_frames_on_a_logarithmic_scale(architecture: str) -> None:
    params = ModelParams(architecture=architecture, n_hidden=4)
    plain = build_probe(params, 3, 2).eval()
    compressed = build_probe(params.model_copy(update={"compression": 10.0}), 3, 2).eval()
    frames = torch.tensor([[[0.0, 1.0, -2.0], [0.5, -0.1, 30.0]]])
    looked_at = torch.tensor(
        [[[math.copysign(math.log(1 + 10 * abs(x)), x) for x in row] for row in frames[0].tolist()]]
    )
    n_frames = torch.tensor([2])
    assert torch.allclose(compressed(frames, n_frames), plain(looked_at, n_frames), atol=1e-5)
    assert not torch.allclose(compressed(frames, n_frames), plain(frames, n_frames), atol=1e-2)
    assert torch.equal(plain.compressed(frames), frames)


def test_units_saturate_where_it_is_asked_for() -> None:
    networks = [build_model(ModelParams(width=0.125, relu_limit=limit), 4) for limit in (None, 6.0)]
    unlimited, limited = networks
    assert isinstance(unlimited.body[2], torch.nn.ReLU)
    unit = limited.body[2]
    assert unit(torch.tensor([-1.0, 3.0, 6.5])).tolist() == [0, 3, 6]
    loud = 1_000 * torch.randn(2, 96, 64, generator=torch.Generator().manual_seed(0))
    for network in networks:
        network.eval()
        with torch.no_grad():
            network.body[-2].bias.fill_(9)
    assert limited.embed(loud).max() <= 6
    assert unlimited.embed(loud).max() > 6
    size = [cost(ModelParams(width=0.125, relu_limit=limit), 4) for limit in (None, 6.0)]
    assert size[0] == size[1]


def test_one_student_is_a_network_of_its_own() -> None:
    stack = build_probe(ModelParams(architecture="mlp_probe", n_hidden=8), 64, 2, 2).eval()
    inputs = torch.randn(2, 96, 64), torch.tensor([96, 50])
    with torch.inference_mode():
        for values in stack.parameters():
            values[1] += 1
        together = stack(*inputs)
        for student in (0, 1):
            alone = stack.student(student)
            assert alone.n_students == 1
            assert torch.allclose(alone(*inputs)[0], together[student])


def digest(network: torch.nn.Module) -> str:
    values = b"".join(one.detach().numpy().tobytes() for one in network.parameters())
    return hashlib.sha256(values).hexdigest()[:16]


def test_initial_weights_are_these_bytes_on_every_machine() -> None:
    narrow = ModelParams(width=0.25)
    assert digest(build_model(narrow, 5, seed=3)) == "fc2fbcaef0355cb3"
    attending = ModelParams(architecture="attention_probe", n_hidden=16)
    assert digest(build_probe(attending, 8, 5, n_students=2, seed=3)) == "435d3843cb75b5be"


def test_dropout_keeps_its_share_and_follows_the_seed() -> None:
    kept = kept_units((301, 333), 0.7, draws(0))
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    assert abs(kept.mean() - 0.7) < 0.005
    assert torch.equal(kept, kept_units((301, 333), 0.7, draws(0)))
    assert not torch.equal(kept, kept_units((301, 333), 0.7, draws(1)))
    assert kept_units((3, 5), 1.0, draws(0)).all()
