"""Waveform to log-mel frames to patches, as in YAMNet's front end.

Frames are [frame, band] float32: the log of mel-weighted FFT magnitudes, one frame every 10 ms.
Patches are windows of 96 frames every 48, and always views: storing them would double the disk
space. Frames are computed in blocks that fit the CPU's cache, with a fixed order of summation, so
the bytes are the same on every machine. :func:`log_mel_module` is the same front end as a torch
module, for GPUs and ONNX graphs.

:func:`pooled` turns a clip's frames into one vector.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from earmark.config import FrontEndParams
from earmark.errors import EarmarkError

if TYPE_CHECKING:
    import torch


YAMNET = FrontEndParams()
"""The default front end: YAMNet's, and the paper's."""


_BLOCK_FRAMES = 64
"""Frames that are computed at a time."""


class PatchShape(Protocol):
    """Anything that says how frames are cut into patches: the front end, or a frame store."""

    @property
    def patch_frames(self) -> int:
        """Frames in one patch."""

    @property
    def patch_hop_frames(self) -> int:
        """Frames from the start of one patch to the start of the next."""


def padded_samples(n_samples: int, params: FrontEndParams = YAMNET) -> int:
    """Return how long a waveform is after :func:`pad`: whole patches, and at least one.

    >>> padded_samples(100), padded_samples(160_000)
    (15600, 161520)
    """
    n_after_first = max(n_samples - params.patch_samples, 0)
    n_hops = -(-n_after_first // params.patch_hop_samples)
    return params.patch_samples + n_hops * params.patch_hop_samples


def pad(waveform: NDArray[np.float32], params: FrontEndParams = YAMNET) -> NDArray[np.float32]:
    """Append zeros to a waveform [sample] until patches cover it; padding twice changes nothing."""
    return np.pad(waveform, (0, padded_samples(len(waveform), params) - len(waveform)))


def log_mel(waveform: NDArray[np.float32], params: FrontEndParams = YAMNET) -> NDArray[np.float32]:
    """Compute the log-mel frames [frame, band] float32 of a mono waveform [sample] in [-1, 1].

    The waveform is padded first, so even an empty one yields one patch of silence, which is
    log(0.001) = -6.907755 in every band.
    """
    from scipy import fft  # a scan, which loads this package, does without scipy

    samples = pad(_checked(waveform), params)
    windows = sliding_window_view(samples, params.window_samples)[:: params.hop_samples]
    frames = np.empty((len(windows), params.n_bands), np.float32)
    for start in range(0, len(windows), _BLOCK_FRAMES):
        block = slice(start, start + _BLOCK_FRAMES)
        spectrum = fft.rfft(windows[block] * _hann(params), n=params.fft_samples)  # [frame, bin]
        magnitudes = np.sqrt(spectrum.real**2 + spectrum.imag**2)
        mel = _sparse_mel_matrix(params) @ magnitudes.T  # [band, frame]
        frames[block] = np.log((mel + np.float32(params.log_offset)).astype(np.float64)).T
    return frames


def n_patches(n_frames: ArrayLike, params: PatchShape = YAMNET) -> NDArray[np.int64]:
    """Return how many whole patches lie in a clip, or in each of many clips; 0 if it is too short.

    >>> int(n_patches(1008))
    20
    """
    n_whole = (np.asarray(n_frames) - params.patch_frames) // params.patch_hop_frames + 1
    return np.asarray(np.maximum(n_whole, 0), np.int64)


def patches(frames: NDArray[Any], params: PatchShape = YAMNET) -> NDArray[Any]:
    """View frames [frame, band] as patches [patch, frame, band] without copying them."""
    if len(frames) < params.patch_frames:
        return np.empty((0, params.patch_frames, frames.shape[1]), frames.dtype)
    starting_anywhere = sliding_window_view(frames, params.patch_frames, axis=0)
    return starting_anywhere[:: params.patch_hop_frames].swapaxes(1, 2)


@lru_cache
def mel_matrix(params: FrontEndParams = YAMNET) -> NDArray[np.float32]:
    """Return the mel weights [FFT bin, band] float32: triangles that are linear in mel.

    Band edges lie equally far apart in mel = 1127 ln(1 + f / 700). There is no normalisation by
    area, and the bin at 0 Hz counts nowhere. The array is shared, hence read-only.
    """
    bins_hz = np.linspace(0, params.sample_rate_hz / 2, params.fft_samples // 2 + 1)
    lowest, highest = _mel(np.array([params.low_hz, params.high_hz])).tolist()
    edges = np.linspace(lowest, highest, params.n_bands + 2)
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    bins = _mel(bins_hz)[:, None]  # [bin, 1]
    triangles = np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre))
    triangles[0] = 0
    return _kept(np.maximum(triangles, 0))  # [bin, band]


def log_mel_module(params: FrontEndParams = YAMNET) -> torch.nn.Module:
    """Return the front end as a torch module: waveforms [..., sample] to [..., frame, band].

    It pads like :func:`log_mel` and agrees with it to 1e-4 (to 1e-3 in bands 100 dB below a pure
    tone, where float32 ends). Use it on a GPU, in batches, or as the first layer of an exported
    graph; on a CPU :func:`log_mel` is faster.
    """
    import torch  # heavy and optional: the CPU front end does without it

    class LogMel(torch.nn.Module):
        """The log-mel front end."""

        hann: torch.Tensor
        weights: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            for name, values in (("hann", _hann(params)), ("weights", mel_matrix(params))):
                self.register_buffer(name, torch.tensor(values), persistent=False)

        def forward(self, waveform: torch.Tensor) -> torch.Tensor:
            n_samples = waveform.shape[-1]
            # sym_max, because max() would fix the length in an exported graph.
            n_after_first = torch.sym_max(n_samples - params.patch_samples, 0)  # type: ignore[no-untyped-call]
            # Rounded up without negatives: an exported graph's division rounds towards zero.
            n_hops = (n_after_first + params.patch_hop_samples - 1) // params.patch_hop_samples
            n_padded = params.patch_samples + n_hops * params.patch_hop_samples
            padded = torch.nn.functional.pad(waveform, (0, n_padded - n_samples))
            windows = padded.unfold(-1, params.window_samples, params.hop_samples)
            # Not torch.stft: with a window shorter than the FFT it shifts every frame.
            spectrum = torch.fft.rfft(windows * self.hann, n=params.fft_samples)
            return torch.log(spectrum.abs() @ self.weights + params.log_offset)

    return LogMel()


@lru_cache
def _hann(params: FrontEndParams) -> NDArray[np.float32]:
    """Return the periodic Hann window, which differs from numpy's symmetric one."""
    turns = np.arange(params.window_samples) / params.window_samples
    return _kept(0.5 - 0.5 * np.cos(2 * np.pi * turns))


