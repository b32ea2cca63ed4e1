"""Small TFLite files, written by hand, whose outputs can be worked out by hand.

A file is a list of tensors (constants have values) and of operators between them, by name.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tflite  # first, for it is the library that brings the next one

# isort: split
import flatbuffers
import numpy as np

Builder = flatbuffers.Builder


@dataclass(frozen=True)
class Tensor:
    """One tensor; -1 is an axis of any length. With ``step`` it is quantised, that far apart.

    Quantised tensors without values are int8. A step for each channel lies along ``axis``.
    """

    name: str
    shape: Sequence[int]
    values: np.ndarray | None = None
    step: float | np.ndarray | None = None
    zero_point: int = 0
    axis: int = 0


@dataclass(frozen=True)
class Operator:
    """One operator of TFLite's own, by the name in ``tflite.BuiltinOperator``."""

    code: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: Mapping[str, int] = field(default_factory=dict)
    """Of its table of options, by their names there."""


def write_tflite(
    path: Path,
    tensors: Sequence[Tensor],
    operators: Sequence[Operator],
    inputs: Sequence[str],
    outputs: Sequence[str],
    labels: Sequence[str] = (),
) -> Path:
    """Write a file; ``labels`` are put into it as Google does."""
    builder = Builder(1024)
    buffers = [_buffer(builder, None), *(_buffer(builder, tensor.values) for tensor in tensors)]
    places = {tensor.name: place for place, tensor in enumerate(tensors)}
    codes = sorted({one.code for one in operators})
    graph = _graph(builder, tensors, operators, codes, places, inputs, outputs)
    parts = {
        "OperatorCodes": _tables(builder, [_operator_code(builder, code) for code in codes]),
        "Subgraphs": _tables(builder, [graph]),
        "Buffers": _tables(builder, buffers),
    }
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    for name, part in parts.items():
        getattr(tflite, f"ModelAdd{name}")(builder, part)
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    if labels:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("labels.txt", "\n".join(labels) + "\n")
    return path


def dense_network(
    path: Path,
    shape: Sequence[int] = (1, 100),
    n_outputs: int = 3,
    is_probability: bool = True,
    is_quantised: bool = False,
    labels: Sequence[str] = (),
) -> Path:
    """Write a network of one window: to ``embedding``, to ``logits``, to ``scores``.

    ``embedding`` [1, 2] is the window's mean and its sum, ``logits`` [1, output] are the mean times
    0, 1, 2 ..., ``scores`` their sigmoid: the one output, unless it is the logits. A window of any
    length (-1) is its mean only, so that ``embedding`` is twice the mean. Quantised, the sigmoid
    is int8 in steps of 1/256 before it is made a float again.
    """
    n_samples = shape[-1]
    is_any = n_samples == -1
    weights = np.ones((2, 1 if is_any else n_samples), np.float32)
    weights[0] /= weights.shape[1]
    factors = np.stack([np.arange(n_outputs), np.zeros(n_outputs)], axis=1).astype(np.float32)
    tensors = [
        Tensor("waveform", shape),
        Tensor("weights", weights.shape, weights),
        Tensor("factors", factors.shape, factors),
        Tensor("embedding", (1, 2)),
        Tensor("logits", (1, n_outputs)),
        Tensor("scores", (1, n_outputs)),
    ]
    operators = [
        Operator("FULLY_CONNECTED", ["waveform", "weights"], ["embedding"]),
        Operator("FULLY_CONNECTED", ["embedding", "factors"], ["logits"]),
        Operator("LOGISTIC", ["logits"], ["scores"]),
    ]
    if is_any:
        axis = np.array([len(shape) - 1], np.int32)
        tensors += [Tensor("axis", (1,), axis), Tensor("mean", (1, 1))]
        operators = [
            Operator("MEAN", ["waveform", "axis"], ["mean"]),
            Operator("FULLY_CONNECTED", ["mean", "weights"], ["embedding"]),
            *operators[1:],
        ]
    if is_quantised:
        tensors += [Tensor("coarse", (1, n_outputs), step=1 / 256, zero_point=-128)]
        tensors += [Tensor("found", (1, n_outputs))]
        operators += [
            Operator("QUANTIZE", ["scores"], ["coarse"]),
            Operator("DEQUANTIZE", ["coarse"], ["found"]),
        ]
    found = "found" if is_quantised else "scores" if is_probability else "logits"
    return write_tflite(path, tensors, operators, ["waveform"], [found], labels)


_TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "int32": tflite.TensorType.INT32,
    "int8": tflite.TensorType.INT8,
}

