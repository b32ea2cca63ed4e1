"""Any TFLite file that hears waveforms: BirdNET, Perch and YAMNet are published so.

A file takes [samples] or [1, samples], of one length or of any. Its sample rate is given, or known
from its length (:data:`HZ_OF_LENGTH`). Classes are the first output, unless
``output`` names another; ``embedding`` names what is taken for embeddings: an output or any tensor
inside, which most files need, because they give classes only. Names of classes are those that the
file itself carries. Of quantised tensors the numbers that they stand for are taken.
"""

from __future__ import annotations

import difflib
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from earmark.config import PretrainedParams
from earmark.errors import EarmarkError, check_file, load_library
from earmark.models.pretrained.network import Floats, PretrainedNetwork, Windows, as_rows, joined
from earmark.scores import Scale
from earmark.storage import digest, file_sha256

HZ_OF_LENGTH: Mapping[int, int] = {15_600: 16_000, 144_000: 48_000, 160_000: 32_000}
"""Sample rates of windows so many samples long: YAMNet's, BirdNET's of 3 s, Perch's of 5 s."""

_TO_SCALE: Mapping[str, Scale] = {
    "LOGISTIC": "probabilities",
    "SOFTMAX": "probabilities",
    "FULLY_CONNECTED": "logits",
    "CONV_2D": "logits",
    "BATCH_MATMUL": "logits",
}
"""What comes out of operations that say it."""

