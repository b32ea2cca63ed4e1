"""Small ONNX models whose scores can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Axes = Sequence[int | str]


def write_model(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    given: Axes,
    found: Axes,
    constants: dict[str, np.ndarray] | None = None,
    class_ids: Sequence[str] = (),
    kind: int = TensorProto.FLOAT,
    metadata: dict[str, str] | None = None,
) -> Path:
    """Write a graph from ``given`` to ``found``."""
    graph = helper.make_graph(
        nodes,
        "made up",
        [helper.make_tensor_value_info("given", kind, given)],
        [helper.make_tensor_value_info("found", kind, found)],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if class_ids:
        metadata = metadata or {"class_ids": json.dumps(list(class_ids))}
    helper.set_model_props(model, metadata or {})
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def mean_of_patches(
    path: Path,
    given: Axes = ("n", 96, 64),
    n: int | str = "n",
    class_ids: Sequence[str] = (),
) -> Path:
    """Write a model whose three logits are the mean level of a patch times 1, 2 and -1."""
    axes = list(range(1, len(given)))
    nodes = [
        helper.make_node("ReduceMean", ["given"], ["mean"], axes=axes, keepdims=0),
        helper.make_node("Unsqueeze", ["mean", "last"], ["column"]),
        helper.make_node("Mul", ["column", "factors"], ["found"]),
    ]
    constants = {"last": np.array([1]), "factors": np.array([[1, 2, -1]], np.float32)}
    return write_model(path, nodes, given, (n, 3), constants, class_ids)


def loudness(path: Path, given: Axes = ("samples",), is_probability: bool = False) -> Path:
    """Write a model of the root mean square [1, 2] of its whole input, and its half."""
    last = "Identity" if is_probability else "Log"
    nodes = [
        helper.make_node("ReduceL2", ["given"], ["norm"], keepdims=0),
        helper.make_node("Size", ["given"], ["size"]),
        helper.make_node("Cast", ["size"], ["n"], to=TensorProto.FLOAT),
        helper.make_node("Sqrt", ["n"], ["root"]),
        helper.make_node("Div", ["norm", "root"], ["level"]),
        helper.make_node("Mul", ["level", "factors"], ["levels"]),
        helper.make_node(last, ["levels"], ["found"]),
    ]
    return write_model(path, nodes, given, (1, 2), {"factors": np.array([[1, 0.5]], np.float32)})
