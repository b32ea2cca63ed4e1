"""YAMNet: waveforms to embeddings [patch, 1024] and logits [patch, 521], and its weights.

On a GPU it runs in torch; on a CPU in ONNX Runtime, which is half as fast again as torch and as
TFLite's interpreter. The ONNX graph is written directly, because torch's exporter takes ten seconds
for a chain of convolutions.

Weights are read into our own MobileNetV1 from the files that Google publishes. The TFLite file
holds int8 kernels with a scale for each channel and folded batch normalisation: kernels are
dequantised, the folded shift becomes the normalisation's shift, with mean 0 and variance 1. Its
units saturate at 6 (ReLU6), which those of the Keras network do not. The Keras file ``yamnet.h5``
holds float32 kernels and normalisation by the layer names of Google's public source
(``layer3/depthwise_conv/bn``). :func:`begin` starts a network for fine-tuning from these weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from earmark.audio import YAMNET
from earmark.config import ModelParams, PretrainedParams
from earmark.errors import EarmarkError, check_file, load_library, reader, reading
from earmark.models import (
    CACHED_PATCHES,
    MOBILENET_V1_ROWS,
    AnyNetwork,
    Network,
    SameConv,
    build_model,
    open_session,
    own_device,
)
from earmark.models.pretrained.catalogue import DEFAULT_TEACHER, kept_weights, teachers_folder
from earmark.models.pretrained.class_maps import read_yamnet_classes
from earmark.models.pretrained.network import Patches, PretrainedNetwork, Run
from earmark.storage import digest, file_sha256

N_OUTPUTS, N_FEATURES = 521, 1_024

KERAS_MODEL = ModelParams(architecture="mobilenet_v1", norm_epsilon=1e-4)
TFLITE_MODEL = KERAS_MODEL.model_copy(update={"relu_limit": 6.0})
"""YAMNet in our parameters, by the file that it is read from."""

_INT8, _INT32, _FLOAT32 = 9, 2, 0
"""TFLite's codes of number types."""

_Layer = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
"""A convolution's kernel [out, in, frame, band]; its normalisation's beta, mean and variance."""

_Pair = tuple[NDArray[np.float32], NDArray[np.float32]]
"""The last layer's weights [class, feature] and bias [class]; or embeddings and logits."""


@reader("weights of YAMNet")
def read_yamnet(path: str | Path) -> Network:
    """Read YAMNet from ``.tflite`` or ``.h5``, recognised by content, ready for inference.

    A damaged file, or one of another network, raises EarmarkError.
    """
    path = Path(path)
    check_file(path)
    with path.open("rb") as file:
        head = file.read(8)
    if head == b"\x89HDF\r\n\x1a\n":
        return _network(path, KERAS_MODEL, *_read_keras(path))
    if head[4:] == b"TFL3":
        return _network(path, TFLITE_MODEL, *_read_tflite(path))
    raise EarmarkError(
        f"{path}: expected YAMNet's weights as TFLite or Keras (HDF5), got a file that begins "
        f"with {head!r}; `earmark teachers` says where they come from"
    )


_GET_AGAIN = "damaged, or cut off? Get it again from Google's address: `earmark teachers` names it"
_MOST_BYTES = 2**28
"""Of one array of weights: the largest of YAMNet's has 4 MB, and a header may claim anything."""


def _network(path: Path, model: ModelParams, layers: Sequence[_Layer], head: _Pair) -> Network:
    """Put weights into our network; refuse those that are not its."""
    network = build_model(model, N_OUTPUTS)
    modules = list(network.body)
    convolutions = [one for one in modules if isinstance(one, SameConv)]
    norms = [one for one in modules if isinstance(one, nn.BatchNorm2d)]
    if len(layers) != len(convolutions):
        raise _not_yamnet(path, f"{len(convolutions)} convolutions", f"{len(layers)}")
    for place, (convolution, norm, layer) in enumerate(
        zip(convolutions, norms, layers, strict=True)
    ):
        kernel, beta, mean, variance = layer
        name = f"layer {place + 1} of {len(layers)}"
        _put(path, name, convolution.weight, kernel)
        _put(path, name, norm.bias, beta)
        _put(path, name, norm.running_mean, mean)
        _put(path, name, norm.running_var, variance)
    _put(path, "the last layer", network.head.weight, head[0])
    _put(path, "the last layer", network.head.bias, head[1])
    return network.eval()


