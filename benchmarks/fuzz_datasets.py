"""What ``fuzz.py`` damages, continued: datasets, archives, sounds and networks."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl

from fuzz_readers import CLASSES, CLIPS, READERS, Reader, long_labels, of_tests, tar_of, wav


def _add(name: str, write: Any, read: Any, **options: Any) -> None:
    READERS[name] = Reader(name, write, read, **options)


# Datasets


def read_openmic(folder: Path, work: Path) -> None:
    from earmark.datasets import import_openmic

    import_openmic(folder, work / "w")


def write_openmic(folder: Path) -> None:
    of_tests("datasets/test_openmic.py").official_layout(folder / "o")


def read_fsd50k(folder: Path, work: Path) -> None:
    from earmark.datasets import import_fsd50k

    import_fsd50k(folder / "o", work / "w")


def write_fsd50k(folder: Path) -> None:
    of_tests("datasets/test_fsd50k.py").official_layout(folder / "o")


def write_tfrecords(folder: Path) -> None:
    from audioset_files import sequence_example, tfrecord, write_official

    root = write_official(folder / "in")
    (root / "bal_train").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (10, 128)).astype(np.uint8)
    records = [
        sequence_example("--PJHxphWEs", 30, 40, [0, 3], noise),
        sequence_example("Yabcdefghij", 0, 10, [0], noise[:7]),
    ]
    (root / "bal_train" / "a.tfrecord").write_bytes(tfrecord(records))


def read_tfrecords(folder: Path, work: Path) -> None:
    from earmark.datasets import import_audioset_features

    import_audioset_features(folder / "in", work / "w")


_add(
    "OpenMIC",
    write_openmic,
    lambda folder, work: read_openmic(folder / "o", work),
    targets=("o/*.npz", "o/*.json", "o/partitions/*"),
)
_add("FSD50K", write_fsd50k, read_fsd50k, targets=("o/*.ground_truth/*", "o/*.metadata/*"))
_add("TFRecords", write_tfrecords, read_tfrecords, targets="in/bal_train/*")
_add("AudioSet's lists", write_tfrecords, read_tfrecords, targets="in/*.*")


def read_archive(folder: Path, work: Path) -> None:
    from earmark.datasets.audio_files import find_audio

    found = find_audio(folder, work / "w", lambda _name: True)
    assert all(not Path(path).is_absolute() for path in found.files["audio"])


_SOUNDS = {f"sounds/{name}.wav": b"RIFF" + bytes(600) for name in CLIPS[:3]}


def write_embedded(folder: Path) -> None:
    sounds = [{"bytes": content, "path": name} for name, content in _SOUNDS.items()]
    pl.DataFrame({"audio": sounds, "clip_id": CLIPS[:3]}).write_parquet(folder / "a.parquet")


_add("tar of sounds", lambda f: tar_of(f / "a.tar", _SOUNDS), read_archive)
_add("tar.gz of sounds", lambda f: tar_of(f / "a.tar.gz", _SOUNDS, "w:gz"), read_archive)
_add("Parquet of sounds", write_embedded, read_archive)


def write_samples(folder: Path) -> None:
    members = {}
    for number, name in enumerate(CLIPS[:4]):
        members[f"{name}.flac"] = b"fLaC" + bytes(100)
        said = {"labels": [CLASSES[number % 3]], "source": f"s{number}", "split": "train"}
        members[f"{name}.json"] = json.dumps(said).encode()
    tar_of(folder / "x-00.tar", members)


def read_samples(folder: Path, work: Path) -> None:
    from earmark.datasets import import_webdataset

    import_webdataset([str(folder / "x-00.tar")], work / "w")


def write_hub(folder: Path) -> None:
    features = {
        "labels": {"feature": {"names": CLASSES, "_type": "ClassLabel"}, "_type": "List"},
        "audio": {"_type": "Audio"},
    }
    rows = pl.DataFrame(
        {
            "clip_id": CLIPS[:4],
            "labels": [[0], [1, 2], [], [2]],
            "audio": [{"bytes": b"RIFF" + bytes(50), "path": f"{name}.wav"} for name in CLIPS[:4]],
        }
    )
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    rows.write_parquet(folder / "train-00000-of-00001.parquet", metadata=metadata)


def read_hub(folder: Path, work: Path) -> None:
    from earmark.datasets import import_hugging_face

    import_hugging_face(folder, work / "w")


def write_arrow(folder: Path) -> None:
    import pyarrow as pa

    rows = pa.table({"clip_id": CLIPS[:4], "label": ["dog", "cat", "dog", "rain"]})
    sounds = pa.array([{"bytes": b"RIFF" + bytes(50), "path": "a.wav"}] * 4)
    rows = rows.append_column("audio", sounds)
    file = pa.OSFile(str(folder / "data.arrow"), "wb")
    with file, pa.ipc.new_stream(file, rows.schema) as stream:
        stream.write_table(rows)
    state = {"_data_files": [{"filename": "data.arrow"}], "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))


def write_audio_folder(folder: Path) -> None:
    (folder / "train").mkdir()
    for name in CLIPS[:3]:
        (folder / "train" / f"{name}.wav").write_bytes(b"RIFF" + bytes(60))
    lines = [
        json.dumps({"file_name": f"{name}.wav", "label": label})
        for name, label in zip(CLIPS[:3], CLASSES, strict=True)
    ]
    (folder / "train" / "metadata.jsonl").write_text("\n".join(lines))


_add("WebDataset", write_samples, read_samples)
_add("Hugging Face Parquet", write_hub, read_hub)
_add("Hugging Face Arrow", write_arrow, read_hub, needs=("pyarrow",))
_add("audiofolder", write_audio_folder, read_hub, targets="train/*.jsonl")


def write_own_table(folder: Path) -> None:
    long_labels().write_csv(folder / "labels.csv")
    clips = pl.DataFrame({"clip_id": CLIPS, "split": ["train"] * 8 + ["eval"] * 4})
    clips.write_csv(folder / "clips.csv")
    np.save(folder / "e.npy", np.random.default_rng(0).random((12, 4, 8)).astype(np.float32))


def read_own_table(folder: Path, work: Path) -> None:
    from earmark.datasets import import_table

    table = {name: folder / f"{name}.csv" for name in ("clips", "labels")}
    import_table(table["clips"], table["labels"], work / "w", embeddings=folder / "e.npy")


_add("own tables and embeddings", write_own_table, read_own_table)

# Sounds


def read_sound(folder: Path, _work: Path) -> None:
    from earmark.audio import duration_seconds, read_clip

    path = next(folder.iterdir())
    duration_seconds(path)
    read_clip(path, 16_000)


def write_encoded(ending: str, codec: str) -> Any:
    def write(folder: Path) -> None:
        import av

        with av.open(str(folder / f"a{ending}"), "w") as container:
            stream = container.add_stream(codec, rate=16_000)
            samples = (np.sin(np.arange(4_096) / 5) / 3).astype(np.float32)[None]
            frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
            frame.sample_rate = 16_000
            resampler = av.AudioResampler(stream.format or "fltp", "mono", 16_000)
            for part in [*resampler.resample(frame), *resampler.resample(None)]:
                container.mux(stream.encode(part))
            container.mux(stream.encode(None))

    return write


_SOUND = {"needs": ("soundfile", "av")}
for _ending, _options in {
    "wav": {"format": "WAV"},
    "flac": {"format": "FLAC"},
    "ogg": {"format": "OGG"},
    "mp3": {"format": "MP3"},
    "aiff": {"format": "AIFF"},
}.items():
    _add(
        f"sound {_ending}",
        lambda f, ending=_ending, options=_options: (f / f"a.{ending}").write_bytes(
            wav(0.1, **options)
        ),
        read_sound,
        **_SOUND,
    )
_add("sound m4a", write_encoded(".m4a", "aac"), read_sound, **_SOUND)
_add("sound webm", write_encoded(".webm", "libopus"), read_sound, **_SOUND)

# Networks


def write_network(folder: Path) -> None:
    from earmark.audio import FrameFormat, FrameStore
    from earmark.runs import ModelParams
    from scenes import band_workspace
    from sounds import model_folder

    del FrameFormat
    store = FrameStore.open(band_workspace(folder / "w", 3, 96).frames_folder)
    model_folder(folder / "m", store, ModelParams(architecture="mlp_probe", n_hidden=8))


def read_network(folder: Path, _work: Path) -> None:
    from earmark.networks import load_network, read_card

    read_card(folder / "m")
    load_network(folder / "m")


_add("model folder", write_network, read_network, targets="m/*.[js]*", needs=("torch",))


def open_and_hear(path: Path) -> None:
    from earmark.pretrained import open_network
    from earmark.runs import PretrainedParams

    network = open_network(PretrainedParams(network=str(path), sample_rate_hz=16_000))
    network.hear([np.zeros(16_000, np.float32)])


def write_onnx(folder: Path) -> None:
    from made_up_onnx import mean_of_patches

    mean_of_patches(folder / "m.onnx", class_ids=("Dog", "Cat", "Rain"))


def write_tflite(folder: Path) -> None:
    from made_up_tflite import dense_network

    dense_network(folder / "m.tflite", (1, 100))


def write_h5(folder: Path) -> None:
    """Write YAMNet's names with small arrays: it is refused, but after all of it was read."""
    import h5py

    from earmark.pretrained.yamnet_weights import keras_layers

    with h5py.File(folder / "yamnet.h5", "w") as file:
        for name in keras_layers():
            kind = "depthwise_kernel" if name.endswith("depthwise_conv") else "kernel"
            file[f"{name}/{name}/{kind}:0"] = np.zeros((3, 3, 2, 1), np.float32)
            for part in ("beta", "moving_mean", "moving_variance"):
                file[f"{name}/bn/{name}/bn/{part}:0"] = np.zeros(2, np.float32)
        file["dense/dense/kernel:0"], file["dense/dense/bias:0"] = np.zeros((2, 5)), np.zeros(5)


