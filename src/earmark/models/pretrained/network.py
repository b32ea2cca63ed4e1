"""Pretrained networks: waveforms in, embeddings and logits out.

To add a kind of network, write one file in this package with a function that opens it: from
:class:`~earmark.config.PretrainedParams` and the dataset's class names to a
:class:`PretrainedNetwork`, which takes a function from windows to arrays. Then add a row to
:data:`KINDS`.

Windows do not overlap unless a hop is given, and the last one is zero-padded, so every clip, even
an empty one, has output. Each window gives rows of embeddings and of classes. Probabilities are
converted to logits: the scale is given, known from the graph, or detected from the outputs for a
few fixed sounds, so that all processes agree.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from earmark.audio import YAMNET, log_mel, patches
from earmark.config import FrontEndParams, PretrainedParams
from earmark.errors import EarmarkError, check_file, counted, nearest, reading
from earmark.models.pretrained.catalogue import CATALOGUE, is_catalogued, kept_weights
from earmark.scores import Scale, scale_of

Floats = NDArray[np.float32]

Run = Callable[[Floats], tuple[Floats | None, Floats | None]]
"""From windows [window, ...] to embeddings [row, feature] and classes [row, output], window by
window as many rows for each."""

SHORTEST_SECONDS = 0.975
"""Minimum length of a clip for networks that take whole clips; shorter ones are zero-padded."""

_ABOVE_ONE = 1e-5
"""How far rounding may take a probability beyond 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """Properties of a pretrained network that are known before inference."""

    name: str
    """For people and folders."""
    digest: str
    """Identifies the weights and how they are used."""
    sample_rate_hz: int
    """Of the waveforms that it takes."""
    frame_seconds: float | None
    """Duration of sound under one output frame; None where that is the whole clip."""
    hop_seconds: float | None
    """From one frame to the next."""
    n_features: int | None
    """Numbers in one embedding; None where it gives none."""
    output_names: tuple[str, ...] = ()
    """Its classes, for people; empty where it names none, or has none."""
    output_ids: tuple[str, ...] = ()
    """The same as AudioSet's identifiers, where it has them."""
    n_outputs: int = 0
    """Classes that it scores."""


@dataclass(frozen=True)
class ModelOutput:
    """A network's output for one clip, frame by frame."""

    embeddings: NDArray[np.float32] | None
    """[frame, feature]"""
    logits: NDArray[np.float32] | None
    """[frame, output]"""


