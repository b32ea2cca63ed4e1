"""One clip of AudioSet's released embeddings, from the bytes of its record.

A record is one ``tf.train.SequenceExample`` with ``video_id``, ``start_time_seconds``,
``end_time_seconds``, ``labels`` (class indices) and ``audio_embedding``: up to ten frames of 128
bytes, one for each 0.96 s.

The message is read field by field here: protobuf with TensorFlow's generated classes would be a
large dependency for five fields that have not changed since 2017.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FRAME_BYTES = 128
_FRAME_HEAD = b"\x0a\x86\x01\x0a\x83\x01\x0a\x80\x01"  # feature { bytes_list { value: 128 bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types


@dataclass(frozen=True)
class Embedding:
    """One clip of the release; ``frames`` is uint8 [frame, 128]."""

    source: str
    start_seconds: float
    end_seconds: float
    class_indices: tuple[int, ...]
    frames: NDArray[np.uint8]

    @property
    def clip_id(self) -> str:
        """The video and the start in milliseconds, as the segments name it."""
        return f"{self.source}_{round(self.start_seconds * 1_000)}"


def parse_embedding(content: bytes) -> Embedding:
    """Read one clip from a serialised SequenceExample; raise ValueError where it is none."""
    context: dict[str, bytes] = {}
    frame_lists: dict[str, bytes] = {}
    try:
        for number, message in _fields(content):
            into = {1: context, 2: frame_lists}.get(number, {})
            for _, entry in _fields(message):
                parts = dict(_fields(entry))
                into[parts[1].decode()] = parts[2]
        (source,) = _values(context["video_id"], 1)
        start, end = (
            struct.unpack("<f", b"".join(_values(context[f"{edge}_time_seconds"], 2)))[0]
            for edge in ("start", "end")
        )
        indices = tuple(_varints(b"".join(_values(context["labels"], 3))))
        frames = _frames(frame_lists["audio_embedding"])
    except KeyError as error:
        raise ValueError(f"the field {error} is not there") from None
    return Embedding(source.decode(), start, end, indices, frames)


def _frames(frame_list: bytes) -> NDArray[np.uint8]:
    """Return the frames [frame, 128] of a FeatureList.

    Around each frame are the same tags and lengths of three messages, so that all of them are cut
    out at once, many times as fast as field by field.
    """
    head = np.frombuffer(_FRAME_HEAD, np.uint8)
    n_each = len(head) + _FRAME_BYTES
    encoded = np.frombuffer(frame_list, np.uint8)
    if len(encoded) == 0 or len(encoded) % n_each:
        raise ValueError(f"the frames do not have {_FRAME_BYTES} bytes each")
    rows = encoded.reshape(-1, n_each)
    if (rows[:, : len(head)] != head).any():
        raise ValueError(f"the frames do not have {_FRAME_BYTES} bytes each")
    return np.ascontiguousarray(rows[:, len(head) :])


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of a protobuf message's fields; varints as their bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _BYTES:
            n_bytes, place = _varint(message, place)
            end = place + n_bytes
        elif kind == _VARINT:
            _, end = _varint(message, place)
        elif kind in (_FIXED32, _FIXED64):
            end = place + (4 if kind == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {kind} is not of protobuf's third version")
        if end > len(message):
            raise ValueError("a field is longer than the message")
        yield tag >> 3, message[place:end]
        place = end


def _values(feature: bytes, kind: int) -> list[bytes]:
    """Return the values of a Feature of one kind (1 bytes, 2 floats, 3 integers)."""
    lists = [each for number, each in _fields(feature) if number == kind]
    return [value for each in lists for _, value in _fields(each)]


def _varints(packed: bytes) -> Iterator[int]:
    place = 0
    while place < len(packed):
        value, place = _varint(packed, place)
        yield value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return the number at a place and the place behind it."""
    value = shift = 0
    while place < len(message):
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("the message ends within a number")