_KEEPS_SCALE = ("DEQUANTIZE", "QUANTIZE", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CAST", "MEAN")
"""Operations that leave probabilities and logits what they are."""

_N_LISTED = 5
"""Tensors that a message lists."""

_MOST_TEXT = 2**24
"""Bytes of class names: what is longer, or claims to be, is no list of them."""


def open_tflite(params: PretrainedParams, _class_names: Sequence[str] = ()) -> PretrainedNetwork:
    """Open a TFLite file; what is not said is told from the file."""
    path = Path(params.network)
    check_file(path)
    graph = _Graph.of(path, params)
    rate = params.sample_rate_hz or _rate_of(graph)
    windows = Windows.of_seconds(rate, graph.n_samples, params.hop_seconds)
    named = (params.output, params.embedding)
    scale, step = graph.said_scale()
    return PretrainedNetwork(
        str(path),
        graph.run,
        windows,
        name=path.stem,
        digest=digest("tflite", file_sha256(path), *named, repr(windows), params.scale),
        scale=params.scale or scale,
        step=step,
        output_names=_labels(path),
    )


@dataclass(frozen=True)
class _Graph:
    """An open file, and what the interpreter says of the tensors that are taken."""

    path: Path
    interpreter: Any
    output: Any
    embedding: Any

    @classmethod
    def of(cls, path: Path, params: PretrainedParams) -> _Graph:
        interpreter = _open(path, reads_inside=bool(params.output or params.embedding))
        embedding = _find(path, interpreter, params.embedding) if params.embedding else None
        taken = embedding["index"] if embedding else None
        if params.output:
            output = _find(path, interpreter, params.output)
        else:
            others = [one for one in interpreter.get_output_details() if one["index"] != taken]
            output = others[0] if others else None
        is_same = output is not None and output["index"] == taken
        graph = cls(path, interpreter, None if is_same else output, embedding)
        graph.check_input()
        return graph

    @property
    def _input(self) -> Any:
        return self.interpreter.get_input_details()[0]

    @property
    def n_samples(self) -> int | None:
        """Samples of one window; None for any number. One sample is how old files say any."""
        n = int(self._input["shape_signature"][-1])
        return n if n > 1 else None

    def check_input(self) -> None:
        """Refuse networks that do not take one waveform at a time."""
        inputs = self.interpreter.get_input_details()
        listed = ", ".join(
            f"{one['name']} {np.dtype(one['dtype'])} {one['shape_signature'].tolist()}"
            for one in inputs
        )
        axes = inputs[0]["shape_signature"].tolist() if len(inputs) == 1 else []
        is_waveform = len(axes) == 1 or (len(axes) == 2 and axes[0] in (1, -1))
        if not is_waveform or inputs[0]["dtype"] != np.float32:
            raise EarmarkError(
                f"{self.path}: expected one input of float32 waveforms, [samples] or [1, samples], "
                f"got {listed or 'none'}"
            )

    def run(self, windows: Floats) -> tuple[Floats | None, Floats | None]:
        """Return embeddings and classes [row, ...] of windows [window, sample], one by one."""
        embeddings, outputs = zip(*map(self._run, windows), strict=True)
        return joined(embeddings), joined(outputs)

    def _run(self, window: Floats) -> tuple[Floats | None, Floats | None]:
        given = self._input
        shape = [1] * (len(given["shape"]) - 1) + [len(window)]
        try:
            if given["shape"].tolist() != shape:
                self.interpreter.resize_tensor_input(given["index"], shape)
                self.interpreter.allocate_tensors()
            self.interpreter.set_tensor(given["index"], window.reshape(shape))
            self.interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise EarmarkError(
                f"{self.path}: fails on a waveform {shape} ({_reason(error)}); does it take "
                "something else?"
            ) from None
        return self._values(self.embedding), self._values(self.output)

    def _values(self, tensor: Any) -> Floats | None:
        """Return a tensor as rows of the numbers that it stands for."""
        if tensor is None:
            return None
        values = self.interpreter.get_tensor(tensor["index"])
        scale, zero_point = tensor["quantization"]
        if scale:
            values = (values.astype(np.float32) - zero_point) * np.float32(scale)
        return as_rows(str(self.path), tensor["name"], values)

    def said_scale(self) -> tuple[Scale | None, float | None]:
        """Tell on which scale classes end, and of probabilities the coarsest step on the way."""
        makers = _makers(self.interpreter)
        steps = {one["index"]: one["quantization"][0] for one in _tensors(self.interpreter)}
        index, step = self.output["index"] if self.output else None, 0.0
        while index is not None:
            step = max(step, float(steps.get(index, 0)))
            operation, given = makers.get(index, ("", None))
            if operation in _TO_SCALE:
                return _TO_SCALE[operation], step or None
            index = given if operation in _KEEPS_SCALE else None
        return None, None


def _open(path: Path, *, reads_inside: bool) -> Any:
    runtime = load_library("ai_edge_litert.interpreter", "running a TFLite file", "tflite")
    try:
        with _without_chatter(), warnings.catch_warnings():
            # That tensors inside are kept is meant, and warned of as a thing for debugging.
            warnings.filterwarnings("ignore", ".*experimental_preserve_all_tensors")
            interpreter = runtime.Interpreter(
                str(path), num_threads=1, experimental_preserve_all_tensors=reads_inside
            )
            interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise EarmarkError(
            f"{path}: cannot be opened as TFLite ({_reason(error)}); damaged, or not a TFLite file?"
        ) from None
    return interpreter


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep the library from telling the terminal which parts of itself it chose.

    It writes to the process's standard error, past Python; what fails it raises.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _tensors(interpreter: Any) -> list[Any]:
    return [one for one in interpreter.get_tensor_details() if one["name"]]


def _makers(interpreter: Any) -> dict[int, tuple[str, int | None]]:
    """Return for each tensor that is computed the operation that makes it, and its first input."""
    return {
        int(index): (one["op_name"], int(one["inputs"][0]) if len(one["inputs"]) else None)
        for one in interpreter._get_ops_details()
        if one["op_name"] != "DELEGATE"  # stands for operations that are listed themselves
        for index in one["outputs"]
    }


def _find(path: Path, interpreter: Any, wanted: str) -> Any:
    """Return what is known of a tensor that is computed, given its name."""
    made = _makers(interpreter)
    computed = [one for one in _tensors(interpreter) if one["index"] in made]
    found = [one for one in computed if one["name"] == wanted]
    if found:
        return found[0]
    vectors = [one for one in computed if max(one["shape"], default=0) == one["shape"].prod() > 1]
    listed = ", ".join(
        f"{one['name']!r} {one['shape'].tolist()}" for one in (vectors or computed)[-_N_LISTED:]
    )
    near = difflib.get_close_matches(wanted, [one["name"] for one in computed], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise EarmarkError(f"{path}: it has no tensor {wanted!r}{hint}; the last ones are {listed}")


def _rate_of(graph: _Graph) -> int:
    rate = HZ_OF_LENGTH.get(graph.n_samples or 0)
    if rate is None:
        length = f"{graph.n_samples:,} samples" if graph.n_samples else "any number of samples"
        raise EarmarkError(
            f"{graph.path}: it takes {length} and does not say at which rate; say it with "
            "--sample-rate, in Hz"
        )
    return rate


def _labels(path: Path) -> tuple[str, ...]:
    """Return the class names that are zipped into a file: the lines of its one text."""
    if not zipfile.is_zipfile(path):
        return ()
    with zipfile.ZipFile(path) as archive:
        texts = [name for name in archive.namelist() if name.lower().endswith(".txt")]
        if len(texts) != 1 or archive.getinfo(texts[0]).file_size > _MOST_TEXT:
            return ()
        lines = archive.read(texts[0]).decode("utf-8", "replace").splitlines()
    return tuple(line.strip() for line in lines if line.strip())
