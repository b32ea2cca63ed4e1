"""Frames to clip scores: the mean over a clip's patches of a network's output.

An output is a probability; the mean is stored as its logit. The network is computed by torch, or
by ONNX Runtime where that is asked for: the two differ by float32's rounding, so a digest has to
know which it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from earmark.errors import EarmarkError, load_library
from earmark.networks.architectures import Probe
from earmark.networks.examples import Examples
from earmark.networks.onnx_export import Forward, runtime_forward
from earmark.networks.places import best_patches
from earmark.networks.stacks import AnyNetwork, n_students
from earmark.runs import ModelParams, Runtime

_BATCH_EXAMPLES = 256
"""Clips scored at once, or patches on a GPU."""

CACHED_PATCHES = 32
"""Patches scored at once on a CPU: many more fall out of its cache."""


def score_clips(
    network: AnyNetwork, examples: Examples, runtime: Runtime = "torch"
) -> NDArray[np.float32]:
    """Return logits float32 [student, clip, class].

    The logit is that of the mean output over a clip's examples (patches), exact also where all
    outputs are tiny. For ``runtime`` see :func:`check_runtime`.
    """
    logits = np.empty((n_students(network), len(examples.rows), network.n_classes), np.float32)
    for group, z, firsts in _outputs(network, examples, runtime):
        logits[:, group] = _logits_of_mean(z, firsts)
    return logits


def score_and_locate(
    network: AnyNetwork, examples: Examples, runtime: Runtime = "torch"
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return what :func:`score_clips` does, and the best patches uint16 [student, clip, class].

    The best patch of a clip is the one whose output is highest; of a probe, which hears whole
    clips, the one that it can least do without (:mod:`earmark.networks.places`).
    """
    if isinstance(network, Probe):
        return score_clips(network, examples, runtime), best_patches(network, examples)
    logits = np.empty((n_students(network), len(examples.rows), network.n_classes), np.float32)
    best = np.empty(logits.shape, np.uint16)
    for group, z, firsts in _outputs(network, examples, runtime):
        logits[:, group], best[:, group] = _logits_of_mean(z, firsts), _best(z, firsts)
    return logits, best


def sum_outputs(
    logits: NDArray[np.floating], firsts: Sequence[int] | NDArray[np.int64] = (0,)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum the outputs of a clip's examples, and what they lack to 1, from logits [..., example, c].

    Returns float64 [..., clip, class] twice, the clips beginning at the examples ``firsts``. Both
    sums keep their digits where all outputs are tiny, or all close to 1. Sums of parts of a clip
    add up; log(first) - log(second) is the logit of the clip's mean output.
    """
    z = logits.astype(np.float64)
    present = np.add.reduceat(expit(z), firsts, axis=-2)
    return present, np.add.reduceat(expit(-z), firsts, axis=-2)


def check_runtime(runtime: Runtime, model: ModelParams) -> None:
    """Refuse ``onnx``, before hours of training, where it is not installed or of no use.

    ONNX Runtime computes convolutional networks on the CPU, about twice as fast as torch does on
    one core. A probe is a few matrix products and gains nothing.
    """
    if runtime == "torch":
        return
    if model.is_probe:
        raise _no_runtime_for_probes()
    for library in ("onnxruntime", "onnxscript"):
        load_library(library, f'scoring with runtime = "{runtime}"', "onnx")


def torch_forward(network: AnyNetwork) -> Forward:
    """Return a network's forward pass as torch computes it, on the device where it is."""

    def forward(*inputs: Tensor) -> NDArray[np.float32]:
        with torch.inference_mode():
            logits: NDArray[np.float32] = network(*inputs).float().cpu().numpy()
        return logits

    return forward


def _forward(network: AnyNetwork, examples: Examples, runtime: Runtime) -> Forward:
    if runtime == "torch":
        return torch_forward(network)
    if isinstance(network, Probe):
        raise _no_runtime_for_probes()
    return runtime_forward(network, (examples.store.patch_frames, examples.store.n_bands))


def _no_runtime_for_probes() -> EarmarkError:
    return EarmarkError(
        'runtime = "onnx" is for convolutional networks, and this one is a probe over embeddings; '
        'set runtime = "torch"'
    )


def _n_at_once(network: AnyNetwork) -> int:
    is_on_cpu = next(network.parameters()).device.type == "cpu"
    return CACHED_PATCHES if is_on_cpu and not isinstance(network, Probe) else _BATCH_EXAMPLES


def _groups(per_clip: NDArray[np.int64], n_at_once: int) -> list[slice]:
    """Cut clips into runs of at most ``n_at_once`` examples, but of whole clips."""
    ends = np.cumsum(per_clip)
    groups, first = [], 0
    while first < len(ends):
        used = ends[first - 1] if first else 0
        after = int(np.searchsorted(ends, used + n_at_once, side="right"))
        after = max(after, first + 1)
        groups.append(slice(first, after))
        first = after
    return groups


def _outputs(
    network: AnyNetwork, examples: Examples, runtime: Runtime
) -> Iterator[tuple[slice, NDArray[np.float32], NDArray[np.int64]]]:
    """Yield some clips, logits [student, example, class], and where the examples of each begin."""
    forward = _forward(network, examples, runtime)
    for group in _groups(examples.per_clip, _n_at_once(network)):
        lengths = examples.per_clip[group]
        firsts = np.cumsum(lengths) - lengths
        clips = np.repeat(np.arange(group.start, group.stop), lengths)
        which = np.arange(len(clips)) - np.repeat(firsts, lengths)
        z = forward(*examples.inputs(clips, which))
        yield group, z.reshape(-1, len(clips), z.shape[-1]), firsts


def _logits_of_mean(z: NDArray[np.float32], firsts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return logits [student, clip, class] of the mean outputs of each clip's examples."""
    present, absent = sum_outputs(z, firsts)
    return (np.log(present) - np.log(absent)).astype(np.float32)


def _best(z: NDArray[np.float32], firsts: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return the example [student, clip, class] of each clip with the highest output."""
    of_clips = np.split(z, firsts[1:], axis=1)
    return np.stack([own.argmax(axis=1) for own in of_clips], axis=1).astype(np.uint16)