def _put(path: Path, name: str, place: Any, values: NDArray[np.float32]) -> None:
    if tuple(place.shape) != values.shape:
        raise _not_yamnet(path, f"{name} of {list(place.shape)}", f"{list(values.shape)}")
    if not np.isfinite(values).all():
        raise EarmarkError(f"{path}: {name} holds NaN or infinite weights; the file is damaged")
    with torch.no_grad():
        place.copy_(torch.from_numpy(np.ascontiguousarray(values)))


def _not_yamnet(path: Path, expected: str, came: str) -> EarmarkError:
    return EarmarkError(
        f"{path}: not YAMNet: expected {expected}, got {came}. To teach with another network, give "
        "its file as it is: earmark score WORK --teacher FILE"
    )


def _read_tflite(path: Path) -> tuple[list[_Layer], _Pair]:
    schema = load_library("tflite", "reading TFLite weights", "pretrained")
    # Flatbuffers reads past the end of what is cut off, and fails anyhow.
    with reading(path, "TFLite", "damaged, or cut off? Get it again: earmark teachers get yamnet"):
        graph = _TfliteGraph(schema, path.read_bytes())
        convolutions = list(graph.weighted("CONV_2D", "DEPTHWISE_CONV_2D"))
        heads = list(graph.weighted("FULLY_CONNECTED"))[-1:]
    if not heads:
        raise _not_yamnet(path, "a last layer of 521 classes", "none")
    return [_unfolded(*one) for one in convolutions], heads[0]


def _unfolded(kernel: NDArray[np.float32], shift: NDArray[np.float32]) -> _Layer:
    """Return a folded convolution, TFLite's kernel [out, frame, band, in], as kernel and norm."""
    is_depthwise = kernel.shape[0] == 1 and len(shift) == kernel.shape[3]
    axes = (3, 0, 1, 2) if is_depthwise else (0, 3, 1, 2)
    variance = np.full(shift.shape, 1 - TFLITE_MODEL.norm_epsilon, np.float32)
    return kernel.transpose(axes), shift, np.zeros_like(shift), variance


class _TfliteGraph:
    """The operators of a TFLite file that have weights."""

    def __init__(self, schema: Any, content: bytes) -> None:
        self._schema = schema
        self._model = schema.Model.GetRootAsModel(content, 0)
        self._graph = self._model.Subgraphs(0)

    def weighted(self, *names: str) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Yield kernel and bias, dequantised, of the operators of these names, in their order."""
        wanted = {getattr(self._schema.BuiltinOperator, name) for name in names}
        for number in range(self._graph.OperatorsLength()):
            operator = self._graph.Operators(number)
            code = self._model.OperatorCodes(operator.OpcodeIndex())
            if max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) in wanted:
                _, kernel, bias = operator.InputsAsNumpy()
                yield self._values(int(kernel)), self._values(int(bias))

    def _values(self, place: int) -> NDArray[np.float32]:
        tensor = self._graph.Tensors(place)
        dtype = {_INT8: np.int8, _INT32: np.int32, _FLOAT32: np.float32}[tensor.Type()]
        stored = self._model.Buffers(tensor.Buffer()).DataAsNumpy()
        values = np.frombuffer(stored.tobytes(), dtype).reshape(tensor.ShapeAsNumpy())
        if dtype == np.float32:
            return values
        quantised = tensor.Quantization()
        axes = [1] * values.ndim
        if quantised.ScaleLength() > 1:
            axes[quantised.QuantizedDimension()] = -1
        scale = quantised.ScaleAsNumpy().astype(np.float64).reshape(axes)
        zero = quantised.ZeroPointAsNumpy().astype(np.float64).reshape(axes)
        return np.asarray((values - zero) * scale, np.float32)


def keras_layers() -> tuple[str, ...]:
    """Return the names of the convolutions in Google's source, in their order."""
    pairs = (
        f"layer{number}/{kind}_conv"
        for number in range(2, len(MOBILENET_V1_ROWS) + 2)
        for kind in ("depthwise", "pointwise")
    )
    return ("layer1/conv", *pairs)