_OPTIONS: dict[str, tuple[str, Callable[[Builder], None]]] = {
    "CONV_2D": ("Conv2DOptions", lambda _: None),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", lambda _: None),
    "FULLY_CONNECTED": ("FullyConnectedOptions", lambda _: None),
    "MEAN": ("ReducerOptions", lambda builder: tflite.ReducerOptionsAddKeepDims(builder, True)),
}
"""Operators that have options: their table, and what is put into it."""


def _graph(
    builder: Builder,
    tensors: Sequence[Tensor],
    operators: Sequence[Operator],
    codes: Sequence[str],
    places: dict[str, int],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> int:
    written = [_tensor(builder, tensor, 1 + place) for place, tensor in enumerate(tensors)]
    calls = [_operator(builder, one, codes.index(one.code), places) for one in operators]
    parts = {
        "Tensors": _tables(builder, written),
        "Inputs": _numbers(builder, [places[name] for name in inputs]),
        "Outputs": _numbers(builder, [places[name] for name in outputs]),
        "Operators": _tables(builder, calls),
    }
    tflite.SubGraphStart(builder)
    for name, part in parts.items():
        getattr(tflite, f"SubGraphAdd{name}")(builder, part)
    return tflite.SubGraphEnd(builder)


def _tensor(builder: Builder, tensor: Tensor, buffer: int) -> int:
    name = builder.CreateString(tensor.name)
    shape = _numbers(builder, [max(n, 1) for n in tensor.shape])
    signature = _numbers(builder, tensor.shape)
    quantisation = None if tensor.step is None else _quantisation(builder, tensor)
    unfilled = "float32" if tensor.step is None else "int8"
    kind = unfilled if tensor.values is None else tensor.values.dtype.name
    tflite.TensorStart(builder)
    tflite.TensorAddName(builder, name)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddShapeSignature(builder, signature)
    tflite.TensorAddBuffer(builder, buffer)
    tflite.TensorAddType(builder, _TYPES[kind])
    if quantisation is not None:
        tflite.TensorAddQuantization(builder, quantisation)
    return tflite.TensorEnd(builder)


def _quantisation(builder: Builder, tensor: Tensor) -> int:
    steps = np.atleast_1d(np.asarray(tensor.step, np.float32))
    scale = builder.CreateNumpyVector(steps)
    zero_point = builder.CreateNumpyVector(np.full(len(steps), tensor.zero_point, np.int64))
    tflite.QuantizationParametersStart(builder)
    tflite.QuantizationParametersAddQuantizedDimension(builder, tensor.axis)
    tflite.QuantizationParametersAddScale(builder, scale)
    tflite.QuantizationParametersAddZeroPoint(builder, zero_point)
    return tflite.QuantizationParametersEnd(builder)


def _operator(builder: Builder, one: Operator, code: int, places: dict[str, int]) -> int:
    inputs = _numbers(builder, [places[name] for name in one.inputs])
    outputs = _numbers(builder, [places[name] for name in one.outputs])
    table, fill = _OPTIONS.get(one.code, (None, None))
    options = None
    if table is not None and fill is not None:
        getattr(tflite, f"{table}Start")(builder)
        fill(builder)
        for name, value in one.options.items():
            getattr(tflite, f"{table}Add{name}")(builder, value)
        options = getattr(tflite, f"{table}End")(builder)
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, code)
    tflite.OperatorAddInputs(builder, inputs)
    tflite.OperatorAddOutputs(builder, outputs)
    if options is not None:
        kind = getattr(tflite.BuiltinOptions, str(table))
        tflite.OperatorAddBuiltinOptionsType(builder, kind)
        tflite.OperatorAddBuiltinOptions(builder, options)
    return tflite.OperatorEnd(builder)


def _operator_code(builder: Builder, code: str) -> int:
    number = getattr(tflite.BuiltinOperator, code)
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(number, 127))
    tflite.OperatorCodeAddBuiltinCode(builder, number)
    tflite.OperatorCodeAddVersion(builder, 1)
    return tflite.OperatorCodeEnd(builder)


def _buffer(builder: Builder, values: np.ndarray | None) -> int:
    if values is None:
        tflite.BufferStart(builder)
        return tflite.BufferEnd(builder)
    data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
    builder.StartVector(1, len(data), 16)
    builder.head -= len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data.tobytes()
    vector = builder.EndVector()
    tflite.BufferStart(builder)
    tflite.BufferAddData(builder, vector)
    return tflite.BufferEnd(builder)


def _tables(builder: Builder, tables: Sequence[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    return builder.EndVector()


def _numbers(builder: Builder, numbers: Sequence[int]) -> int:
    return builder.CreateNumpyVector(np.array(numbers, np.int32))
