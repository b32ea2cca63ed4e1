"""Any ONNX file that turns waveforms or log-mel patches into embeddings, classes or both.

What goes in is told from the shape of the model's input, and can be said: waveforms are [samples],
[batch, samples] or [batch, 1, samples], patches [batch, frames, bands] or [batch, 1, frames,
bands]. Sizes that a model fixes are met: a waveform is cut, a batch filled up.

What comes out is named: ``embedding`` is the output taken for embeddings (one that is called
``embedding`` is taken unasked), ``output`` the one taken for classes (unless said, the first
other). Where both name the same output, or there is no other, the model gives embeddings only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.audio import YAMNET
from earmark.config import InputKind, PretrainedParams
from earmark.errors import EarmarkError, check_file, load_library, nearest
from earmark.models import open_session
from earmark.models.pretrained.network import (
    Floats,
    Patches,
    PretrainedNetwork,
    Windows,
    as_rows,
    joined,
)
from earmark.scores import Scale
from earmark.storage import digest, file_sha256

_DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}

_USUAL_HZ = 16_000
"""Of waveforms, unless the model, its length or the user says otherwise."""

_HZ_OF_LENGTH: Mapping[int, tuple[int, ...]] = {144_000: (48_000,), 160_000: (16_000, 32_000)}
"""Rates that waveforms of a length may have: 3 s (BirdNET); 10 s, or 5 s (Perch)."""

_EMBEDDING_NAMES = ("embedding", "embeddings")
"""Outputs that are taken for embeddings unasked."""

_TO_SCALE: Mapping[str, Scale] = {
    "Sigmoid": "probabilities",
    "HardSigmoid": "probabilities",
    "Softmax": "probabilities",
    "Gemm": "logits",
    "MatMul": "logits",
    "Conv": "logits",
}
"""What comes out of operations that say it."""

_KEEPS_SCALE = (
    "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Cast", "Clip",
    "ReduceMean", "ReduceMax",
)  # fmt: skip
"""Operations that leave probabilities and logits what they are."""


def open_onnx(params: PretrainedParams, _class_names: Sequence[str] = ()) -> PretrainedNetwork:
    """Open an ONNX file; what is not said is told from its shapes and metadata."""
    path = Path(params.network)
    check_file(path)
    session = open_session(path)
    graph = _Graph.of(path, session, params)
    metadata = session.get_modelmeta().custom_metadata_map
    windows = _windows(graph, params, metadata)
    class_ids, class_names = _names(metadata, "class_ids"), _names(metadata, "class_names")
    proto = _read_proto(path)
    said = (graph.kind, graph.output, graph.embedding, repr(windows), params.scale)
    return PretrainedNetwork(
        str(path),
        graph.run,
        windows,
        name=path.stem,
        digest=digest("onnx", _content(path, proto), *said),
        scale=params.scale or _said_scale(proto, graph.output),
        output_names=class_names or class_ids,
        output_ids=class_ids,
    )


@dataclass(frozen=True)
class _Graph:
    """An open model and how to feed it; ``shape`` has None where an axis may have any length."""

    path: Path
    session: Any
    kind: InputKind
    input_name: str
    shape: tuple[int | None, ...]
    dtype: str
    output: str | None
    embedding: str | None

    @classmethod
    def of(cls, path: Path, session: Any, params: PretrainedParams) -> _Graph:
        given = _only_input(path, session)
        shape = tuple(n if isinstance(n, int) else None for n in given.shape)
        kind = _kind(path, shape, params.input_kind)
        names = [one.name for one in session.get_outputs()]
        output, embedding = _chosen(path, names, params.output, params.embedding)
        return cls(path, session, kind, given.name, shape, _DTYPES[given.type], output, embedding)

    def run(self, windows: Floats) -> tuple[Floats | None, Floats | None]:
        """Return embeddings and classes [row, ...] of waveforms or patches [window, ...]."""
        n = 1 if len(self.shape) == 1 else self.shape[0] or len(windows)
        batches = [windows[first : first + n] for first in range(0, len(windows), n)]
        rows = [self._run(batch) for batch in batches]
        return (
            joined([one.get(self.embedding) for one in rows]),
            joined([one.get(self.output) for one in rows]),
        )

    def _run(self, batch: Floats) -> dict[str | None, Floats]:
        """Run one batch, filled up to the model's own size; return rows by output."""
        names = [name for name in (self.embedding, self.output) if name]
        fed = self._fitted(batch)
        try:
            found = self.session.run(names, {self.input_name: fed})
        except Exception as error:  # onnxruntime's errors have no base of their own
            reason = str(error).splitlines()[0]
            raise EarmarkError(
                f"{self.path}: fails on {self.kind} {list(fed.shape)} ({reason}); if the input "
                "is something else, say so with --input"
            ) from None
        is_filled = len(self.shape) > 1 and len(fed) > len(batch)
        return {
            name: as_rows(str(self.path), name, one[: len(batch)] if is_filled else one)
            for name, one in zip(names, found, strict=True)
        }

    def _fitted(self, batch: Floats) -> NDArray[Any]:
        """Return a batch in the model's own axes and type of numbers."""
        if len(self.shape) == 1:
            return np.asarray(batch[0], self.dtype)
        n_missing = max((self.shape[0] or 0) - len(batch), 0)
        filled = np.pad(batch, ((0, n_missing), *((0, 0),) * (batch.ndim - 1)))
        if len(self.shape) == filled.ndim + 1:  # an axis of one channel after the batch
            filled = filled[:, None]
        return np.asarray(filled, self.dtype)


