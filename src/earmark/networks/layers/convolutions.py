"""Layers of convolutional networks, each computed by whatever is fastest where it is."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from earmark.networks.layers import on_cpu


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
        self.is_depthwise = kernel == 3 and stride <= 2 and groups == n_in == n_out

    def forward(self, image: Tensor) -> Tensor:
        """Convolve [patch, channel, frame, band]."""
        if on_cpu.is_wide(self.weight) and on_cpu.is_for(image):
            every = self.stride[0]
            return on_cpu.pointwise(image[:, :, ::every, ::every], self.weight)
        if self._pad:
            before, after = self._pad // 2, self._pad - self._pad // 2
            image = functional.pad(image, (before, after, before, after))
        return super().forward(image)


class Layers(nn.Sequential):
    """Layers one after another; on a CPU a depthwise convolution and its norms are taken as one."""

    def forward(self, image: Tensor) -> Tensor:
        """Pass [patch, channel, frame, band] through all layers."""
        layers = list(self)
        while layers:
            first = _norm_at(layers)
            convolution = _depthwise_at(layers[len(first) :], image)
            second = _norm_at(layers[len(first) + 1 :])
            if first and convolution and second:
                stride = convolution.stride[0]
                image = on_cpu.depthwise(image, first, convolution.weight, stride, second)
                del layers[: len(first) + 1 + len(second)]
            else:
                image = layers.pop(0)(image)
        return image


def _norm_at(layers: list[nn.Module]) -> on_cpu.Norm | tuple[()]:
    """Return the normalisation that begins some layers, with its rectifier if one follows."""
    if not layers or type(layers[0]) is not nn.BatchNorm2d:
        return ()
    if len(layers) > 1 and isinstance(layers[1], nn.ReLU | nn.Hardtanh):
        return layers[0], layers[1]
    return (layers[0],)


def _depthwise_at(layers: list[nn.Module], image: Tensor) -> SameConv | None:
    """Return the depthwise convolution that begins some layers, if one core can take the image."""
    if not layers or not isinstance(layers[0], SameConv) or not layers[0].is_depthwise:
        return None
    is_for_one_core = on_cpu.is_for(image) and min(image.shape[2:]) >= layers[0].stride[0]
    return layers[0] if is_for_one_core else None
