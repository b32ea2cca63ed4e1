from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.losses import Targets, bce_entries
from earmark.networks.architectures import build_model, build_probe
from earmark.networks.layers import (
    Layers,
    SameConv,
    cross_entropies,
    frame_statistics,
    hidden_layer,
    on_cpu,
)
from earmark.networks.layers.compiled import (
    cross_entropy,
    depthwise_backward,
    depthwise_forward,
    rectify_and_drop,
    rectify_and_drop_backward,
)
from earmark.networks.layers.compiled import frame_statistics as describe_frames
from earmark.runs import ModelParams

Floats = NDArray[np.float32]
RECTIFIERS: dict[str, Callable[[], nn.Module | None]] = {
    "none": lambda: None,
    "ReLU": nn.ReLU,
    "ReLU6": lambda: nn.Hardtanh(0.0, 6.0),
}


@pytest.fixture(autouse=True)
def same_weights() -> None:
    """Draw the same weights in every run: those near a rectifier's edge fall on either side."""
    torch.manual_seed(0)


def images(*shape: int, seed: int = 0) -> Tensor:
    """Draw images far from zero, where a careless variance would lose its digits."""
    drawn = torch.from_numpy(np.random.default_rng(seed).normal(50, 3, shape)).float()
    return drawn.contiguous(memory_format=torch.channels_last)


def layers_of(n_channels: int, rectifier: nn.Module | None) -> Layers:
    norm = nn.BatchNorm2d(n_channels)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, n_channels))
        norm.bias.copy_(torch.linspace(-1, 1, n_channels))
    return Layers(*([norm] if rectifier is None else [norm, rectifier]))


def grads_of(layers: nn.Module, image: Tensor) -> list[Tensor]:
    """Return output and gradients of a sum whose parts weigh differently."""
    image = image.detach().requires_grad_()
    output = layers(image)
    weights = torch.linspace(-1, 1, output.numel(), dtype=image.dtype).view(output.shape)
    wanted = [image, *(p for p in layers.parameters() if p.requires_grad)]
    return [output.detach(), *torch.autograd.grad((output * weights).sum(), wanted)]


