"""Networks that begin with another's weights: a MobileNetV1 of ours with YAMNet's body."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from earmark.errors import EarmarkError
from earmark.networks import AnyNetwork, Network, Stack
from earmark.pretrained.catalogue import kept_weights, teachers_folder
from earmark.pretrained.yamnet_weights import KERAS_MODEL, TFLITE_MODEL, read_yamnet
from earmark.runs import ModelParams


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
    body = read_yamnet(path).body.state_dict()
    parts = list(network.students) if isinstance(network, Stack) else [network]
    for part in parts:
        assert isinstance(part, Network)
        part.body.load_state_dict(body)


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
