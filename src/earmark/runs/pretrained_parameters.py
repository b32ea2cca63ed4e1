"""Which pretrained network is listened with, and how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from earmark.runs.parameters import Params

InputKind = Literal["waveforms", "patches"]

Way = Literal["zero-shot", "probe", "blend", "fine-tuned"]
"""How a pretrained network is used as a teacher.

By its own classes; by a probe on its embeddings; by both together; by training it further.
"""


class PretrainedParams(Params):
    """A network that others trained, and what has to be said of it where it does not say itself."""

    network: str
    """A name of ``earmark teachers``, a file (.onnx, .tflite), a folder of Hugging Face's, or
    ``hf:OWNER/NAME`` on its hub."""
    embedding: str | None = None
    """The output or tensor that is taken for embeddings; of Hugging Face's, a layer's number."""
    output: str | None = None
    """The output that is taken for classes."""
    input_kind: InputKind | None = None
    """Whether it takes waveforms or log-mel patches."""
    sample_rate_hz: int | None = Field(None, ge=1)
    """Of its waveforms."""
    hop_seconds: float | None = Field(None, gt=0)
    """From one window to the next, where the network takes windows of a fixed length."""
    scale: Literal["logits", "probabilities"] | None = None
    """Of its classes; told from the network itself unless said."""
    prompt: str = "the sound of {}"
    """Around a class's name, for networks that compare sound with text."""