def test_a_gradient_of_the_gradient_is_refused_rather_than_wrong() -> None:
    convolved = Layers(
        *layers_of(8, nn.ReLU()), SameConv(8, 8, 3, 1, groups=8), *layers_of(8, None)
    )
    image = images(2, 8, 5, 7).requires_grad_()
    (slope,) = torch.autograd.grad(convolved(image).square().sum(), image, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()


def test_a_network_learns_the_same_as_by_torch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    patches = torch.from_numpy(np.random.default_rng(1).normal(-4, 1, (6, 96, 64))).float()
    for params in (
        ModelParams(width=0.25, relu_limit=6.0),
        ModelParams(architecture="resnet50", width=0.125),
    ):
        network = build_model(params, 5).train()
        plain = copy.deepcopy(network).double()  # torch's layers: this module's are for float32
        found, expected = grads_of(network, patches), grads_of(plain, patches.double())
        gaps = [
            float((one.double() - other).norm() / other.norm().clamp(min=1e-3))
            for one, other in zip(found, expected, strict=True)
        ]
        monkeypatch.setattr(on_cpu, "is_for", lambda image: False)
        by_torch = grads_of(build_model(params, 5).train(), patches)
        monkeypatch.undo()
        their_gaps = [
            float((one.double() - other).norm() / other.norm().clamp(min=1e-3))
            for one, other in zip(by_torch, expected, strict=True)
        ]
        # Units at zero fall on either side by rounding, in torch's float32 as in ours.
        assert np.median(gaps) < 2 * np.median(their_gaps) + 1e-4


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("n_channels", [8, 128])
def test_pointwise_convolutions_are_torchs_own(n_channels: int, stride: int) -> None:
    convolution = SameConv(n_channels, 2 * n_channels, 1, stride)
    image = images(2, n_channels, 6, 4)
    expected = nn.functional.conv2d(image, convolution.weight, stride=stride)
    torch.testing.assert_close(convolution(image), expected, rtol=1e-4, atol=1e-3)


def test_what_is_not_for_one_core_goes_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_cpu.is_for(images(1, 3, 2, 2))
    assert not on_cpu.is_for(images(1, 3, 2, 2).double())
    assert not on_cpu.is_for(torch.empty(0, 3, 2, 2))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert not on_cpu.is_for(images(1, 3, 2, 2))
    monkeypatch.undo()
    with torch.inference_mode():
        assert not on_cpu.is_for(images(1, 3, 2, 2))


def test_sums_are_the_same_whatever_the_batch_is_made_of() -> None:
    """Every channel's sum has one order: an image twice has the statistics of the image."""
    image = images(4, 16, 8, 8)
    once, twice = (
        Layers(*layers_of(16, nn.ReLU()), SameConv(16, 16, 3, 1, groups=16), nn.BatchNorm2d(16))
        for _ in range(2)
    )
    once(image), twice(torch.cat([image, image]).contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(once[0].running_mean, twice[0].running_mean, rtol=1e-6, atol=0)


@pytest.mark.parametrize("rectifier", RECTIFIERS)
@pytest.mark.parametrize("is_fixed", [False, True], ids=["batch", "kept"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(3, 8, 6, 8), (2, 24, 5, 7), (3, 600, 6, 4), (2, 16, 6, 5)])
def test_a_depthwise_convolution_and_its_norms_are_as_good_as_torch(
    shape: tuple[int, ...], stride: int, is_fixed: bool, rectifier: str
) -> None:
    n_channels = shape[1]
    convolution = SameConv(n_channels, n_channels, 3, stride, groups=n_channels)
    norms = [layers_of(n_channels, RECTIFIERS[rectifier]()) for _ in range(2)]
    ours = Layers(*norms[0], convolution, *norms[1]).train(not is_fixed)
    plain = nn.Sequential(*copy.deepcopy(list(ours))).train(not is_fixed).double()
    image = images(*shape) if not is_fixed else images(*shape) / 25 - 2
    found, expected = grads_of(ours, image), grads_of(plain, image.double())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=2e-4)
    for one, other in zip(ours.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-5)


def test_an_image_smaller_than_its_stride_goes_to_torch() -> None:
    convolution = SameConv(8, 8, 3, 2, groups=8)
    layers = Layers(nn.BatchNorm2d(8), nn.ReLU(), convolution, nn.BatchNorm2d(8)).eval()
    with pytest.raises(RuntimeError, match="Kernel size"):
        layers(images(1, 8, 1, 1))


def test_arrays_that_do_not_fit_are_refused() -> None:
    z, half, weights, values, grads = (
        np.zeros(shape, np.float32)
        for shape in [(2, 6, 4, 8), (2, 3, 2, 8), (8, 9), (6, 8), (2, 8)]
    )
    norms = (1e-5, 1.0, False, 1e-5, 1.0, False)

    def given(*, x: Floats = half, kernels: Floats = weights) -> tuple[Floats, ...]:
        return z, values, kernels, x, values.copy()

    depthwise_forward(*given(), half.copy(), *norms, 2)
    with pytest.raises(ValueError, match="x: expected 3 along axis 1, got 6"):
        depthwise_forward(*given(x=z.copy()), z.copy(), *norms, 2)
    with pytest.raises(ValueError, match="y: expected 3 along axis 1, got 6"):
        depthwise_forward(*given(), z.copy(), *norms, 2)
    with pytest.raises(ValueError, match="expected 1 or 2"):
        depthwise_forward(*given(), half.copy(), *norms, 3)
    with pytest.raises(TypeError, match="y: expected an array of float32"):
        depthwise_forward(*given(), half.astype(float), *norms, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one pixel"):
        depthwise_forward(z[:0], *given()[1:], half.copy(), *norms, 2)
    with pytest.raises(TypeError, match="expected 13 arguments"):
        depthwise_forward(z)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="weights: expected 8 along axis 0, got 7"):
        depthwise_forward(*given(kernels=weights[:7].copy()), half.copy(), *norms, 2)
    given_back = (*given(), half.copy())
    with pytest.raises(ValueError, match="to_z: expected 6 along axis 1, got 3"):
        depthwise_backward(*given_back, half.copy(), grads, weights.copy(), grads, *norms, 2)
    narrow = weights[:, :8].copy()
    with pytest.raises(ValueError, match="to_weights: expected 9 along axis 1, got 8"):
        depthwise_backward(*given_back, z.copy(), grads, narrow, grads.copy(), *norms, 2)


def told(shape: tuple[int, int, int], kind: str, *, is_shared: bool, seed: int = 0) -> Targets:
    """Draw targets of 0, 1 and between, and a mask or weights."""
    random = np.random.default_rng(seed)
    shape = (1 if is_shared else shape[0], *shape[1:])
    target = random.choice([0, 0.3, 1], shape).astype(np.float32)
    weight = (
        random.random(shape).astype(np.float32) if kind == "weights" else random.random(shape) < 0.7
    )
    given = (torch.from_numpy(one) for one in (target, weight, target[0] == 0))
    return Targets(*given)


@pytest.mark.parametrize("kind", ["mask", "weights"])
@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 16, 64), (4, 3, 527)])
def test_cross_entropy_and_its_slopes_are_torchs(
    shape: tuple[int, int, int], is_shared: bool, kind: str
) -> None:
    random = np.random.default_rng(1)
    values = torch.from_numpy(random.normal(0, 8, shape)).float()
    weights = torch.from_numpy(random.normal(size=shape)).float()
    targets, results = told(shape, kind, is_shared=is_shared), []
    for loss, logits in ((cross_entropies, values), (bce_entries, values.double())):
        own = logits.clone().requires_grad_()
        entries = loss(own, targets if logits is values else doubled(targets))
        (entries * weights).sum().backward()
        results.append((entries.detach().double(), own.grad.double()))
    for ours, exact in zip(*results, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-6, atol=1e-6)


