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
        if self.kernel_size == (1, 1) and on_cpu.is_for(image):
            every = self.stride[0]
            return on_cpu.pointwise(image[:, :, ::every, ::every], self.weight)
        if self._pad:
            before, after = self._pad // 2, self._pad - self._pad // 2
            image = functional.pad(image, (before, after, before, after))
        return super().forward(image)


class Layers(nn.Sequential):
    """Layers one after another; on a CPU some that follow each other are taken as one."""

    def forward(self, image: Tensor) -> Tensor:
        """Pass [patch, channel, frame, band] through all layers."""
        layers = list(self)
        while layers:
            norm = _norm_at(layers) if on_cpu.is_for(image) else None
            if norm is None:
                image = layers.pop(0)(image)
                continue
            del layers[: len(norm)]
            convolution = layers[0] if layers else None
            next_norm = _norm_at(layers[1:])
            if next_norm is None or not _is_depthwise(convolution, image):
                image = on_cpu.normalised(image, *norm)
                continue
            assert isinstance(convolution, SameConv)
            stride = convolution.stride[0]
            image = on_cpu.depthwise(image, norm, convolution.weight, stride, next_norm)
            del layers[: 1 + len(next_norm)]
        return image


def _norm_at(layers: list[nn.Module]) -> on_cpu.Norm | None:
    """Return the normalisation that begins some layers, with its rectifier if one follows."""
    if not layers or type(layers[0]) is not nn.BatchNorm2d:
        return None
    if len(layers) > 1 and isinstance(layers[1], nn.ReLU | nn.Hardtanh):
        return layers[0], layers[1]
    return (layers[0],)


def _is_depthwise(layer: nn.Module | None, image: Tensor) -> bool:
    """Tell whether a layer convolves an image's channels each by itself, and can on this one."""
    if not isinstance(layer, SameConv) or not layer.is_depthwise:
        return False
    return min(image.shape[2:]) >= layer.stride[0]