@dataclass(frozen=True)
class Windows:
    """Pieces of a waveform, every one ``n_samples`` long, or all of it where that is None.

    With ``fills_up`` a clip shorter than a window is filled up with zeros to one; without, it is
    given as it is to a network that takes shorter ones.
    """

    sample_rate_hz: int
    n_samples: int | None
    hop_samples: int | None = None
    """None: side by side."""
    fills_up: bool = True

    @classmethod
    def of_seconds(
        cls, rate: int, n_samples: int | None, hop_seconds: float | None, *, fills_up: bool = True
    ) -> Windows:
        """Return windows every so many seconds."""
        hop_samples = None if hop_seconds is None else max(round(hop_seconds * rate), 1)
        return cls(rate, n_samples, hop_samples, fills_up)

    @property
    def seconds(self) -> float | None:
        """Of one window; None where that is the whole clip."""
        return None if self.n_samples is None else self.n_samples / self.sample_rate_hz

    @property
    def hop_seconds(self) -> float | None:
        """From one window to the next."""
        hop_samples = self.hop_samples or self.n_samples
        return None if self.n_samples is None else (hop_samples or 0) / self.sample_rate_hz

    def cut(self, waveform: Floats) -> Floats:
        """Return the windows [window, sample] that cover a waveform [sample].

        >>> Windows(4, 4, 2).cut(np.arange(5, dtype=np.float32))
        array([[0., 1., 2., 3.],
               [2., 3., 4., 0.]], dtype=float32)
        """
        n_samples = self.n_samples
        if n_samples is None or (not self.fills_up and len(waveform) <= n_samples):
            n_least = round(SHORTEST_SECONDS * self.sample_rate_hz)
            n_missing = min(n_least, n_samples or n_least) - len(waveform)
            return np.pad(waveform, (0, max(n_missing, 0)))[None]
        hop_samples = self.hop_samples or n_samples
        n_hops = -(-max(len(waveform) - n_samples, 0) // hop_samples)
        n_missing = n_samples + n_hops * hop_samples - len(waveform)
        padded = np.pad(waveform, (0, n_missing))
        return sliding_window_view(padded, n_samples)[::hop_samples]


@dataclass(frozen=True)
class Patches:
    """Log-mel patches, as earmark's own networks see them."""

    front_end: FrontEndParams = YAMNET

    @property
    def sample_rate_hz(self) -> int:
        """Of the waveforms that are cut."""
        return self.front_end.sample_rate_hz

    @property
    def seconds(self) -> float:
        """Of one patch."""
        return self.front_end.patch_seconds[1]

    @property
    def hop_seconds(self) -> float:
        """From one patch to the next."""
        return self.front_end.patch_seconds[0]

    def cut(self, waveform: Floats) -> Floats:
        """Return the patches [patch, frame, band] of a waveform [sample]."""
        return patches(log_mel(waveform, self.front_end), self.front_end)


class PretrainedNetwork:
    """A pretrained network that hears a clip in windows, ready for inference.

    ``source`` is the file or folder, for messages; ``step`` is how far apart the probabilities of a
    network of few bits are; ``n_at_once`` windows are given to ``run`` at most.
    """

    def __init__(
        self,
        source: str,
        run: Run,
        windows: Windows | Patches,
        *,
        name: str,
        digest: str,
        scale: Scale | None = None,
        step: float | None = None,
        output_names: tuple[str, ...] = (),
        output_ids: tuple[str, ...] = (),
        n_at_once: int = 64,
    ) -> None:
        self._source, self._run, self._windows, self._step = source, run, windows, step
        self._n_at_once = n_at_once
        n_tried = None if scale is None else 1  # where only shapes are to be learnt
        sounds = islice(_trial_sounds(windows), n_tried)
        tried = [self._rows(windows.cut(sound)) for sound in sounds]
        embeddings = [rows for rows, _ in tried if rows is not None]
        outputs = [rows for _, rows in tried if rows is not None]
        self.scale = scale or (scale_of(np.concatenate(outputs)) if outputs else "logits")
        n_outputs = outputs[0].shape[1] if outputs else 0
        n_rows = len((embeddings or outputs)[0])
        seconds, hop_seconds = windows.seconds, windows.hop_seconds
        self.facts = NetworkFacts(
            name=name,
            digest=digest,
            sample_rate_hz=windows.sample_rate_hz,
            frame_seconds=None if seconds is None else seconds / n_rows,
            hop_seconds=None if hop_seconds is None else hop_seconds / n_rows,
            n_features=embeddings[0].shape[1] if embeddings else None,
            # A list of others' names helps nobody.
            output_names=output_names if len(output_names) == n_outputs else (),
            output_ids=output_ids if len(output_ids) == n_outputs else (),
            n_outputs=n_outputs,
        )

    def infer(self, waveforms: Sequence[Floats]) -> list[ModelOutput]:
        """Return the output for the waveforms [sample] of some clips, at the network's rate.

        Every clip, even an empty one, has at least one frame.
        """
        with reading(self._source, "a network"):
            return [self._infer(waveform) for waveform in waveforms]

    def _infer(self, waveform: Floats) -> ModelOutput:
        if waveform.ndim != 1 or not np.isfinite(waveform).all():
            what = "NaN or infinite ones" if waveform.ndim == 1 else f"axes {list(waveform.shape)}"
            raise EarmarkError(
                f"{self._source}: expected one waveform [sample] of finite numbers, got {what}"
            )
        windows = self._windows.cut(waveform)
        embeddings, outputs = self._rows(windows)
        for what, rows in (("embeddings", embeddings), ("outputs", outputs)):
            if rows is not None and not np.isfinite(rows).all():
                raise EarmarkError(
                    f"{self._source}: a sound of {counted(len(windows), 'window')} got NaN or "
                    f"infinite {what}; is the file damaged, or another output meant?"
                )
        if outputs is not None and self.scale == "probabilities":
            outputs = self._logits(outputs)
        return ModelOutput(embeddings, outputs)

    def _rows(self, windows: Floats) -> tuple[Floats | None, Floats | None]:
        """Return embeddings and outputs [row, ...] of all windows, as many rows of each."""
        # Even parts: a few windows that are left over take longer than their share.
        parts = np.array_split(windows, -(-len(windows) // self._n_at_once))
        embeddings, outputs = zip(*map(self._batch, parts), strict=True)
        return joined(embeddings), joined(outputs)

    def _batch(self, windows: Floats) -> tuple[Floats | None, Floats | None]:
        embeddings, outputs = self._run(windows)
        n_rows = max(len(rows) for rows in (embeddings, outputs) if rows is not None)
        for what, rows in (("embeddings", embeddings), ("outputs", outputs)):
            if rows is not None and (len(rows) % len(windows) or n_rows % len(rows)):
                raise EarmarkError(
                    f"{self._source}: {len(windows)} windows gave {len(rows)} rows of {what}, "
                    f"expected as many for each{'' if len(rows) == n_rows else f' of {n_rows}'}; "
                    "is another output meant (--output, --embedding)?"
                )
        return _repeated(embeddings, n_rows), _repeated(outputs, n_rows)

    def _logits(self, outputs: Floats) -> Floats:
        low, high = outputs.min(), outputs.max()
        if low < -_ABOVE_ONE or high > 1 + _ABOVE_ONE:
            raise EarmarkError(
                f"{self._source}: got an output of {low if low < 0 else high:g}, which is no "
                "probability; if the outputs are logits, say so with --scale logits"
            )
        return to_logits(outputs, self._step)


def to_logits(probabilities: Floats, step: float | None = None) -> Floats:
    """Return the logits of probabilities; 0 and 1 go half a step beyond their neighbours.

    ``step`` is how far apart neighbours are; without, they are as far apart as float32 has them.

    >>> to_logits(np.array([0, 0.5, 1], np.float32)).round(2)
    array([-88.03,   0.  ,  17.33], dtype=float32)
    >>> to_logits(np.array([0, 0.5, 1], np.float32), step=1 / 256).round(2)
    array([-6.24,  0.  ,  6.24], dtype=float32)
    """
    below, above = (step / 2, step / 2) if step else (2.0**-127, 2.0**-25)
    values = np.clip(probabilities.astype(np.float64), below, 1 - above)
    return np.asarray(np.log(values) - np.log1p(-values), np.float32)


def as_rows(source: str, name: str, found: Any) -> Floats:
    """Return an output as rows [row, feature]: the last axis is that of features or classes.

    Of more than three axes the ones between the first and the last, places in time and frequency,
    are averaged.
    """
    if not isinstance(found, np.ndarray) or found.ndim == 0 or not found.size:
        raise EarmarkError(
            f"{source}: {name!r} is no array with an axis of features or classes; choose another "
            "with --output or --embedding"
        )
    values = found.astype(np.float32, copy=False)
    if values.ndim > 3:
        values = values.mean(axis=tuple(range(1, values.ndim - 1)))
    return values.reshape(-1, values.shape[-1])


def _trial_sounds(windows: Windows | Patches) -> Iterator[Floats]:
    """Yield noise, a tone and silence, each one window long: the same ones always."""
    rate = windows.sample_rate_hz
    n_samples = round((windows.seconds or SHORTEST_SECONDS) * rate)
    yield np.random.default_rng(0).normal(0, 0.1, n_samples).astype(np.float32)
    yield (0.3 * np.sin(2 * np.pi * 440 * np.arange(n_samples) / rate)).astype(np.float32)
    yield np.zeros(n_samples, np.float32)


def joined(parts: Sequence[Floats | None]) -> Floats | None:
    """Return the rows of all parts; None where there are none."""
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None


def _repeated(rows: Floats | None, n_rows: int) -> Floats | None:
    """Let a row that stands for several frames of a window stand for each of them."""
    return rows if rows is None else np.repeat(rows, n_rows // len(rows), axis=0)


class Kind(NamedTuple):
    """One row of the table of kinds: how a network is recognised, and what opens it.

    ``place`` is a function of the parameters and the dataset's class names, as ``module:name`` of
    this package: only the kind that is asked for is imported.
    """

    name: str
    is_meant: Callable[[str], bool]
    place: str


def _is_hugging_face(network: str) -> bool:
    return network.startswith("hf:") or (Path(network) / "config.json").is_file()


KINDS = (
    Kind("a name of `earmark teachers`", is_catalogued, "yamnet:open_yamnet"),
    Kind("a file .onnx", lambda name: name.lower().endswith(".onnx"), "onnx_network:open_onnx"),
    Kind(
        "a file .tflite",
        lambda name: name.lower().endswith(".tflite"),
        "tflite_network:open_tflite",
    ),
    Kind(
        "hf:OWNER/NAME or a folder with config.json",
        _is_hugging_face,
        "huggingface:open_huggingface",
    ),
)
"""Every kind of network, in the order in which they are tried."""


def open_network(params: PretrainedParams, class_names: Sequence[str] = ()) -> PretrainedNetwork:
    """Open a network given by a name of the catalogue, a file or a folder.

    ``class_names`` are the dataset's: a network that compares sound with text is asked for those.
    """
    module, _, function = find_kind(params.network).place.partition(":")
    open_it = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    with reading(params.network, "a network"):
        opened: PretrainedNetwork = open_it(params, class_names)
    return opened


def find_kind(network: str) -> Kind:
    """Return the kind of a network given by name, file or folder; refuse what is none."""
    for kind in KINDS:
        if kind.is_meant(network):
            return kind
    known = "; ".join(kind.name for kind in KINDS)
    what = "" if Path(network).exists() else ", and no such file or folder"
    names = [teacher.name for teacher in CATALOGUE]
    if difflib.get_close_matches(network, names):
        what = nearest(network, names)
    raise EarmarkError(f"{network}: no network of a kind that is known here ({known}){what}")


def check_here(network: str) -> None:
    """Refuse a network that is not on this machine; a hub is asked when its turn comes."""
    find_kind(network)
    if any(network == teacher.name for teacher in CATALOGUE):
        kept_weights(network)
    elif Path(network).suffix and not network.startswith("hf:") and not Path(network).is_dir():
        check_file(Path(network))
