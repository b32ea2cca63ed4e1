"""Tiny networks of Hugging Face's, saved here, held against the library called by hand."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the library is loaded
transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

from earmark.config import PretrainedParams  # noqa: E402
from earmark.errors import EarmarkError  # noqa: E402
from earmark.models.pretrained import PretrainedNetwork, huggingface, open_network  # noqa: E402
from sounds import sound  # noqa: E402

CLASS_NAMES = ["dog", "cow"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Save an AST, a wav2vec 2.0 with and without a head, and a CLAP with its tokenizer."""
    root = tmp_path_factory.mktemp("networks")
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    parts = {"ast": ast(), "heard": wav2vec2(), "bare": wav2vec2(has_head=False), "clap": clap()}
    for name, saved in parts.items():
        for part in saved:
            part.save_pretrained(root / name)
    transformers.utils.logging.enable_progress_bar()
    return {name: root / name for name in parts}


def ast() -> Sequence[Any]:
    """Return a classifier of 64 frames, 0.64 s."""
    names = dict(enumerate(["Dog", "Cat", "Cow"]))
    config = transformers.ASTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        patch_size=8,
        frequency_stride=8,
        time_stride=8,
        max_length=64,
        num_mel_bins=32,
        id2label=names,
        label2id={name: place for place, name in names.items()},
    )
    extractor = transformers.ASTFeatureExtractor(max_length=64, num_mel_bins=32)
    return transformers.ASTForAudioClassification(config), extractor


def wav2vec2(has_head: bool = True) -> Sequence[Any]:
    """Return a network of any length, with three classes without names."""
    config = transformers.Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        conv_dim=(8, 8),
        conv_stride=(20, 16),
        conv_kernel=(20, 16),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=8,
        num_labels=3,
    )
    kind = (
        transformers.Wav2Vec2ForSequenceClassification if has_head else transformers.Wav2Vec2Model
    )
    return kind(config), transformers.Wav2Vec2FeatureExtractor()


