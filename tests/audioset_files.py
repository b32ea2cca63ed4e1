"""AudioSet in miniature: the official files, byte for byte in their layouts, with a few clips."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

SPEECH, MUSIC, ROCK, DOG = "/m/09x0r", "/m/04rlf", "/m/06by7", "/m/0bt9lr"
CLASSES = {SPEECH: "Speech", MUSIC: "Music", ROCK: "Rock music", DOG: "Dog"}

EVAL = '-0SdAVK79lg, 30.000, 40.000, "/m/04rlf,/m/06by7"\n'
BALANCED = (
    '--PJHxphWEs, 30.000, 40.000, "/m/09x0r,/m/0bt9lr"\n'
    'Yabcdefghij, 0.000, 10.000, "/m/09x0r"\n'
    '_abcdefghi_, 3.327, 10.000, "/m/0bt9lr"\n'
)


def segments_text(lines: str) -> str:
    n = lines.count("\n")
    return (
        "# Segments csv created Sun Mar  5 10:54:31 2017\n"
        f"# num_ytids={n}, num_segs={n}, num_unique_labels=4, num_positive_labels=9\n"
        "# YTID, start_seconds, end_seconds, positive_labels\n" + lines
    )


def write_official(folder: Path, balanced: str | None = BALANCED, evaluation: str | None = EVAL):
    folder.mkdir(parents=True, exist_ok=True)
    lists = {"balanced_train_segments.csv": balanced, "eval_segments.csv": evaluation}
    for name, lines in lists.items():
        if lines is not None:
            (folder / name).write_text(segments_text(lines), encoding="utf-8")
    rows = [f'{i},{mid},"{name}"\n' for i, (mid, name) in enumerate(CLASSES.items())]
    (folder / "class_labels_indices.csv").write_text("index,mid,display_name\n" + "".join(rows))
    (folder / "ontology.json").write_text(json.dumps(ontology_nodes()))
    return folder


def ontology_nodes() -> list[dict[str, object]]:
    children = {
        "/m/human": [SPEECH],
        MUSIC: ["/m/genre"],
        "/m/genre": [ROCK],
        SPEECH: [],
        ROCK: [],
        DOG: [],
    }
    return [
        {
            "id": mid,
            "name": mid,
            "description": f"The sound of {mid}.",
            "citation_uri": "",
            "positive_examples": [],
            "child_ids": child_ids,
            "restrictions": [] if mid in CLASSES else ["abstract"],
        }
        for mid, child_ids in children.items()
    ]


def write_sound(path: Path, seconds: float = 0.1, rate_hz: int = 8_000) -> Path:
    import soundfile  # in here, so that what needs no sound runs without it

    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, int(seconds * rate_hz))
    soundfile.write(path, noise, rate_hz)
    return path


def crc32c(content: bytes) -> int:
    """Bit by bit, as in the standard's definition."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecord(contents: Iterable[bytes]) -> bytes:
    pieces = []
    for content in contents:
        length = struct.pack("<Q", len(content))
        pieces += [length, struct.pack("<I", masked(crc32c(length)))]
        pieces += [content, struct.pack("<I", masked(crc32c(content)))]
    return b"".join(pieces)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(number: int, content: bytes) -> bytes:
    """One length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def entry(key: str, value: bytes) -> bytes:
    return message(1, message(1, key.encode()) + message(2, value))


def sequence_example(
    video_id: str, start: float, end: float, labels: Sequence[int], frames: np.ndarray
) -> bytes:
    """A serialised tf.train.SequenceExample like the release's; frames are uint8 [frame, 128]."""
    context = b"".join(
        (
            entry("video_id", message(1, message(1, video_id.encode()))),
            entry("start_time_seconds", message(2, message(1, struct.pack("<f", start)))),
            entry("end_time_seconds", message(2, message(1, struct.pack("<f", end)))),
            entry("labels", message(3, message(1, b"".join(map(varint, labels))))),
        )
    )
    features = b"".join(message(1, message(1, message(1, row.tobytes()))) for row in frames)
    return message(1, context) + message(2, entry("audio_embedding", features))
