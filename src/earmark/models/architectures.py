"""Architectures: the paper's two networks as tables of rows, and stacks of probes over embeddings.

The networks take log-mel patches [patch, 96, 64] and return one logit per class. MobileNetV1 is
YAMNet's (Howard et al. 2017, normalisation without a scale); ResNet-50 is Hershey et al. 2017's:
He's first version with the stride in the first 1x1 convolution, and a 7x7 stem of stride 1. The
``width`` of :class:`~earmark.config.ModelParams` narrows either for small machines. Probes
take all frames of a clip.

The students of a stack see the same batches: a stack of probes is one :class:`Probe` with a student
axis in its tensors. Convolutional students train apart.

Initial weights and dropout come from numpy's PCG64 and are the same on every machine. Torch's
generators round differently between processors and builds.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from earmark.config import FrontEndParams, ModelParams
from earmark.errors import EarmarkError
from earmark.storage import digest


def own_device() -> torch.device:
    """Return where this process computes: a GPU of its own, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def draws(seed: int) -> Generator:
    """Return a generator whose numbers depend on the seed alone."""
    return Generator(PCG64(seed))


def truncated_normal(shape: tuple[int, ...], sd: float, generator: Generator) -> Tensor:
    """Draw float32 from a normal distribution, anew where it is beyond two standard deviations.

    Far out numpy's normal numbers need a logarithm, which differs between machines in the last
    bit; those are never kept.
    """
    values = generator.standard_normal(shape)
    while (is_beyond := np.abs(values) > 2).any():
        values[is_beyond] = generator.standard_normal(np.count_nonzero(is_beyond))
    return torch.from_numpy((values * sd).astype(np.float32))