@lru_cache
def _sparse_mel_matrix(params: FrontEndParams) -> Any:
    """Return the mel weights [band, bin] without zeros; a dense product rounds by processor."""
    from scipy.sparse import csr_array  # see log_mel

    return csr_array(mel_matrix(params).T)


def _kept(table: NDArray[Any]) -> NDArray[np.float32]:
    """Return a table as float32; it is shared, hence read-only."""
    kept = np.ascontiguousarray(table, np.float32)
    kept.flags.writeable = False
    return kept


def _mel(hz: Any) -> Any:
    return 1127 * np.log(1 + hz / 700)


def _checked(waveform: NDArray[np.float32]) -> NDArray[np.float32]:
    if waveform.ndim != 1 or not np.issubdtype(waveform.dtype, np.floating):
        raise EarmarkError(
            f"log_mel expects one mono waveform [sample] of floats in [-1, 1], got "
            f"{waveform.dtype} {list(waveform.shape)}; average the channels and divide integers "
            "by their full scale first"
        )
    return np.ascontiguousarray(waveform, np.float32)


def pooled(frames: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return the features float32 [4 * band] of a clip's frames [frame, band], one or more.

    Mean, deviation and maximum of each band, and the deviation of its change from frame to frame:
    what a linear probe needs to know of sounds that hold, beat or click.

    >>> pooled(np.array([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [2.0, 0.0, 1.0, 0.0, 3.0, 0.0, 0.0, 0.0]
    """
    exact = np.asarray(frames, np.float64)
    change = np.diff(exact, axis=0) if len(exact) > 1 else np.zeros_like(exact)
    parts = (exact.mean(axis=0), exact.std(axis=0), exact.max(axis=0), change.std(axis=0))
    return np.concatenate(parts).astype(np.float32)