def read_h5(folder: Path, _work: Path) -> None:
    """Read weights into one network: to draw its initial ones anew takes longer than the rest."""
    from earmark.pretrained import yamnet_weights

    with mock.patch.object(yamnet_weights, "build_model", _built_once):
        yamnet_weights.read_yamnet(folder / "yamnet.h5")


@functools.cache
def _built_once(*told: Any) -> Any:
    from earmark.networks import build_model

    return build_model(*told)


_add("ONNX", write_onnx, lambda f, _w: open_and_hear(f / "m.onnx"), needs=("onnxruntime", "torch"))
_add(
    "TFLite",
    write_tflite,
    lambda f, _w: open_and_hear(f / "m.tflite"),
    needs=("ai_edge_litert", "torch"),
)
_add("Keras h5", write_h5, read_h5, needs=("h5py", "torch"))


def write_transformer(folder: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for part in of_tests("pretrained/test_huggingface.py").ast():
        part.save_pretrained(folder / "m")


_add(
    "Hugging Face network",
    write_transformer,
    lambda f, _w: open_and_hear(f / "m"),
    targets="m/*",
    needs=("transformers", "torch"),
)


def write_checkpoint(folder: Path) -> None:
    import torch

    from earmark.training.course.checkpoints import _SAVED_AS_THEY_ARE

    names = ("digest", "network", "optimiser", "scaler", *_SAVED_AS_THEY_ARE)
    torch.save({name: {"a": torch.zeros(3)} for name in names}, folder / "checkpoint.pt")


def read_checkpoint(folder: Path, _work: Path) -> None:
    from earmark.training.course.checkpoints import _read_checkpoint

    _read_checkpoint(folder / "checkpoint.pt")


_add("checkpoint", write_checkpoint, read_checkpoint, needs=("torch",))