def kept_units(shape: tuple[int, int], share: float, generator: Generator) -> Tensor:
    """Draw which units dropout keeps [clip, unit]: 1 in a share of places, 0 elsewhere."""
    n = shape[0] * shape[1]
    words = generator.bit_generator.random_raw((n + 1) // 2).astype("<u8", copy=False)
    is_kept = words.view("<u4")[:n] < round(share * 2**32)
    return torch.from_numpy(is_kept.reshape(shape).astype(np.float32))


MOBILENET_V1_STEM = (3, 2, 32)
"""Kernel, stride and channels of the first convolution."""

MOBILENET_V1_ROWS = (  # channels, stride of each depthwise-separable pair
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
)

RESNET50_STEM = (7, 1, 64)
"""Kernel, stride and channels of the first convolution."""

RESNET50_ROWS = (  # blocks, inner channels, outer channels, stride of each stage
    (3, 64, 256, 1),
    (4, 128, 512, 2),
    (6, 256, 1024, 2),
    (3, 512, 2048, 2),
)

_SWALLOWED_SHARE = 1 / 3
"""Below this share of epsilon a layer's initial variance is lost in batch normalisation."""


class SameConv(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow's "same": odd padding goes at the end.

    Only a strided kernel on even sizes needs an explicit pad; elsewhere the padding is symmetric
    and left to the convolution, which trains faster.
    """

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int, groups: int = 1) -> None:
        is_symmetric = stride == 1 or kernel == 1
        padding = kernel // 2 if is_symmetric else 0
        super().__init__(n_in, n_out, kernel, stride, padding, groups=groups, bias=False)
        self._pad = 0 if is_symmetric else kernel - stride

    def forward(self, image: Tensor) -> Tensor:
        """Convolve [patch, channel, frame, band]."""
        if self._pad:
            before, after = self._pad // 2, self._pad - self._pad // 2
            image = functional.pad(image, (before, after, before, after))
        return super().forward(image)


class Network(nn.Module):
    """A stack of convolutions, a mean over what is left of time and frequency, and a linear head.

    ``forward`` takes patches [patch, frame, band] and returns logits [patch, class].
    """

    n_students = 1

    def __init__(self, body: nn.Sequential, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(n_features, n_classes)

    @property
    def n_classes(self) -> int:
        """Number of outputs."""
        return self.head.out_features

    def student(self, place: int) -> Network:
        """Return this network, the only student of its stack."""
        assert place == 0
        return self

    def embed(self, patches: Tensor) -> Tensor:
        """Return the features [patch, feature] that the head sees."""
        image = patches.unsqueeze(1)  # [patch, 1, frame, band]
        image = image.contiguous(memory_format=torch.channels_last)
        features: Tensor = self.body(image).mean(dim=(2, 3))
        return features

    def forward(self, patches: Tensor) -> Tensor:
        """Return logits [patch, class]."""
        logits: Tensor = self.head(self.embed(patches))
        return logits


class _Bottleneck(nn.Module):
    """ResNet's block of 1x1, 3x3 and 1x1 convolutions around a shortcut."""

    def __init__(self, n_in: int, n_inner: int, n_out: int, stride: int, epsilon: float) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_normalised(SameConv(n_in, n_inner, 1, stride), epsilon),
            *_normalised(SameConv(n_inner, n_inner, 3, 1), epsilon),
            SameConv(n_inner, n_out, 1, 1),
            nn.BatchNorm2d(n_out, eps=epsilon),
        )
        self.shortcut: nn.Module = nn.Identity()
        if n_in != n_out or stride != 1:
            self.shortcut = nn.Sequential(
                SameConv(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out, eps=epsilon)
            )

    def forward(self, image: Tensor) -> Tensor:
        """Add the residual to the shortcut."""
        return functional.relu(self.residual(image) + self.shortcut(image), inplace=True)


class Probe(nn.Module):
    """Heads over the frames of a clip, for one student or a whole sweep of them side by side.

    A clip is seen through mean, standard deviation and maximum over its frames, and through
    ``n_queries`` averages whose weights are learnt: each query attends to the frames that it
    matches best. Every weight has a leading student axis and all students are multiplied in one
    batched operation; they begin with the same weights and share dropout masks, so they differ by
    what they are told alone. ``forward`` takes frames [clip, frame, feature] with the number of
    frames of each clip, and returns logits [student, clip, class].
    """

    def __init__(
        self,
        n_inputs: int,
        n_hidden: int | None,
        n_classes: int,
        *,
        n_students: int = 1,
        n_queries: int = 0,
        dropout: float = 0.0,
        compression: float | None = None,
    ) -> None:
        super().__init__()
        self.n_classes, self.n_students, self.dropout = n_classes, n_students, dropout
        self.compression = compression
        n_features = (_N_STATISTICS + n_queries) * n_inputs
        shapes = list(pairwise([n_features, *([n_hidden] if n_hidden else []), n_classes]))
        queries = torch.zeros(n_students, n_inputs, n_queries)
        self.queries = nn.Parameter(queries) if n_queries else None
        self.weights = nn.ParameterList(torch.zeros(n_students, *shape) for shape in shapes)
        self.biases = nn.ParameterList(torch.zeros(n_students, 1, n_out) for _, n_out in shapes)
        self.generator = draws(0)
        self._place: tuple[int, int] | None = None

    def reseed(self, *keys: int, n_clips: int | None = None, first_clip: int = 0) -> None:
        """Make the next dropout masks a function of some numbers alone (seed, epoch, step).

        Where the network sees a part of a batch of ``n_clips``, it drops what it would drop there
        if it saw the whole.
        """
        self.generator = draws(int(digest(*keys), 16))
        self._place = None if n_clips is None else (n_clips, first_clip)

    def student(self, place: int) -> Probe:
        """Return one student of the stack alone, with a copy of its weights."""
        alone = copy.deepcopy(self)
        alone.n_students = 1
        for parameter in alone.parameters():
            parameter.data = parameter.data[place : place + 1].clone()
        return alone

    def forward(self, frames: Tensor, n_frames: Tensor) -> Tensor:
        """Return logits [student, clip, class]."""
        return self.judge(self.see(frames, n_frames))

    def see(self, frames: Tensor, n_frames: Tensor) -> Tensor:
        """Return what is seen of clips [student, clip, feature]; the first axis may be shared."""
        frames = self.compressed(frames)
        is_valid = torch.arange(frames.shape[1], device=frames.device) < n_frames.unsqueeze(1)
        seen = _frame_statistics(frames, is_valid).unsqueeze(0)  # [1, clip, feature]
        if self.queries is None:
            return seen
        attended = _attended(frames, is_valid, self.queries)
        return torch.cat([seen.expand(self.n_students, -1, -1), attended], dim=2)

    def compressed(self, frames: Tensor) -> Tensor:
        """Return frames as they are looked at: on a logarithmic scale, where it is asked for."""
        if self.compression is None:
            return frames
        return torch.sign(frames) * torch.log1p(self.compression * frames.abs())

    def judge(self, hidden: Tensor) -> Tensor:
        """Return logits [student, clip, class] of what is seen of clips [student, clip, feature].

        Students that see the same may share the first axis.
        """
        keeps = [self._keep(hidden, weight.shape[1]) for weight in self.weights]
        if keeps[0] is not None:
            hidden = hidden * keeps[0]
        hidden = hidden.expand(self.n_students, -1, -1)
        *layers, (weight, bias) = zip(self.weights, self.biases, strict=True)
        for (inner, inner_bias), keep in zip(layers, keeps[1:], strict=True):
            hidden = functional.relu(torch.baddbmm(inner_bias, hidden, inner))
            hidden = hidden if keep is None else hidden * keep
        return torch.baddbmm(bias, hidden, weight)

    def _keep(self, seen: Tensor, width: int) -> Tensor | None:
        """Draw what the inputs of a layer are multiplied by [clip, unit] in training."""
        if not self.training or not self.dropout:
            return None
        n_here = seen.shape[1]
        n_clips, first = self._place or (n_here, 0)
        keep = kept_units((n_clips, width), 1 - self.dropout, self.generator)
        return (keep[first : first + n_here] / (1 - self.dropout)).to(seen.device)


_N_STATISTICS = 3
"""Mean, standard deviation and maximum: what a probe sees of each feature."""


def _frame_statistics(frames: Tensor, is_valid: Tensor) -> Tensor:
    """Return mean, standard deviation and maximum over the valid frames [clip, 3 x feature]."""
    is_valid = is_valid.unsqueeze(2)  # [clip, frame, 1]
    n_valid = is_valid.sum(dim=1)
    mean = (frames * is_valid).sum(dim=1) / n_valid
    squares = ((frames - mean.unsqueeze(1)) ** 2 * is_valid).sum(dim=1) / n_valid
    highest = frames.masked_fill(~is_valid, -torch.inf).amax(dim=1)
    return torch.cat([mean, squares.sqrt(), highest], dim=1)


def _attended(frames: Tensor, is_valid: Tensor, queries: Tensor) -> Tensor:
    """Return every query's average of the valid frames [student, clip, query x feature]."""
    match = torch.einsum("ntf,sfq->sntq", frames, queries) / math.sqrt(frames.shape[2])
    share = match.masked_fill(~is_valid.unsqueeze(2), -torch.inf).softmax(dim=2)
    return torch.einsum("sntq,ntf->snqf", share, frames).flatten(2)


def build_probe(
    params: ModelParams, n_inputs: int, n_classes: int, n_students: int = 1, seed: int = 0
) -> Probe:
    """Build a stack of probes that begin with the same weights."""
    probe = Probe(
        n_inputs,
        None if params.architecture == "linear_probe" else params.n_hidden,
        n_classes,
        n_students=n_students,
        n_queries=params.n_queries if params.architecture == "attention_probe" else 0,
        dropout=params.dropout,
        compression=params.compression,
    )
    generator = draws(seed)
    queries = [] if probe.queries is None else [probe.queries]
    for weight in [*probe.weights, *queries]:
        sd = params.init_sd or math.sqrt(1 / weight.shape[1])
        first = truncated_normal(weight.shape[1:], sd, generator)
        with torch.no_grad():
            weight.copy_(first.expand_as(weight))
    return probe


def build_model(params: ModelParams, n_classes: int, seed: int = 0) -> Network:
    """Build a network with initial weights that depend on the parameters and the seed alone."""
    _check_initialisation(params)
    network = _BUILDERS[params.architecture](params, n_classes)
    _initialise(network, params.init_sd, seed)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _check_initialisation(params: ModelParams) -> None:
    """Refuse weights so small that batch normalisation's epsilon would swallow the signal.

    The smallest fan-in of both networks is a 3x3 kernel's 9; a layer's output variance begins at
    about sd^2 * fan_in. With the paper's sd of 0.001, epsilon 1e-5 trains and 1e-4 does not.
    """
    if params.init_sd is None:
        return
    variance = params.init_sd**2 * 9
    if variance < _SWALLOWED_SHARE * params.norm_epsilon:
        raise EarmarkError(
            f"init_sd = {params.init_sd:g} leaves a variance of {variance:.1e} after a 3x3 kernel, "
            f"far below norm_epsilon = {params.norm_epsilon:g}: the network would not learn. "
            f"Set norm_epsilon to {variance:.0e} or less, or leave init_sd out"
        )


@dataclass(frozen=True)
class Cost:
    """The size of a network: trainable parameters, and multiply-adds for one patch."""

    n_parameters: int
    n_multiply_adds: int


def cost(params: ModelParams, n_classes: int, front_end: FrontEndParams | None = None) -> Cost:
    """Count trainable parameters and the multiply-adds of convolutions and head for one patch."""
    front_end = front_end or FrontEndParams()
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        network = _BUILDERS[params.architecture](params, n_classes).eval()
        network(torch.empty(1, front_end.patch_frames, front_end.n_bands))
    n_parameters = sum(p.numel() for p in network.parameters() if p.requires_grad)
    return Cost(n_parameters, counter.get_total_flops() // 2)  # two operations each


def _mobilenet_v1(params: ModelParams, n_classes: int) -> Network:
    kernel, stride, channels = MOBILENET_V1_STEM
    n_in = _narrowed(channels, params)
    layers = _shifted(SameConv(1, n_in, kernel, stride), params)
    for channels, stride in MOBILENET_V1_ROWS:
        n_out = _narrowed(channels, params)
        layers += _shifted(SameConv(n_in, n_in, 3, stride, groups=n_in), params)
        layers += _shifted(SameConv(n_in, n_out, 1, 1), params)
        n_in = n_out
    return Network(nn.Sequential(*layers), n_in, n_classes)


def _resnet50(params: ModelParams, n_classes: int) -> Network:
    kernel, stride, channels = RESNET50_STEM
    n_in = _narrowed(channels, params)
    layers = _normalised(SameConv(1, n_in, kernel, stride), params.norm_epsilon)
    layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))  # "same": the odd row goes at the end
    for n_blocks, inner, outer, first_stride in RESNET50_ROWS:
        n_inner, n_out = _narrowed(inner, params), _narrowed(outer, params)
        for block in range(n_blocks):
            stride = first_stride if block == 0 else 1
            layers.append(_Bottleneck(n_in, n_inner, n_out, stride, params.norm_epsilon))
            n_in = n_out
    return Network(nn.Sequential(*layers), n_in, n_classes)


