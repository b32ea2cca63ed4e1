"""How ``fuzz.py`` damages files: at random in their bytes, and with thought in what they mean.

Bytes that are flipped mostly fail a checksum, so every format that has one is also taken apart,
made odd inside and put together again. A mutation is a function from bytes and a generator to
bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from earmark.runs.parquet import check_parquet
from fuzz_sounds import odd_ogg

Rng = np.random.Generator
Mutation = Callable[[bytes, Rng], bytes]

MOST_BYTES = 900_000
"""Inputs stay below a megabyte: the memory that they may take is stated for those."""

_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
_ODD_TEXTS = (
    "", "\0", "../../outside", "/etc/passwd", "a" * 5_000, "9" * 5_000, "[/i]", "\ud800", "NaN",
    "-inf", "1e999", "\u202e", "𝕏", "%s%n", "=1+1", '"', "'", "{}", "null", "true", "0x10", "1_000",
    "2024-01-01", "-0", "a\nb", "a\rb", "\ufeff", " ", "..", ".", "nan", "con", "a/b", "a\\b", "~",
)  # fmt: skip
_ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, -0.5, float("nan"), float("inf"), 1e308, 2**31, 2**63, 2**64,
    10**400, -(2**63), [], {}, [[]], [None], [{}], {"a": None}, [1, "a"], *_ODD_TEXTS,
)  # fmt: skip


def one_of(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def flip_bits(content: bytes, rng: Rng) -> bytes:
    damaged = bytearray(content)
    for _ in range(int(one_of(rng, (1, 1, 2, 8, 64))) if damaged else 0):
        damaged[_place(damaged, rng)] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def cut_short(content: bytes, rng: Rng) -> bytes:
    return content[: int(rng.integers(len(content) + 1))]


def cut_out(content: bytes, rng: Rng) -> bytes:
    start = _place(content, rng)
    return content[:start] + content[start + int(rng.integers(1, 64)) :]


def splice(content: bytes, rng: Rng) -> bytes:
    """Copy a stretch of the file to another place in it."""
    start, to = _place(content, rng), _place(content, rng)
    piece = content[start : start + int(rng.integers(1, 256))]
    return content[:to] + piece * int(one_of(rng, (1, 1, 2, 50))) + content[to:]


def overwrite_number(content: bytes, rng: Rng) -> bytes:
    """Put a number at the edge of its range where there may be a count, a length or an offset."""
    kind = one_of(rng, ("<B", "<H", "<I", "<Q", ">H", ">I", ">Q"))
    n_bytes = struct.calcsize(kind)
    number = int(one_of(rng, _EDGES)) % 2 ** (8 * n_bytes)
    place = _place(content, rng)
    return content[:place] + struct.pack(kind, number) + content[place + n_bytes :]


def fill(content: bytes, rng: Rng) -> bytes:
    """Fill a stretch with NULs, with 0xFF or with noise."""
    place, n_bytes = _place(content, rng), int(one_of(rng, (1, 4, 16, 512)))
    noise = rng.integers(0, 256, n_bytes, np.uint8).tobytes()
    piece = one_of(rng, (b"\0" * n_bytes, b"\xff" * n_bytes, noise))
    return content[:place] + piece + content[place + n_bytes :]


def bomb(content: bytes, rng: Rng) -> bytes:
    """Put something long in: brackets, digits, delimiters, lone surrogates, one letter."""
    piece = one_of(
        rng,
        (
            b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5_000, b"[[" * 50_000 + b"]]" * 50_000,
            b",", b"\t" * 5_000, b'"', b'"\\ud800"', b"\xed\xa0\x80", b"\n" * 1_000, b"\r", b"\0",
            b"a" * 100_000, b"1e999", b"-", b"'" * 3, b"#" * 1_000, b"\xef\xbb\xbf", b"\xff\xfe",
        ),
    )  # fmt: skip
    place = _place(content, rng)
    gone = int(one_of(rng, (0, 0, 1, 8)))
    return content[:place] + piece + content[place + gone :]


def nothing_left(content: bytes, rng: Rng) -> bytes:
    del content
    return rng.integers(0, 256, int(one_of(rng, (0, 0, 1, 3, 8, 1_000))), np.uint8).tobytes()


def _place(content: bytes | bytearray, rng: Rng) -> int:
    """Return a place; headers and footers, where counts and offsets are, come up more often."""
    n_bytes = max(len(content), 1)
    near = min(n_bytes, 256)
    kind = rng.random()
    if kind < 0.25:
        return int(rng.integers(near))
    if kind < 0.5:
        return n_bytes - 1 - int(rng.integers(near))
    return int(rng.integers(n_bytes))


ANY: tuple[Mutation, ...] = (
    flip_bits, flip_bits, flip_bits, cut_short, cut_out, splice, overwrite_number, fill, bomb,
    nothing_left,
)  # fmt: skip


def odd_text(content: bytes, rng: Rng) -> bytes:
    """Replace a word or a number of a text by an odd one."""
    words = list(re.finditer(rb"[\w.+-]+", content))
    if not words:
        return bomb(content, rng)
    word = one_of(rng, words)
    new = one_of(rng, _ODD_TEXTS).encode("utf-8", "surrogatepass")
    return content[: word.start()] + new + content[word.end() :]


def odd_lines(content: bytes, rng: Rng) -> bytes:
    """Repeat, drop, swap or lengthen lines."""
    lines = content.split(b"\n")
    place, other = (int(n) for n in rng.integers(len(lines), size=2))
    kind = int(rng.integers(4))
    if kind == 0:
        lines.insert(other, lines[place])
    elif kind == 1:
        del lines[place]
    elif kind == 2:
        lines[place], lines[other] = lines[other], lines[place]
    else:
        lines[place] += one_of(rng, (b",", b";", b"\t", b" ", b'"', b",,,,,,"))
    return b"\n".join(lines)


def odd_json(content: bytes, rng: Rng) -> bytes:
    """Replace one value of a JSON text by an odd one, or call its key otherwise."""
    try:
        value = json.loads(content)
    except ValueError:
        return bomb(content, rng)
    changed = _odd_inside(value, rng)
    return json.dumps(changed, ensure_ascii=bool(rng.integers(2))).encode("utf-8", "surrogatepass")


def _odd_inside(value: Any, rng: Rng) -> Any:
    """Return a value with one odd thing at a random depth."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return one_of(rng, _ODD_VALUES)
    copy = value.copy()
    place = one_of(rng, list(copy) if isinstance(copy, dict) else range(len(copy)))
    kind = rng.random()
    if kind < 0.1:
        del copy[place]
    elif kind < 0.2 and isinstance(copy, dict):
        copy[str(one_of(rng, _ODD_TEXTS))] = copy.pop(place)
    elif kind < 0.25 and isinstance(copy, list):
        copy.append(copy[place])
    else:
        copy[place] = _odd_inside(copy[place], rng)
    return copy