def doubled(targets: Targets) -> Targets:
    weight = targets.weight if targets.weight.dtype == torch.bool else targets.weight.double()
    return Targets(targets.target.double(), weight, targets.implicit)


def test_cross_entropy_is_exact_far_out_and_tells_what_is_no_number() -> None:
    logits = torch.tensor(
        [[[-1e30, -200, -87.5, -20, -1e-8, 0, 1e-8, 20, 87.5, 200, 1e30, np.nan]]]
    )
    for target in (torch.zeros_like(logits), torch.ones_like(logits)):
        own = logits.clone().requires_grad_()
        entries = cross_entropies(own, Targets(target, target == target, target[0] == 0))
        entries.sum().backward()
        exact = bce_entries(
            logits.double(), Targets(target.double(), target == target, target[0] == 0)
        )
        torch.testing.assert_close(
            entries[..., :-1].double(), exact[..., :-1], rtol=3e-7, atol=1e-14
        )
        slopes = logits.double().sigmoid() - target
        torch.testing.assert_close(own.grad.double(), slopes, rtol=1e-6, atol=1e-7, equal_nan=True)
        assert entries[..., -1].isnan()


def test_the_gradient_of_a_gradient_of_cross_entropy_is_torchs() -> None:
    values, found = torch.linspace(-3, 3, 24).view(2, 3, 4), []
    targets = told((2, 3, 4), "mask", is_shared=True)
    for loss in (cross_entropies, bce_entries):
        logits = values.mT.contiguous().mT.requires_grad_()  # with gaps
        (slopes,) = torch.autograd.grad(loss(logits, targets).sum(), logits, create_graph=True)
        found.append(torch.autograd.grad(slopes.square().sum(), logits)[0])
    torch.testing.assert_close(*found)


def test_cross_entropy_takes_a_part_of_a_batch() -> None:
    targets = told((3, 8, 5), "mask", is_shared=False)
    part = Targets(targets.target[:, :4], targets.weight[:, :4], targets.implicit[:4])
    logits = torch.randn(3, 8, 5, requires_grad=True)
    assert torch.equal(
        cross_entropies(logits[:, :4], part), cross_entropies(logits, targets)[:, :4]
    )


