"""Layers over channels-last images. Arrays are float32, without gaps and in C order.

Images are [image, row, column, channel]. The values of a normalisation's channels are packed
[6, channel]: gain, shift, mean, variance, scale, offset. Mean and variance are filled, or taken as
they are where ``is_fixed``; scale and offset are filled, by which an image becomes
clip(x * scale + offset, 0, limit). A limit below zero rectifies nothing. Gradients are of gain and
shift, [2, channel]. An array of another type, shape or order is refused.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

def depthwise_forward(
    z: Floats,
    first: Floats,
    weights: Floats,
    x: Floats,
    second: Floats,
    y: Floats,
    epsilon: float,
    limit: float,
    is_fixed: bool,
    next_epsilon: float,
    next_limit: float,
    next_is_fixed: bool,
    stride: int,
    /,
) -> None:
    """Normalise ``z`` and convolve it with ``weights`` [channel, 9] into ``x``, that into ``y``.

    With a stride of 1 there is a zero all around the image, with 2 one after each row and column.
    """

def depthwise_backward(
    z: Floats,
    first: Floats,
    weights: Floats,
    x: Floats,
    second: Floats,
    grad: Floats,
    to_z: Floats,
    to_first: Floats,
    to_weights: Floats,
    to_second: Floats,
    epsilon: float,
    limit: float,
    is_fixed: bool,
    next_epsilon: float,
    next_limit: float,
    next_is_fixed: bool,
    stride: int,
    /,
) -> None:
    """Fill what begins with ``to`` with the gradients of :func:`depthwise_forward`."""

def cross_entropy(
    logits: Floats,
    targets: Floats,
    entries: Floats,
    slopes: Floats,
    weights: Floats | NDArray[np.bool_],
    /,
) -> None:
    """Fill ``entries`` and ``slopes`` with the weighted loss of every logit and its derivative.

    All are [student, label]; targets and weights may be [1, label], shared by all students.
    """

def frame_statistics(frames: Floats, n_frames: NDArray[np.int64], seen: Floats, /) -> None:
    """Fill ``seen`` [clip, 3 x feature] with mean, variance and maximum over frames.

    Of ``frames`` [clip, frame, feature] the first ``n_frames`` [clip] of each clip count. Without
    any, mean and variance are no numbers and the maximum is minus infinity.
    """

def rectify_and_drop(values: Floats, keep: Floats, /) -> None:
    """Make negative ``values`` [student, clip, unit] zero and multiply by ``keep`` [clip, unit]."""

def rectify_and_drop_backward(
    grad: Floats, kept: Floats, keep: Floats, to_values: Floats, to_bias: Floats, /
) -> None:
    """Fill what begins with ``to`` with the gradients of :func:`rectify_and_drop`.

    ``kept`` is what that made of the values; ``to_bias`` [student, 1, unit] is for a bias that was
    added to all clips. What is kept is multiplied by one or more.
    """
