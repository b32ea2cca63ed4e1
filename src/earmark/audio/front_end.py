"""Waveform to log-mel frames to patches, exactly as YAMNet's front end computes them.

Frames are [frame, band] float32: the log of mel-weighted FFT magnitudes, one frame every 10 ms.
Patches are windows of 96 frames every 48, and always views: storing them would double the disk.
A few frames are computed at a time because more fall out of the CPU's cache, in an order of sums
that is the same on every machine, and so are the bytes (:mod:`earmark.audio.spectra`). The same
front end as a torch module (:func:`log_mel_module`) serves GPUs and ONNX graphs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from earmark.audio.spectra import circle, fill_log_mel, logarithm
from earmark.errors import EarmarkError
from earmark.runs import FrontEndParams

if TYPE_CHECKING:
    import torch

YAMNET = FrontEndParams()
"""The default front end: YAMNet's, and the paper's."""


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
    log(0.001) = -6.907755 in every band. The result has the same bytes on every machine.
    """
    waveform = _checked(waveform)
    n_after_first = padded_samples(len(waveform), params) - params.window_samples
    frames = np.empty((n_after_first // params.hop_samples + 1, params.n_bands), np.float32)
    tables = (_hann(params), _turns(params), *_bands(params))
    fill_log_mel(waveform, *tables, frames, params.hop_samples, params.log_offset)
    return frames


@overload
def n_patches(n_frames: int, params: PatchShape = ...) -> int: ...
@overload
def n_patches(n_frames: NDArray[np.int64], params: PatchShape = ...) -> NDArray[np.int64]: ...
def n_patches(n_frames: Any, params: PatchShape = YAMNET) -> Any:
    """Return how many whole patches lie in a clip, or in each of many clips; 0 if it is too short.

    >>> n_patches(1008)
    20
    """
    n_whole = (n_frames - params.patch_frames) // params.patch_hop_frames + 1
    return np.maximum(n_whole, 0) if isinstance(n_frames, np.ndarray) else max(n_whole, 0)


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
    return _kept(0.5 - 0.5 * circle(params.window_samples)[:, 0])


@lru_cache
def _turns(params: FrontEndParams) -> NDArray[np.float32]:
    return _kept(circle(params.fft_samples))


@lru_cache
def _bands(params: FrontEndParams) -> tuple[NDArray[np.int32], NDArray[np.int32], Any]:
    """Return each band's first bin, where its weights end, and the weights of all in a row.

    They are halved, because the loop measures twice the magnitudes.
    """
    by_band = mel_matrix(params).T  # [band, bin]
    heard = [np.flatnonzero(weights) for weights in by_band]
    firsts = np.array([bins[0] if len(bins) else 0 for bins in heard], np.int32)
    ends = np.cumsum([len(bins) for bins in heard]).astype(np.int32)
    return (
        firsts,
        ends,
        _kept(np.concatenate([by_band[i, bins] / 2 for i, bins in enumerate(heard)])),
    )


def _kept(table: NDArray[Any]) -> NDArray[np.float32]:
    """Return a table as the loop takes it; it is shared, hence read-only."""
    kept = np.ascontiguousarray(table, np.float32)
    kept.flags.writeable = False
    return kept


def _mel(hz: Any) -> Any:
    return 1127 * logarithm(1 + hz / 700)


def _checked(waveform: NDArray[np.float32]) -> NDArray[np.float32]:
    if waveform.ndim != 1 or not np.issubdtype(waveform.dtype, np.floating):
        raise EarmarkError(
            f"log_mel expects one mono waveform [sample] of floats in [-1, 1], got "
            f"{waveform.dtype} {list(waveform.shape)}; average the channels and divide integers "
            "by their full scale first"
        )
    return np.ascontiguousarray(waveform, np.float32)