def test_labels_that_do_not_fit_are_refused() -> None:
    logits, labels = np.zeros((3, 8), np.float32), np.zeros((1, 8), np.float32)
    entries, slopes = logits.copy(), logits.copy()
    cross_entropy(logits, labels, entries, slopes, labels == 0)
    with pytest.raises(ValueError, match="targets: expected 3 along axis 0, got 2"):
        cross_entropy(logits, logits[:2].copy(), entries, slopes, labels)
    with pytest.raises(ValueError, match="weights: expected 8 along axis 1, got 7"):
        cross_entropy(logits, labels, entries, slopes, labels[:, :7].copy())
    with pytest.raises(ValueError, match="slopes: expected 3 along axis 0, got 1"):
        cross_entropy(logits, labels, entries, labels.copy(), labels)
    with pytest.raises(TypeError, match="weights: expected an array of float32"):
        cross_entropy(logits, labels, entries, slopes, labels.astype(np.float64))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="weights: expected an array of bool"):
        cross_entropy(logits, labels, entries, slopes, labels.astype(np.int8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="logits: expected an array of float32"):
        cross_entropy(logits.astype(np.float64), labels, entries, slopes, labels)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected 5 arguments"):
        cross_entropy(logits)  # type: ignore[call-arg]


def test_cross_entropy_can_be_asked_for_its_slopes_twice() -> None:
    logits = torch.linspace(-3, 3, 24).view(2, 3, 4).requires_grad_()
    loss = cross_entropies(logits, told((2, 3, 4), "mask", is_shared=True)).sum()
    first, again = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, again)