def odd_parquet(content: bytes, rng: Rng) -> bytes:
    """Give one column of a table another type, other values or another name."""
    try:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            check_parquet(Path(file.name))  # over some that are damaged polars ends the process
        rows = pl.read_parquet(io.BytesIO(content))
    except BaseException:  # it is damaged already
        return flip_bits(content, rng)
    changed = io.BytesIO()
    _odd_table(rows, rng).write_parquet(changed, compression=one_of(rng, ("zstd", "uncompressed")))
    return changed.getvalue()


def _odd_table(rows: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    name = str(one_of(rng, rows.columns)) if rows.width else ""
    n_rows, kind = rows.height, int(rng.integers(8))
    if not name or kind == 0:
        return rows.clear() if rng.random() < 0.5 else rows.head(1)
    if kind == 1:
        return rows.drop(name)
    if kind == 2:
        new = str(one_of(rng, [t for t in _ODD_TEXTS if t != "\ud800"]))
        return rows if new in rows.columns else rows.rename({name: new})
    if kind == 3:
        return pl.concat([rows, rows])
    if kind == 4:
        return rows.with_columns(pl.when(pl.int_range(pl.len()) != 0).then(pl.col(name)))
    return rows.with_columns(_odd_column(name, rows[name], n_rows, rng))


def _odd_column(name: str, cells: pl.Series, n_rows: int, rng: Rng) -> pl.Series:
    texts = [str(one_of(rng, [t for t in _ODD_TEXTS if t != "\ud800"])) for _ in range(n_rows)]
    columns: list[Callable[[], pl.Series]] = [
        lambda: pl.Series(name, [[cell] for cell in cells.to_list()]),
        lambda: pl.Series(name, [{"a": cell} for cell in cells.to_list()]),
        lambda: pl.Series(name, texts),
        lambda: pl.Series(name, [None] * n_rows),
        lambda: pl.Series(name, rng.integers(-3, 3, n_rows)),
        lambda: pl.Series(name, np.full(n_rows, 2**63 - 1)),
        lambda: pl.Series(name, np.full(n_rows, np.nan)),
        lambda: pl.Series(name, np.full(n_rows, np.inf)),
        lambda: pl.Series(name, [True] * n_rows),
        lambda: pl.Series(name, [b"\xff"] * n_rows),
        lambda: pl.Series(name, [0] * n_rows).cast(pl.Datetime),
        lambda: pl.Series(name, [0] * n_rows).cast(pl.Duration),
        lambda: pl.Series(name, texts, dtype=pl.Categorical),
        lambda: pl.Series(name, [0] * n_rows).cast(pl.Decimal(10, 2)),
        lambda: pl.Series(name, rng.random(n_rows).astype(np.float32)),
        lambda: pl.Series(name, [[[1.0]]] * n_rows),
        lambda: pl.Series(name, [[]] * n_rows, dtype=pl.List(pl.String)),
        lambda: cells.shuffle(int(rng.integers(100))),
    ]
    return one_of(rng, columns)()


def odd_npy(content: bytes, rng: Rng) -> bytes:
    """Rewrite the header of an array, or the array as one of another type or shape."""
    if rng.random() < 0.5:
        return _odd_header(content, rng)
    n = int(one_of(rng, (0, 1, 3)))
    arrays = (
        np.zeros((n, 3)), np.zeros(n), np.zeros((n, 2, 2)), np.array(5), np.zeros((n, 3), complex),
        np.array([["a", "b"]] * n), np.array([[b"\xff"]] * n), np.zeros((n, 3), "M8[s]"),
        np.zeros((n, 3), [("a", "f4")]), np.zeros((n, 3), bool), np.full((n, 3), np.nan),
        np.full((n, 3), np.inf), np.zeros((n, 3), ">f4"), np.zeros((n, 3), np.float16),
        np.zeros((n, 3), np.int64), np.full((n, 3), 2**63, np.uint64), np.zeros((n, 0)),
        np.asfortranarray(np.ones((n, 3))), np.array(["\ud800"] * n), np.array(["a"] * n),
        np.zeros((n, 3), np.longdouble), np.full((n, 3), 7, np.int8), np.zeros((n, 3), "V3"),
    )  # fmt: skip
    written = io.BytesIO()
    np.save(written, one_of(rng, arrays))
    return written.getvalue()


def _odd_header(content: bytes, rng: Rng) -> bytes:
    """Claim another shape, type or order than the array has."""
    shape = one_of(
        rng,
        (
            "(-1, 3)", "(0, 3)", "(4, 3)", "(10**12, 3)", "(1000000000000, 3)", "()", "(2, 2, 2)",
            "(9223372036854775807, 9)", "('a',)", "(1.5, 2)", "None", "(1000000000, 1000000000)",
            "(True, 3)", "(3, 1000000000000)", "(0, 10000000000000)", "[3, 4]", "(" * 500,
            "(100000000, 3)", "(400000000, 1)",
        ),
    )  # fmt: skip
    types = ("<f4", "<f8", "|O", "<U5", "|S5", "<M8[s]", "x", "|b1", "<c16", "|V4", "<f2", "|u1")
    order = one_of(rng, ("False", "True", "0", "None"))
    text = f"{{'descr': '{one_of(rng, types)}', 'fortran_order': {order}, 'shape': {shape}, }}"
    if rng.random() < 0.15:
        text = one_of(rng, ("{", "[" * 200, "{'a': 1}", "\0" * 64, "1" * 5_000, "{}", "None", "é"))
    body = text.encode("latin-1", "replace") + b"\n"
    version = int(one_of(rng, (1, 1, 1, 2, 3, 9)))
    length = struct.pack("<H" if version == 1 else "<I", len(body))
    return b"\x93NUMPY" + bytes([version, 0]) + length + body + content[128:]


def odd_zip(content: bytes, rng: Rng) -> bytes:
    """Make a member of an archive odd and zip it again, so that its checksum is right."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:  # it is damaged already
        return flip_bits(content, rng)
    place = int(rng.integers(len(members))) if members else 0
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number, (name, inside) in enumerate(members):
            if number == place:
                name, inside = _odd_member(name, inside, rng)
            archive.writestr(name, inside)
    return written.getvalue()


def _odd_member(name: str, inside: bytes, rng: Rng) -> tuple[str, bytes]:
    kind = rng.random()
    if kind < 0.1:
        return str(one_of(rng, ("a", "a.npy", "../a.npy", "é.npy", " ", "a" * 300))), inside
    if kind < 0.15:  # a bomb: hundreds of megabytes in hundreds of kilobytes
        written = io.BytesIO()
        np.save(written, np.zeros((int(one_of(rng, (10_000, 200_000))), 100), np.int8))
        header = written.getvalue()[:128].replace(b"200000, 100", b"2000000,900")
        return name, header + bytes(80_000_000 if rng.random() < 0.1 else 1_000_000)
    return name, one_of(rng, (*ANY, odd_npy, odd_npy, odd_npy, odd_npy))(inside, rng)


def odd_tar(content: bytes, rng: Rng) -> bytes:
    """Change a field of a member's header, its checksum made right again."""
    members = [place for place in range(0, len(content) - 511, 512) if _is_header(content, place)]
    if not members:
        return flip_bits(content, rng)
    place = int(one_of(rng, members))
    header = bytearray(content[place : place + 512])
    name, first, length = one_of(
        rng,
        (
            ("name", 0, 100), ("mode", 100, 8), ("size", 124, 12), ("size", 124, 12),
            ("time", 136, 12), ("kind", 156, 1), ("kind", 156, 1), ("link", 157, 100),
            ("magic", 257, 8), ("prefix", 345, 155),
        ),
    )  # fmt: skip
    values = {
        "kind": (b"0", b"1", b"2", b"3", b"5", b"S", b"x", b"g", b"L", b"K", b"V", b"\0", b"\xff"),
        "size": (
            b"77777777777\0", b"00000000000\0", b"\x80" + b"\0" * 3 + b"\x01" + b"\0" * 7,
            b"\xff" * 12, b"0000017777\0\0", b"-0000000001\0", b"           \0", b"00000001000\0",
            b"00100000000\0",
        ),
        "name": (
            b"../outside.wav", b"/outside.wav", b"a\0b.wav", b"\xff\xfe.wav", b"a" * 100, b"",
            b"a/../../b.wav", b".wav", b"a.wav/", b"con.wav", b"a\nb.wav",
        ),
    }  # fmt: skip
    noise = rng.integers(0, 256, length, np.uint8).tobytes()
    value = one_of(rng, (*values.get(name, (b"\xff" * length, b"")), noise))
    header[first : first + length] = value[:length].ljust(length, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return content[:place] + bytes(header) + content[place + 512 :]


def _is_header(content: bytes, place: int) -> bool:
    return content[place + 257 : place + 262] == b"ustar"


def odd_members(content: bytes, rng: Rng) -> bytes:
    """Make what a member of a tar holds odd, or its name, and write the tar anew."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            members = [(one.name, tar.extractfile(one).read()) for one in tar if one.isfile()]  # type: ignore[union-attr]
    except Exception:  # it is damaged already
        return flip_bits(content, rng)
    place = int(rng.integers(max(len(members), 1)))
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for number, (name, inside) in enumerate(members):
            if number == place:
                inside = one_of(rng, (*ANY, odd_json, odd_json, odd_text, odd_text))(inside, rng)
                name = name if rng.random() < 0.8 else f"{one_of(rng, _ODD_TEXTS)}.{name[-4:]}"
            info = tarfile.TarInfo(name)
            info.size = len(inside)
            tar.addfile(info, io.BytesIO(inside))
    return written.getvalue()


def in_gzip(inner: Mutation) -> Mutation:
    """Make a mutation of what a gzipped file holds."""

    def mutate(content: bytes, rng: Rng) -> bytes:
        try:
            return gzip.compress(inner(gzip.decompress(content), rng), 1)
        except Exception:  # it is damaged already
            return flip_bits(content, rng)

    return mutate


def odd_safetensors(content: bytes, rng: Rng) -> bytes:
    """Make the header of weights odd, its length made right again."""
    (n_bytes,) = struct.unpack("<Q", content[:8].ljust(8, b"\0"))
    header = odd_json(content[8 : 8 + n_bytes], rng)
    return struct.pack("<Q", len(header)) + header + content[8 + n_bytes :]


_TEXTS = (odd_text, odd_text, odd_lines)
_BY_ENDING: dict[str, tuple[Mutation, ...]] = {
    ".csv": _TEXTS, ".tsv": _TEXTS, ".txt": _TEXTS, ".toml": (*_TEXTS, odd_text),
    ".json": (odd_json,) * 8, ".jsonl": (odd_json, *_TEXTS), ".parquet": (odd_parquet,) * 8,
    ".npy": (odd_npy,) * 6, ".npz": (odd_zip,) * 10, ".tar": (odd_tar, odd_tar, odd_members) * 3,
    ".gz": (in_gzip(odd_tar), in_gzip(odd_members)) * 4, ".safetensors": (odd_safetensors,) * 6,
    ".ogg": (odd_ogg,) * 8,
}  # fmt: skip


def mutated(name: str, content: bytes, rng: Rng) -> bytes:
    """Return the damaged content of a file, by the mutations that fit the ending of its name."""
    ending = "." + name.rpartition(".")[2].lower()
    choices = (*ANY, *_BY_ENDING.get(ending, ()))
    for _ in range(int(one_of(rng, (1, 1, 1, 2)))):
        try:
            content = one_of(rng, choices)(content, rng)[:MOST_BYTES]
        except Exception:  # twice damaged, it is no longer what the second mutation takes apart
            content = flip_bits(content, rng)
    return content