def _only_input(path: Path, session: Any) -> Any:
    inputs = session.get_inputs()
    listed = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs) or "none"
    if len(inputs) != 1 or inputs[0].type not in _DTYPES:
        raise EarmarkError(
            f"{path}: expected one input of floats (waveforms, or log-mel patches), got {listed}"
        )
    return inputs[0]


def _kind(path: Path, shape: Sequence[int | None], wanted: InputKind | None) -> InputKind:
    """Tell waveforms from patches by the axes of the input."""
    n_axes = len(shape)
    may_have_channel = n_axes >= 3 and shape[1] in (1, None)
    fits: dict[InputKind, bool] = {
        "patches": (n_axes == 3 and shape[1] != 1) or (n_axes == 4 and may_have_channel),
        "waveforms": n_axes in (1, 2) or (n_axes == 3 and may_have_channel),
    }
    fitting = [kind for kind, does_fit in fits.items() if does_fit and wanted in (None, kind)]
    if not fitting:
        raise EarmarkError(
            f"{path}: its input has {n_axes} axes {list(shape)}; expected waveforms [samples], "
            "[batch, samples] or [batch, 1, samples], or patches [batch, frames, bands] or "
            "[batch, 1, frames, bands]" + (f"; {wanted} were asked for" if wanted else "")
        )
    return fitting[0]


def _chosen(
    path: Path, names: Sequence[str], output: str | None, embedding: str | None
) -> tuple[str | None, str | None]:
    """Return the outputs for classes and for embeddings."""
    for wanted in (output, embedding):
        if wanted is not None and wanted not in names:
            raise EarmarkError(f"{path}: there is no output {wanted!r}{nearest(wanted, names)}")
    if embedding is None:
        called = [name for name in names if name.lower() in _EMBEDDING_NAMES and name != output]
        embedding = called[0] if called else None
    others = [name for name in names if name != embedding]
    output = output or (others[0] if others else None)
    return None if output == embedding else output, embedding


def _windows(
    graph: _Graph, params: PretrainedParams, metadata: Mapping[str, str]
) -> Windows | Patches:
    if graph.kind == "patches":
        return _patches(graph, params)
    n_samples = graph.shape[-1]
    said = metadata.get("sample_rate_hz", "")
    rate = params.sample_rate_hz or (int(said) if said.isdecimal() else 0)
    if not rate:
        rates = _HZ_OF_LENGTH.get(n_samples or 0, (_USUAL_HZ,))
        if len(rates) > 1:
            listed = " or ".join(f"{(n_samples or 0) / hz:g} s at {hz:,} Hz" for hz in rates)
            raise EarmarkError(
                f"{graph.path}: it takes {n_samples:,} samples and names no sample rate: {listed}? "
                "Say the rate with --sample-rate"
            )
        rate = rates[0]
    return Windows.of_seconds(rate, n_samples, params.hop_seconds)


def _patches(graph: _Graph, params: PretrainedParams) -> Patches:
    if params.sample_rate_hz not in (None, YAMNET.sample_rate_hz):
        raise EarmarkError(
            f"{graph.path}: it takes log-mel patches, which are made of waveforms at "
            f"{YAMNET.sample_rate_hz:,} Hz, got {params.sample_rate_hz:,}; leave --sample-rate out"
        )
    ours, asked = (YAMNET.patch_frames, YAMNET.n_bands), graph.shape[-2:]
    if any(n not in (None, own) for n, own in zip(asked, ours, strict=True)):
        hint = "; is it the transpose that it wants?" if asked == ours[::-1] else ""
        raise EarmarkError(
            f"{graph.path}: it takes patches {list(asked)} [frame, band], earmark makes "
            f"{list(ours)}{hint}"
        )
    if params.hop_seconds is None:
        return Patches()
    hop_frames = max(round(params.hop_seconds / YAMNET.hop_seconds), 1)
    return Patches(YAMNET.model_copy(update={"patch_hop_frames": hop_frames}))


def _names(metadata: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return what a file lists in a way that we know: a JSON list of texts."""
    try:
        names = json.loads(metadata.get(key, "[]"))
    except json.JSONDecodeError:
        return ()
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list else ()


def _read_proto(path: Path) -> Any:
    """Read the graph as such, without weights that lie in other files."""
    onnx = load_library("onnx", "reading an ONNX graph", "onnx")
    return onnx.load(str(path), load_external_data=False)


def _content(path: Path, proto: Any) -> list[str]:
    """Return digests of the file, and of those in which large models keep their weights."""
    entries = (entry for tensor in proto.graph.initializer for entry in tensor.external_data)
    others = sorted({entry.value for entry in entries if entry.key == "location"})
    files = [path, *(path.parent / name for name in others)]
    return [file_sha256(file) for file in files]


def _said_scale(proto: Any, output: str | None) -> Scale | None:
    """Return the scale of classes where the graph says it; None where it does not."""
    makers = {name: node for node in proto.graph.node for name in node.output}
    node = makers.get(output)
    while node is not None and node.op_type in _KEEPS_SCALE:
        node = makers.get(node.input[0])
    if node is not None and node.op_type == "Add":  # of a product and its bias, in either order
        products = (makers.get(name) for name in node.input)
        node = next((one for one in products if one and one.op_type in ("MatMul", "Conv")), None)
    return None if node is None else _TO_SCALE.get(node.op_type)