def calls_of(module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note every call of a function, which goes on as before."""
    called: list[str] = []
    function = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: called.append(name) or function(*given))
    return called


@pytest.mark.parametrize("n_features", [128, 75, 1088])
@pytest.mark.parametrize("n_frames", [1, 10, 16, 300])
def test_statistics_of_frames_are_torchs_to_the_bit(
    n_frames: int, n_features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(n_frames)
    frames = torch.from_numpy(random.normal(3, 5, (9, n_frames, n_features))).float()
    n_valid = torch.from_numpy(random.integers(1, n_frames + 1, 9))
    frames[-1, 0, :2] = torch.tensor([np.nan, np.inf])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    called = calls_of(on_cpu, "frame_statistics", monkeypatch)
    found = frame_statistics(frames, n_valid)
    assert len(called) == (n_features % 64 == 0)
    monkeypatch.setattr(on_cpu, "is_for", lambda image: False)
    expected = frame_statistics(frames, n_valid)
    assert torch.equal(found.nan_to_num(-1.0), expected.nan_to_num(-1.0))
    plain = frames[0, : n_valid[0]].double()
    by_hand = torch.cat([plain.mean(dim=0), plain.std(dim=0, correction=0), plain.amax(dim=0)])
    torch.testing.assert_close(found[0].double(), by_hand, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_learnt", [False, True], ids=["shared inputs", "inputs that learn"])
@pytest.mark.parametrize("n_units", [64, 75, 1088])
@pytest.mark.parametrize("n_clips", [1, 16, 40, 300])
def test_a_hidden_layer_of_probes_is_torchs_to_the_bit(
    n_clips: int, n_units: int, is_learnt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(n_clips)
    drawn = (
        torch.from_numpy(random.normal(size=shape)).float()
        for shape in [(3 if is_learnt else 1, n_clips, 12), (3, 12, n_units), (3, 1, n_units)]
    )
    inputs, weight, bias = drawn
    learnt = [weight.requires_grad_(), bias.requires_grad_()]
    learnt += [inputs.requires_grad_()] if is_learnt else []
    keep = torch.from_numpy(random.random((n_clips, n_units)) < 0.7).float() / 0.7
    weights = torch.from_numpy(random.normal(size=(3, n_clips, n_units))).float()

    def learn() -> list[Tensor]:
        hidden = hidden_layer(inputs.expand(3, -1, -1), weight, bias, keep)
        return [hidden.detach(), *torch.autograd.grad((hidden * weights).sum(), learnt)]

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    called = calls_of(on_cpu, "hidden_layer", monkeypatch)
    found = learn()
    assert len(called) == (n_units % 64 == 0)
    monkeypatch.setattr(on_cpu, "is_for", lambda image: False)
    for one, other in zip(found, learn(), strict=True):
        assert torch.equal(one, other)


def test_probes_that_learn_take_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    params = ModelParams(architecture="mlp_probe", n_hidden=64, dropout=0.3)
    probes = build_probe(params, 64, 7, n_students=3).train()
    called = [calls_of(on_cpu, name, monkeypatch) for name in ("frame_statistics", "hidden_layer")]
    probes(torch.ones(5, 4, 64), torch.full((5,), 4)).sum().backward()
    assert [len(one) for one in called] == [1, 1]
    assert probes.weights[0].grad.any()


def test_a_hidden_layer_of_other_types_is_torchs() -> None:
    inputs, weight, bias = torch.ones(1, 4, 8), torch.ones(2, 8, 64), torch.zeros(2, 1, 64)
    keep = torch.ones(4, 64)
    with torch.autocast("cpu", torch.bfloat16):
        assert hidden_layer(inputs.expand(2, -1, -1), weight, bias, keep)[0, 0, 0] == 8
    assert hidden_layer(inputs.expand(2, -1, -1), weight, bias, keep.double()).dtype == torch.double


def test_a_hidden_layer_tells_what_is_no_number() -> None:
    inputs = torch.tensor([[[np.nan], [1.0]]])
    weight, bias = torch.ones(1, 1, 64, requires_grad=True), torch.zeros(1, 1, 64)
    hidden = hidden_layer(inputs, weight, bias, torch.ones(2, 64))
    assert hidden[0, 0].isnan().all()
    assert (hidden[0, 1] == 1).all()
    hidden.sum().backward()
    assert weight.grad is not None
    assert weight.grad.isnan().all()


def test_clips_and_units_that_do_not_fit_are_refused() -> None:
    values, keep, bias = (np.ones(s, np.float32) for s in [(2, 3, 4), (3, 4), (2, 1, 4)])
    with pytest.raises(ValueError, match="keep: expected 3 along axis 0, got 2"):
        rectify_and_drop(values, keep[:2].copy())
    with pytest.raises(ValueError, match="keep: expected 4 along axis 1, got 3"):
        rectify_and_drop(values, keep[:, :3].copy())
    with pytest.raises(ValueError, match="to_bias: expected 2 along axis 0, got 1"):
        rectify_and_drop_backward(values, values, keep, values.copy(), bias[:1].copy())
    with pytest.raises(ValueError, match="to_values: expected 3 along axis 1, got 2"):
        rectify_and_drop_backward(values, values, keep, values[:, :2].copy(), bias)
    with pytest.raises(ValueError, match="kept: expected 2 along axis 0, got 1"):
        rectify_and_drop_backward(values, values[:1].copy(), keep, values.copy(), bias)
    seen, n_frames = np.ones((2, 12), np.float32), np.full(2, 3)
    describe_frames(values, n_frames, seen)
    with pytest.raises(ValueError, match="n_frames: expected 0 to 3, got 4"):
        describe_frames(values, n_frames + 1, seen)
    with pytest.raises(ValueError, match="n_frames: expected 0 to 3, got -1"):
        describe_frames(values, n_frames - 4, seen)
    with pytest.raises(ValueError, match="n_frames: expected 2 along axis 0, got 1"):
        describe_frames(values, n_frames[:1].copy(), seen)
    with pytest.raises(ValueError, match="seen: expected 12 along axis 1, got 11"):
        describe_frames(values, n_frames, seen[:, :11].copy())
    with pytest.raises(TypeError, match="n_frames: expected an array of int64"):
        describe_frames(values, n_frames.astype(np.int32), seen)  # type: ignore[arg-type]
