"""Audio networks of Hugging Face's ``transformers``: a local folder, or ``hf:OWNER/NAME``.

*Classifiers* (AST, wav2vec 2.0, HuBERT, Whisper ...; ``AutoModelForAudioClassification``) give the
logits of their classes as they are, whether they were trained for one class a clip (softmax) or for
several (sigmoid), and as embedding of a window the mean of the last hidden states over all places;
``embedding`` may name another layer by its number, 0 being what enters the first. A network without
a trained head, such as wav2vec 2.0 before any fine-tuning, gives embeddings only.

*CLAP* compares sound with text: its classes are the dataset's, each in the words of ``prompt``, its
logits the scaled similarities, its embeddings those of the sound.

A clip is heard in windows of the network's own length; where it has none, of 10 s. A shorter clip
is given as it is, and filled up as the network's own feature extractor does. Once a network has
come from the hub, its copy is used and the hub is asked no more. Code that comes with weights is
never run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from earmark.config import PretrainedParams
from earmark.errors import EarmarkError, first_few, load_library
from earmark.models import own_device
from earmark.models.pretrained.network import Floats, PretrainedNetwork, Run, Windows
from earmark.storage import digest

LONGEST_SECONDS = 10.0
"""Of a window, for networks that take any length: attention takes the square of it."""

_AST_HOP_SECONDS = 0.010
"""Between the frames in which AST's length is counted."""

_RATES_HZ, _LONGEST_WINDOW_SECONDS = (1_000, 1_000_000), 600
"""Accepted range of sample rates, and the largest number of samples at once."""

_DEEP, _MOST_LAYERS = re.compile("layers|depth|blocks|stages"), 1_000
"""Settings that say how deep a network is, and the deepest that is believed."""

_TEXTS_AT_ONCE = 64

_NOT_WEIGHTS = ("masked_spec_embed", "position_ids", "num_batches_tracked")
"""Ends of names that may be missing from a file: nothing that is heard depends on them."""

_CHANGING = ("_name_or_path", "transformers_version", "processor_class", "mel_filters")
"""Entries of a configuration that say nothing of what is computed."""


def open_huggingface(
    params: PretrainedParams, class_names: Sequence[str] = ()
) -> PretrainedNetwork:
    """Open a classifier or a CLAP; ``class_names`` are what CLAP is asked for."""
    parts = _read_parts(params.network)
    rate = int(parts.extractor.sampling_rate)
    _check_said(params, rate)
    has_head = _has_head(params.network, parts)
    n_samples = _window_samples(parts.extractor)
    _check_claims(params.network, rate, n_samples)
    windows = Windows.of_seconds(rate, n_samples, params.hop_seconds, fills_up=False)
    model = parts.model.float().eval().to(own_device())
    names: tuple[str, ...]
    run: Run
    if parts.is_clap:
        names = tuple(class_names)
        texts = _texts(params, names)
        run = _run_clap(parts.extractor, model, _text_features(model, parts.tokenizer, texts))
    else:
        names = _label_names(model.config) if has_head else ()
        texts = []
        run = _run_classifier(parts.extractor, model, _layer(params, model), has_head)
    return PretrainedNetwork(
        params.network,
        run,
        windows,
        name=params.network.removeprefix("hf:").rstrip("/").rpartition("/")[2],
        digest=digest(
            "huggingface", parts.content_digest(), texts, params.embedding, repr(windows)
        ),
        scale="logits",
        output_names=names,
    )