_BUILDERS: dict[str, Callable[[ModelParams, int], Network]] = {
    "mobilenet_v1": _mobilenet_v1,
    "resnet50": _resnet50,
}


def _narrowed(channels: int, params: ModelParams) -> int:
    """Scale a channel count, to a multiple of 8 (vector units), never below 8."""
    return max(8, 8 * round(channels * params.width / 8))


def _normalised(convolution: SameConv, epsilon: float) -> list[nn.Module]:
    norm = nn.BatchNorm2d(convolution.out_channels, eps=epsilon)
    return [convolution, norm, nn.ReLU(inplace=True)]


def _shifted(convolution: SameConv, params: ModelParams) -> list[nn.Module]:
    """Normalise with a learnt shift and no scale, as MobileNetV1 does."""
    _, norm, relu = _normalised(convolution, params.norm_epsilon)
    norm.weight.requires_grad_(False)
    if params.relu_limit is not None:
        relu = nn.Hardtanh(0.0, params.relu_limit, inplace=True)
    return [convolution, norm, relu]


def _initialise(network: Network, sd: float | None, seed: int) -> None:
    """Draw weights from a normal truncated at two standard deviations; biases begin at zero."""
    generator = draws(seed)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            gain = 1.0 if isinstance(module, nn.Linear) else 2.0  # 2: half is lost in a ReLU
            layer_sd = sd or math.sqrt(gain / module.weight[0].numel())
            with torch.no_grad():
                module.weight.copy_(truncated_normal(module.weight.shape, layer_sd, generator))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


AnyNetwork = Network | Probe


def build(
    params: ModelParams, n_inputs: int, n_classes: int, n_students: int = 1, seed: int = 0
) -> AnyNetwork:
    """Build a network, or a stack of probes that begin with the same weights, on the device.

    ``n_inputs`` is the width of a frame, which only a probe needs to know.
    """
    network: AnyNetwork
    if params.is_probe:
        network = build_probe(params, n_inputs, n_classes, n_students, seed)
    else:
        assert n_students == 1, "convolutional students train apart"
        network = build_model(params, n_classes, seed)
    return network.to(own_device())


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training changes."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]