def clap() -> Sequence[Any]:
    """Return a CLAP of 1 s at 16 kHz, and a tokenizer that knows six words."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "the", "sound", "of", "dog", "cow", "loud"]
    tokens = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>")
    )
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token="<pad>", unk_token="<unk>", model_max_length=30
    )
    extractor = transformers.ClapFeatureExtractor(
        feature_size=16,
        sampling_rate=16_000,
        hop_length=160,
        max_length_s=1,
        fft_window_size=512,
        frequency_min=50,
        frequency_max=8_000,
        truncation="rand_trunc",
        padding="repeatpad",
    )
    text = {
        "vocab_size": len(words),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
    }
    heard = {
        "window_size": 4,
        "num_mel_bins": 16,
        "spec_size": 64,
        "patch_size": 4,
        "patch_stride": [4, 4],
        "hidden_size": 16,
        "patch_embeds_hidden_size": 8,
        "depths": [1, 1],
        "num_attention_heads": [2, 2],
    }
    config = transformers.ClapConfig(text_config=text, audio_config=heard, projection_dim=16)
    return transformers.ClapModel(config), extractor, tokenizer


def opened(folder: Path | str, names: Sequence[str] = (), **said: object) -> PretrainedNetwork:
    network = open_network(PretrainedParams(network=str(folder), **said), names)
    assert isinstance(network, PretrainedNetwork)
    return network


def by_hand(folder: Path, kind: Any, piece: np.ndarray) -> Any:
    model = kind.from_pretrained(folder).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    with torch.inference_mode():
        given = extractor(piece, sampling_rate=16_000, return_tensors="pt")
        return model(**given, output_hidden_states=True)


def test_a_classifier_names_its_classes_and_has_its_own_length(folders: dict[str, Path]) -> None:
    facts = opened(folders["ast"]).facts
    assert (facts.name, facts.sample_rate_hz) == ("ast", 16_000)
    assert facts.output_names == ("Dog", "Cat", "Cow")
    assert (facts.n_outputs, facts.n_features) == (3, 16)
    assert facts.frame_seconds == facts.hop_seconds == pytest.approx(0.64)


def test_logits_are_as_they_are_and_embeddings_the_mean_of_hidden_states(
    folders: dict[str, Path],
) -> None:
    waveform = sound(0, 1)
    heard = opened(folders["ast"], hop_seconds=0.32).infer([waveform])[0]
    assert len(heard.logits) == 3, "0, 0.32 and 0.64 s"
    second = np.pad(waveform, (0, 5_000))[5_120 : 5_120 + 10_240]
    expected = by_hand(folders["ast"], transformers.ASTForAudioClassification, second)
    assert heard.logits[1] == pytest.approx(expected.logits[0].numpy(), abs=1e-5)
    states = expected.hidden_states[-1][0].numpy().mean(axis=0)
    assert heard.embeddings[1] == pytest.approx(states, abs=1e-5)


def test_a_network_of_any_length_hears_short_clips_as_they_are(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = transformers.Wav2Vec2ForSequenceClassification
    network = opened(folders["heard"])
    assert network.facts.output_names == (), "LABEL_0 is no name"
    assert (network.facts.n_outputs, network.facts.frame_seconds) == (3, 10)
    expected = by_hand(folders["heard"], kind, sound(0, 1.5)).logits.numpy()
    assert network.infer([sound(0, 1.5)])[0].logits == pytest.approx(expected, abs=1e-5)
    monkeypatch.setattr(huggingface, "LONGEST_SECONDS", 1.0)
    heard = opened(folders["heard"]).infer([sound(0, 1.5)])[0].logits
    padded = np.pad(sound(0, 1.5), (0, 8_000))
    for row, piece in zip(heard, padded.reshape(2, 16_000), strict=True):
        expected = by_hand(folders["heard"], kind, piece).logits[0].numpy()
        assert row == pytest.approx(expected, abs=1e-5)


def test_a_network_without_a_trained_head_gives_embeddings_only(folders: dict[str, Path]) -> None:
    network = opened(folders["bare"])
    assert (network.facts.n_outputs, network.facts.n_features) == (0, 16)
    heard = network.infer([sound(0)])[0]
    assert heard.logits is None
    expected = by_hand(folders["bare"], transformers.Wav2Vec2Model, sound(0))
    assert heard.embeddings[0] == pytest.approx(
        expected.last_hidden_state[0].numpy().mean(axis=0), abs=1e-5
    )
    assert opened(folders["bare"]).facts.digest == network.facts.digest, "a random head is none"


def test_embeddings_may_be_of_another_layer(folders: dict[str, Path]) -> None:
    first = opened(folders["ast"], embedding="1")
    expected = by_hand(
        folders["ast"], transformers.ASTForAudioClassification, sound(0)[:10_240]
    ).hidden_states[1]
    heard = first.infer([sound(0)[:10_240]])[0].embeddings[0]
    assert heard == pytest.approx(expected[0].numpy().mean(axis=0), abs=1e-5)
    assert first.facts.digest != opened(folders["ast"]).facts.digest
    for wrong in ("3", "last"):
        with pytest.raises(EarmarkError, match=rf"no layer '{wrong}'.*from 0 to 2"):
            opened(folders["ast"], embedding=wrong)


def test_clap_compares_sound_with_the_datasets_classes(folders: dict[str, Path]) -> None:
    network = opened(folders["clap"], CLASS_NAMES)
    assert network.facts.output_names == ("dog", "cow")
    assert network.facts.frame_seconds == 1
    heard = network.infer([sound(0, 1.5), sound(1, 0.5)])
    assert [len(one.logits) for one in heard] == [2, 1]
    model = transformers.ClapModel.from_pretrained(folders["clap"]).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folders["clap"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["clap"])
    texts = tokenizer([f"the sound of {name}" for name in CLASS_NAMES], return_tensors="pt")
    with torch.inference_mode():
        short = np.pad(sound(1, 0.5), (0, 7_600))
        given = extractor(short, sampling_rate=16_000, return_tensors="pt")
        expected = model(
            input_ids=texts["input_ids"], attention_mask=texts["attention_mask"], **given
        )
    assert heard[1].logits == pytest.approx(expected.logits_per_audio.numpy(), abs=1e-4)
    assert heard[1].embeddings == pytest.approx(expected.audio_embeds.numpy(), abs=1e-5)
    again = network.infer([sound(0, 1.5)])[0]
    assert np.array_equal(again.logits, heard[0].logits), "nothing is cut at random"


def test_clap_without_classes_gives_embeddings_and_other_words_other_logits(
    folders: dict[str, Path],
) -> None:
    plain, loud = (
        opened(folders["clap"], CLASS_NAMES, **said) for said in ({}, {"prompt": "loud {}"})
    )
    assert plain.facts.digest != loud.facts.digest
    one, other = (network.infer([sound(0)])[0] for network in (plain, loud))
    assert not np.allclose(one.logits, other.logits)
    assert np.array_equal(one.embeddings, other.embeddings)
    none = opened(folders["clap"])
    assert none.facts.n_outputs == 0
    assert none.infer([sound(0)])[0].logits is None
    with pytest.raises(EarmarkError, match=r"prompt = 'a dog': expected \{\}"):
        opened(folders["clap"], CLASS_NAMES, prompt="a dog")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"sample_rate_hz": 8_000}, r"at 16,000 Hz, not 8,000"),
        ({"output": "logits"}, r"no output 'logits'"),
        ({"scale": "probabilities"}, r"gives logits"),
        ({"input_kind": "patches"}, r"takes waveforms"),
    ],
)
def test_what_a_network_says_itself_is_not_said_otherwise(
    folders: dict[str, Path], said: dict[str, object], message: str
) -> None:
    with pytest.raises(EarmarkError, match=message):
        opened(folders["ast"], **said)


def changed(folder: Path, to: Path, **settings: object) -> Path:
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | settings))
    return to


def test_folders_that_are_damaged_or_of_something_else_are_refused(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    half = changed(folders["ast"], tmp_path / "half")
    weights = half / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    without = changed(folders["ast"], tmp_path / "without")
    (without / "model.safetensors").unlink()
    alone = changed(folders["ast"], tmp_path / "alone")
    (alone / "preprocessor_config.json").unlink()
    text = changed(folders["ast"], tmp_path / "text", model_type="bert")
    unknown = changed(folders["ast"], tmp_path / "unknown", model_type="nothing")
    page = changed(folders["ast"], tmp_path / "page")
    (page / "config.json").write_text("<html>")
    for folder in (half, without, alone, text, unknown, page):
        with pytest.raises(EarmarkError, match=rf"{folder.name}: cannot be opened \(.*save_pretr"):
            opened(folder)


@pytest.mark.parametrize("by", ["weights", "a module"])
def test_no_code_of_a_folder_is_run(folders: dict[str, Path], tmp_path: Path, by: str) -> None:
    mark = tmp_path / "was_here"
    hostile = changed(folders["ast"], tmp_path / "hostile")
    if by == "weights":
        (hostile / "model.safetensors").unlink()
        reduced = type("Hostile", (), {"__reduce__": lambda _: (os.mkdir, (str(mark),))})
        torch.save({"weights": reduced()}, hostile / "pytorch_model.bin")
    else:
        own = {"AutoConfig": "own.C", "AutoModelForAudioClassification": "own.M"}
        hostile = changed(hostile, tmp_path / "own", auto_map=own, model_type="own")
        (hostile / "own.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    with pytest.raises(EarmarkError, match="cannot be opened"):
        opened(hostile)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("kind", "claim"), [("ast", {"max_length": 2**31}), ("heard", {"sampling_rate": 2**40})]
)
def test_a_length_or_rate_that_would_fill_the_memory_is_refused(
    folders: dict[str, Path], tmp_path: Path, kind: str, claim: dict[str, int]
) -> None:
    long = changed(folders[kind], tmp_path / "long")
    path = long / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | claim))
    with pytest.raises(EarmarkError, match=r"long: it claims to take .* samples at once"):
        opened(long)


@pytest.mark.parametrize("settings", [{"num_hidden_layers": 2**64}, {"depths": [2, 10**9]}])
def test_more_layers_than_can_be_made_are_refused(
    folders: dict[str, Path], tmp_path: Path, settings: dict[str, object]
) -> None:
    """They would be made one by one, which never ends."""
    endless = changed(folders["ast"], tmp_path / "endless", **settings)
    with pytest.raises(EarmarkError, match=r"endless: cannot be opened \(.*is above 1,000; damag"):
        opened(endless)


def test_weights_that_are_missing_are_never_random(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    deeper = changed(folders["ast"], tmp_path / "deeper", num_hidden_layers=3)
    with pytest.raises(EarmarkError, match=r"deeper: 16 weights are not in the file \('audio_spec"):
        opened(deeper)


def test_without_a_network_the_other_way_is_named() -> None:
    message = r"hf:owner/name: cannot be had .*hf download owner/name --local-dir FOLDER"
    with pytest.raises(EarmarkError, match=message):
        opened("hf:owner/name")


def test_nothing_is_told_to_the_terminal(
    folders: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    opened(folders["bare"]).infer([sound(0)])
    assert capfd.readouterr() == ("", "")