@dataclass(frozen=True)
class _Parts:
    """What a folder holds."""

    extractor: Any
    model: Any
    missing: frozenset[str]
    """Weights that the folder lacks, now random."""
    tokenizer: Any
    """None but for CLAP."""

    @property
    def is_clap(self) -> bool:
        return str(self.model.config.model_type) == "clap"

    def content_digest(self) -> str:
        """Identify the weights that were read and how they are used."""
        settings = [self.model.config.to_diff_dict(), self.extractor.to_dict()]
        kept = [{key: one[key] for key in sorted(one) if key not in _CHANGING} for one in settings]
        found = hashlib.sha256(json.dumps(kept, default=str, sort_keys=True).encode())
        for name, weights in sorted(self.model.state_dict().items()):
            if name not in self.missing:
                found.update(name.encode())
                found.update(weights.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return found.hexdigest()


def _run_classifier(extractor: Any, model: Any, layer: int, has_head: bool) -> Run:
    """Return the function from windows to the mean of a layer's hidden states, and to logits."""

    @torch.inference_mode()
    def run_one(window: Floats) -> tuple[Floats, Floats]:
        output = model(**_extracted(extractor, model, window), output_hidden_states=True)
        states = output.hidden_states[layer]  # [1, ..., feature]
        embedding = states.flatten(1, -2).mean(dim=1) if states.ndim > 2 else states
        return embedding.cpu().numpy(), output.logits.cpu().numpy()

    def run(windows: Floats) -> tuple[Floats, Floats | None]:
        embeddings, logits = map(np.concatenate, zip(*map(run_one, windows), strict=True))
        return embeddings, logits if has_head else None

    return run


def _run_clap(extractor: Any, model: Any, texts: Tensor | None) -> Run:
    """Return the function from windows to embeddings, and to their similarity with ``texts``.

    These are [class, feature], each of length 1.
    """

    @torch.inference_mode()
    def run(windows: Floats) -> tuple[Floats, Floats | None]:
        # One by one: of several short windows the extractor would take one, at random, for long.
        given = (_extracted(extractor, model, window) for window in windows)
        embeddings = torch.cat([_unit(model.get_audio_features(**one)) for one in given])
        if texts is None:
            return embeddings.cpu().numpy(), None
        logits = model.logit_scale_a.exp() * embeddings @ texts.T
        return embeddings.cpu().numpy(), logits.cpu().numpy()

    return run


def _extracted(extractor: Any, model: Any, window: Floats) -> dict[str, Tensor]:
    given = extractor(window, sampling_rate=extractor.sampling_rate, return_tensors="pt")
    return {name: value.to(model.device) for name, value in given.items()}


def _unit(features: Any) -> Tensor:
    """Return features [row, feature] of length 1; newer libraries give them inside a record."""
    values = features if isinstance(features, Tensor) else features.pooler_output
    return torch.nn.functional.normalize(values, dim=-1)


def _text_features(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor | None:
    found = []
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        some = list(texts[first : first + _TEXTS_AT_ONCE])
        tokens = tokenizer(some, padding=True, truncation=True, return_tensors="pt")
        given = {name: tokens[name].to(model.device) for name in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            found.append(_unit(model.get_text_features(**given)))
    return torch.cat(found) if found else None


def _texts(params: PretrainedParams, class_names: Sequence[str]) -> list[str]:
    if "{}" not in params.prompt:
        raise EarmarkError(
            f"prompt = {params.prompt!r}: expected {{}} in the place of a class's name, as in "
            "'the sound of {}'"
        )
    return [params.prompt.replace("{}", name) for name in class_names]


def _read_parts(network: str) -> _Parts:
    """Read a folder, or what the hub gave before, or ask the hub."""
    transformers = load_library("transformers", "a network of Hugging Face's", "huggingface")
    source = network.removeprefix("hf:")
    is_on_hub = source != network
    try:
        with _quiet(transformers):
            return _read(transformers, source, local_files_only=True)
    except Exception as error:  # of files, of JSON, of weights: no common base
        if not is_on_hub:
            raise EarmarkError(
                f"{network}: cannot be opened ({_reason(error)}); expected a folder that "
                "save_pretrained wrote, of an audio classifier or CLAP: config.json, "
                "preprocessor_config.json and weights"
            ) from None
    try:
        return _read(transformers, source, local_files_only=False)
    except Exception as error:
        raise EarmarkError(
            f"{network}: cannot be had from Hugging Face's hub ({_reason(error)}); is it the name "
            "of an audio classifier or CLAP? Where there is no network, fetch it elsewhere with "
            f"`hf download {source} --local-dir FOLDER` and give that folder instead"
        ) from None


def _read(transformers: Any, source: str, *, local_files_only: bool) -> _Parts:
    options = {"local_files_only": local_files_only, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(source, **options)
    _check_depth(config.to_dict())
    is_clap = config.model_type == "clap"
    kind = transformers.ClapModel if is_clap else transformers.AutoModelForAudioClassification
    extractor = transformers.AutoFeatureExtractor.from_pretrained(source, **options)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options) if is_clap else None
    if is_clap:
        del options["trust_remote_code"]  # which of a class by name would be no option
    model, told = kind.from_pretrained(source, output_loading_info=True, **options)
    return _Parts(extractor, model, frozenset(told["missing_keys"]), tokenizer)


def _check_depth(config: Mapping[str, Any]) -> None:
    """Refuse more layers than any network has: transformers would make them one by one."""
    for name, value in config.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                _check_depth(one)
            elif isinstance(one, int) and _DEEP.search(name) and one > _MOST_LAYERS:
                raise ValueError(f"config.json: {name} is above {_MOST_LAYERS:,}; damaged?")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep bars and reports of weights from the terminal: what matters of them is checked here."""
    logging = transformers.utils.logging
    level, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bars:
            logging.enable_progress_bar()


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0].rstrip(".")


def _check_said(params: PretrainedParams, rate: int) -> None:
    """Refuse what is said of a network that says it itself."""
    if params.sample_rate_hz not in (None, rate):
        raise EarmarkError(
            f"{params.network}: it takes waveforms at {rate:,} Hz, not {params.sample_rate_hz:,}; "
            "leave --sample-rate out: sounds are resampled"
        )
    if params.output is not None:
        raise EarmarkError(
            f"{params.network}: there is no output {params.output!r} to choose: a network of "
            "Hugging Face's has one; leave --output out"
        )
    if params.input_kind == "patches" or params.scale == "probabilities":
        raise EarmarkError(
            f"{params.network}: a network of Hugging Face's takes waveforms and gives logits; "
            "leave --input and --scale out"
        )


def _window_samples(extractor: Any) -> int:
    """Return the samples that a network hears at once."""
    rate = int(extractor.sampling_rate)
    for name in ("nb_max_samples", "n_samples"):  # CLAP, Whisper
        if isinstance(getattr(extractor, name, None), int):
            return int(getattr(extractor, name))
    frames = getattr(extractor, "max_length", None)
    if isinstance(frames, int) and hasattr(extractor, "num_mel_bins"):  # AST
        return round(frames * _AST_HOP_SECONDS * rate)
    return round(LONGEST_SECONDS * rate)


def _check_claims(network: str, rate: int, n_samples: int) -> None:
    """Refuse a rate and a length that no network has: memory would be taken for them."""
    if not (
        _RATES_HZ[0] <= rate <= _RATES_HZ[1] and 0 < n_samples <= _LONGEST_WINDOW_SECONDS * rate
    ):
        raise EarmarkError(
            f"{network}: it claims to take {n_samples:,} samples at once, at {rate:,} Hz; is its "
            "preprocessor_config.json damaged?"
        )


def _has_head(network: str, parts: _Parts) -> bool:
    """Tell whether the classes were trained; refuse a network that lacks other weights."""
    lacking = sorted(name for name in parts.missing if not name.endswith(_NOT_WEIGHTS))
    body = "" if parts.is_clap else f"{parts.model.base_model_prefix}."
    inside = [name for name in lacking if name.startswith(body)]
    if inside:
        raise EarmarkError(
            f"{network}: {len(inside):,} weights are not in the file ({first_few(inside)}); "
            "damaged, or of another network than its config.json says?"
        )
    return not lacking


def _label_names(config: Any) -> tuple[str, ...]:
    """Return the names of classes; none where they are only numbered."""
    names = tuple(str(config.id2label[place]) for place in sorted(config.id2label))
    return () if all(name.startswith("LABEL_") for name in names) else names


def _layer(params: PretrainedParams, model: Any) -> int:
    n_layers = int(getattr(model.config, "num_hidden_layers", 0))
    wanted = params.embedding
    if wanted is None:
        return -1
    if not wanted.isdecimal() or int(wanted) > n_layers:
        raise EarmarkError(
            f"{params.network}: there is no layer {wanted!r} to take embeddings from; give a "
            f"number from 0 to {n_layers}, or leave --embedding out for the last"
        )
    return int(wanted)