def _read_keras(path: Path) -> tuple[list[_Layer], _Pair]:
    h5py = load_library("h5py", "reading Keras weights", "pretrained")
    with reading(path, "HDF5", _GET_AGAIN), h5py.File(path) as file:
        stored = _stored_weights(h5py, file)
    layers = [_keras_layer(path, stored, name) for name in keras_layers()]
    heads = [name for name, values in stored.items() if values.ndim == 2]
    bias = [name.replace("kernel", "bias") for name in heads]
    if len(heads) != 1 or bias[0] not in stored:
        raise _not_yamnet(path, "one dense layer with a bias", f"{len(heads)}")
    return layers, (stored[heads[0]].T, stored[bias[0]])


def _stored_weights(h5py: Any, file: Any) -> dict[str, NDArray[np.float32]]:
    """Return the weights of an HDF5 file by name: ``layer1/conv/kernel``.

    Keras writes each into a group of the layer's name, under its own name, in which the layer's is
    once more.
    """
    stored: dict[str, NDArray[np.float32]] = {}

    def collect(place: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            parts = place.removesuffix(":0").split("/")
            half = len(parts) // 2
            doubled = parts[:half] == parts[half : 2 * half]
            if item.nbytes > _MOST_BYTES:
                raise ValueError(f"{place} claims {item.nbytes:,} bytes")
            stored["/".join(parts[half:] if doubled else parts)] = np.asarray(item, np.float32)

    file.visititems(collect)
    return stored


def _keras_layer(path: Path, stored: dict[str, NDArray[np.float32]], name: str) -> _Layer:
    is_depthwise = name.endswith("depthwise_conv")
    wanted = [f"{name}/{'depthwise_kernel' if is_depthwise else 'kernel'}"]
    wanted += [f"{name}/bn/{part}" for part in ("beta", "moving_mean", "moving_variance")]
    missing = [one for one in wanted if one not in stored]
    if missing:
        raise _not_yamnet(path, f"weights {missing[0]!r}", f"{len(stored)} others")
    kernel, beta, mean, variance = (stored[one] for one in wanted)
    # [frame, band, in, out], and [frame, band, channel, 1] of a depthwise one.
    return kernel.transpose((2, 3, 0, 1) if is_depthwise else (3, 2, 0, 1)), beta, mean, variance


def begun_model(name: str) -> ModelParams:
    """Return the parameters of a network that begins with a known teacher's weights.

    They name the file of weights in the cache, and so its hash.
    """
    path = kept_weights(name).path
    model = KERAS_MODEL if path.suffix == ".h5" else TFLITE_MODEL
    return model.model_copy(update={"begins_with": path.name})


def begin(network: AnyNetwork, params: ModelParams) -> None:
    """Give a network the weights that it begins with; its last layer stays as it is drawn."""
    if params.begins_with is None:
        return
    path = teachers_folder() / Path(params.begins_with).name
    if not path.exists():
        raise EarmarkError(
            f"{path}: a network begins with these weights, and they are not there; fetch them with "
            "`earmark teachers get yamnet` or `earmark teachers add FILE`"
        )
    assert isinstance(network, Network)
    network.body.load_state_dict(read_yamnet(path).body.state_dict())


def keep_statistics(network: nn.Module, params: ModelParams) -> None:
    """Keep the statistics of normalisation as they are, in a network in training.

    Those that came with folded weights hold no mean and variance of their own to go on from, and
    a few clips are a poor estimate of them.
    """
    if params.begins_with is None:
        return
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


_OPSET, _IR_VERSION = 17, 8
"""Of ONNX: old enough for every runtime of the last years."""

_GPU_PATCHES = 512


def open_yamnet(params: PretrainedParams, class_names: Sequence[str] = ()) -> PretrainedNetwork:
    """Open YAMNet from the cache, or from a file; nothing is left to be said of it."""
    del class_names
    plain = PretrainedParams(network=params.network, prompt=params.prompt)
    said = [name for name, value in params if value != getattr(plain, name)]
    if said:
        raise EarmarkError(
            f"{params.network}: what YAMNet takes and gives is known; leave {said[0]} out, or give "
            "another network"
        )
    is_name = params.network == DEFAULT_TEACHER
    path = kept_weights(DEFAULT_TEACHER).path if is_name else Path(params.network)
    network, names = read_yamnet(path), read_yamnet_classes()
    is_on_gpu = own_device().type != "cpu"
    return PretrainedNetwork(
        str(path),
        run_in_torch(network) if is_on_gpu else _run_in_onnx(network),
        Patches(),
        name=DEFAULT_TEACHER,
        # GPU and CPU round differently, so their outputs have different digests.
        digest=digest("yamnet", file_sha256(path), "gpu" if is_on_gpu else "cpu"),
        scale="logits",
        output_names=names.names,
        output_ids=names.ids,
        n_at_once=_GPU_PATCHES if is_on_gpu else CACHED_PATCHES // 2,
    )


def run_in_torch(network: Network) -> Run:
    """Return the function from patches [patch, frame, band] to embeddings and logits, in torch."""
    network.to(own_device())

    @torch.inference_mode()
    def run(image: NDArray[np.float32]) -> _Pair:
        features = network.embed(torch.from_numpy(image.copy()).to(own_device()))
        return features.float().cpu().numpy(), network.head(features).float().cpu().numpy()

    return run


def _run_in_onnx(network: Network) -> Run:
    session = open_session(_graph(network))

    def run(image: NDArray[np.float32]) -> _Pair:
        embeddings, logits = session.run(None, {"patches": np.ascontiguousarray(image)})
        return embeddings, logits

    return run


def _graph(network: Network) -> bytes:
    """Return a MobileNetV1 as an ONNX graph: ``patches`` to ``embeddings`` and ``logits``.

    Batch normalisation is folded into the convolutions.
    """
    onnx = load_library("onnx", "listening with YAMNet", "onnx")
    nodes: list[Any] = []
    weights: list[Any] = []

    def add(kind: str, source: str, output: str, *arrays: Any, **options: Any) -> str:
        """Add a node with its weights; return the name of its output."""
        names = [f"{output}.{place}" for place in range(len(arrays))]
        for name, values in zip(names, arrays, strict=True):
            weights.append(onnx.numpy_helper.from_array(np.asarray(values), name))
        nodes.append(onnx.helper.make_node(kind, [source, *names], [output], **options))
        return output

    image = add("Unsqueeze", "patches", "image", np.array([1]))
    modules: list[Any] = list(network.body)
    for place in range(0, len(modules), 3):
        convolution, norm, relu = modules[place : place + 3]
        folded = nn.utils.fuse_conv_bn_eval(convolution, norm)
        image = add(
            "Conv",
            image,
            f"conv{place}",
            folded.weight.detach().numpy(),
            folded.bias.detach().numpy(),
            kernel_shape=list(convolution.kernel_size),
            strides=list(convolution.stride),
            group=convolution.groups,
            auto_pad="SAME_UPPER",
        )
        limit = getattr(relu, "max_val", None)
        limits = () if limit is None else (np.float32(0), np.float32(limit))
        image = add("Clip" if limits else "Relu", image, f"relu{place}", *limits)
    add("Flatten", add("GlobalAveragePool", image, "pooled"), "embeddings")
    head = (network.head.weight.detach().numpy(), network.head.bias.detach().numpy())
    add("Gemm", "embeddings", "logits", *head, transB=1)

    def ends(**axes: list[Any]) -> list[Any]:
        kind = onnx.TensorProto.FLOAT
        return [onnx.helper.make_tensor_value_info(name, kind, own) for name, own in axes.items()]

    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            "yamnet",
            ends(patches=["n", YAMNET.patch_frames, YAMNET.n_bands]),
            ends(embeddings=["n", N_FEATURES], logits=["n", N_OUTPUTS]),
            weights,
        ),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    graph: bytes = model.SerializeToString()
    return graph
