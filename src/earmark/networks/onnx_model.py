"""Models from elsewhere: any ONNX file that turns waveforms or log-mel patches into scores.

What goes in is told from the shape of the model's input, and can be said: waveforms are [samples],
[batch, samples] or [batch, 1, samples], patches [batch, frames, bands] or [batch, 1, frames,
bands]. Sizes that a model fixes are met: a waveform is cut, a batch filled up.

A class map says which output stands for which class of the workspace. It is a table (CSV, TSV or
Parquet) with a column ``output`` or ``index``, the number of an output from 0 or its name in the
model, and a column ``class_id`` (or ``mid``, ``class``, ``name``, ``display_name``) with a class of
the workspace by identifier or name. A line without a class maps nothing. YAMNet's
``yamnet_class_map.csv`` is one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError, check_file, first_few, nearest
from earmark.labels import CLASS_COLUMNS, Ontology
from earmark.networks.onnx_export import open_session
from earmark.runs import LINE, InputKind, digest, read_source

SAMPLE_RATE_HZ = 16_000
"""Of waveforms, unless the model or the user says otherwise."""

_OUTPUT_COLUMNS = ("output", "index")

_DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}


@dataclass(frozen=True)
class ForeignModel:
    """An ONNX model and how to feed it; make it with :meth:`open`.

    ``input_shape`` has None where an axis may have any length.
    """

    path: Path
    kind: InputKind
    input_name: str
    input_shape: tuple[int | None, ...]
    dtype: str
    output_name: str
    sample_rate_hz: int
    class_ids: tuple[str, ...]
    """The classes that the file names; empty where it names none."""
    digest: str
    """Identifies the file and how it is used."""

    @classmethod
    def open(
        cls,
        path: str | Path,
        kind: InputKind | None = None,
        output_name: str | None = None,
        sample_rate_hz: int | None = None,
    ) -> ForeignModel:
        """Open a model; what is not said is told from its shapes and metadata."""
        path = Path(path)
        check_file(path)
        session = open_session(path)
        given = _only_input(path, session)
        shape = tuple(n if isinstance(n, int) else None for n in given.shape)
        kind = _kind(path, shape, kind)
        output_name = _chosen_output(path, session, output_name)
        metadata = session.get_modelmeta().custom_metadata_map
        rate = sample_rate_hz or _sample_rate(metadata)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        return cls(
            path=path,
            kind=kind,
            input_name=given.name,
            input_shape=shape,
            dtype=_DTYPES[given.type],
            output_name=output_name,
            sample_rate_hz=rate,
            class_ids=_class_ids(metadata),
            digest=digest(content, kind, output_name, rate),
        )

    @property
    def description(self) -> str:
        """What goes in and what comes out, for people."""
        axes = ", ".join("any" if n is None else str(n) for n in self.input_shape)
        rate = f" at {self.sample_rate_hz:,} Hz" if self.kind == "waveforms" else ""
        return f"{self.kind} [{axes}]{rate} to {self.output_name!r}"

    def outputs(self, session: Any, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run the model on waveforms [1, sample] or patches [patch, frame, band] of one clip.

        Returns [part, class]: parts are the model's own, or the patches.
        """
        fed = [self._run(session, batch) for batch in self._batches(self._cut(rows))]
        found = np.concatenate(fed)
        if self.kind == "patches" and len(found) != len(rows):
            raise EarmarkError(
                f"{self.path}: {len(rows)} patches gave {len(found)} rows of "
                f"{self.output_name!r}, expected one each; is another output meant (--output)?"
            )
        return found

    def _cut(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Cut a waveform into the lengths that the model wants, the last one padded with zeros."""
        n_samples = self.input_shape[-1]
        if self.kind == "patches" or n_samples is None:
            return rows
        n_missing = -rows.shape[1] % n_samples
        return np.pad(rows, ((0, 0), (0, n_missing))).reshape(-1, n_samples)

    def _batches(self, rows: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        if len(self.input_shape) == 1:
            return list(rows)
        n = self.input_shape[0] or len(rows)
        return [rows[first : first + n] for first in range(0, len(rows), n)]

    def _run(self, session: Any, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run one batch, padded to the model's own size; return [part, class]."""
        n, fixed = len(batch), self.input_shape[0]
        is_short = len(self.input_shape) > 1 and fixed is not None and n < fixed
        if is_short:
            batch = np.pad(batch, ((0, (fixed or n) - n), *((0, 0),) * (batch.ndim - 1)))
        if len(self.input_shape) == batch.ndim + 1:  # an axis of one channel after the batch
            batch = batch[:, None]
        given = {self.input_name: batch.astype(self.dtype, copy=False)}
        try:
            (found,) = session.run([self.output_name], given)
        except Exception as error:  # onnxruntime's errors have no base of their own
            reason = str(error).splitlines()[0]
            raise EarmarkError(
                f"{self.path}: fails on {self.kind} {list(batch.shape)} ({reason}); if the input "
                "is something else, say so with --input"
            ) from None
        return _as_rows(self.path, found[:n] if is_short else found)


def _sample_rate(metadata: Mapping[str, str]) -> int:
    """Return the rate that a file names, in a way that we know."""
    text = metadata.get("sample_rate_hz", "")
    return int(text) if text.isdecimal() and int(text) else SAMPLE_RATE_HZ


def _class_ids(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the classes that a file names, in a way that we know: a JSON list of texts."""
    try:
        names = json.loads(metadata.get("class_ids", "[]"))
    except json.JSONDecodeError:
        return ()
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list else ()


def _only_input(path: Path, session: Any) -> Any:
    inputs = session.get_inputs()
    listed = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs) or "none"
    if len(inputs) != 1 or inputs[0].type not in _DTYPES:
        raise EarmarkError(
            f"{path}: expected one input of floats (waveforms, or log-mel patches), got {listed}"
        )
    return inputs[0]


def _kind(path: Path, shape: Sequence[int | None], wanted: InputKind | None) -> InputKind:
    """Tell waveforms from patches by the axes of the input."""
    n_axes = len(shape)
    may_have_channel = n_axes >= 3 and shape[1] in (1, None)
    fits: dict[InputKind, bool] = {
        "patches": (n_axes == 3 and shape[1] != 1) or (n_axes == 4 and may_have_channel),
        "waveforms": n_axes in (1, 2) or (n_axes == 3 and may_have_channel),
    }
    fitting = [kind for kind, does_fit in fits.items() if does_fit and wanted in (None, kind)]
    if not fitting:
        raise EarmarkError(
            f"{path}: its input has {n_axes} axes {list(shape)}; expected waveforms [samples], "
            "[batch, samples] or [batch, 1, samples], or patches [batch, frames, bands] or "
            "[batch, 1, frames, bands]" + (f"; {wanted} were asked for" if wanted else "")
        )
    return fitting[0]


def _chosen_output(path: Path, session: Any, wanted: str | None) -> str:
    names = [output.name for output in session.get_outputs()]
    if wanted is None:
        return str(names[0])
    if wanted not in names:
        raise EarmarkError(f"{path}: there is no output {wanted!r}{nearest(wanted, names)}")
    return wanted


def _as_rows(path: Path, found: Any) -> NDArray[np.float32]:
    if not isinstance(found, np.ndarray) or found.ndim == 0 or not found.size:
        raise EarmarkError(f"{path}: the output is no array with a class axis; choose --output")
    return found.reshape(-1, found.shape[-1])


@dataclass(frozen=True)
class ClassMap:
    """Outputs of a model and the columns of the workspace's classes that they score, in pairs."""

    outputs: tuple[int, ...]
    columns: tuple[int, ...]

    def unscored(self, ontology: Ontology) -> list[str]:
        """Return the classes that no output stands for."""
        scored = set(self.columns)
        return [name for column, name in enumerate(ontology.class_ids) if column not in scored]


def read_class_map(
    path: str | Path,
    ontology: Ontology,
    n_outputs: int,
    output_names: Sequence[str] = (),
    *,
    skip_unknown: bool = False,
) -> ClassMap:
    """Read a class map; refuse, with the line, what neither the model nor the workspace has.

    With ``skip_unknown`` lines that name a class the workspace lacks are left out.
    """
    path = Path(path)
    table = read_source(path)
    of_output = _column(path, table.columns, _OUTPUT_COLUMNS)
    of_class = _column(path, table.columns, CLASS_COLUMNS)
    pairs: list[tuple[int, int]] = []
    line_of: dict[int, int] = {}
    for line, output, name in table.rows.select(LINE, of_output, of_class).iter_rows():
        where = table.at(line)
        number = _output(where, output, n_outputs, output_names)
        if name is None or not str(name).strip():
            continue
        column = _find(where, str(name).strip(), ontology, skip_unknown)
        if column is None:
            continue
        if column in line_of:
            raise EarmarkError(
                f"{where}: class {name!r} has an output already, on line {line_of[column]}"
            )
        line_of[column] = line
        pairs.append((number, column))
    return _checked(str(path), pairs)


def map_by_names(
    model: str | Path, class_ids: Sequence[str], ontology: Ontology, *, skip_unknown: bool = False
) -> ClassMap:
    """Map a model's outputs by the class identifiers that it carries itself."""
    unknown = [class_id for class_id in class_ids if class_id not in ontology.index]
    if unknown and not skip_unknown:
        raise EarmarkError(
            f"{model}: {len(unknown):,} of the model's {len(class_ids):,} classes are not the "
            f"workspace's ({first_few(unknown)}); say which is which with --class-map, or leave "
            "them out with --skip-unknown"
        )
    pairs = [
        (output, ontology.index[class_id])
        for output, class_id in enumerate(class_ids)
        if class_id in ontology.index
    ]
    return _checked(str(model), pairs)


def _column(path: Path, columns: Sequence[str], wanted: Sequence[str]) -> str:
    found = next((name for name in wanted if name in columns), None)
    if found is None:
        raise EarmarkError(
            f"{path}: expected a column {' or '.join(wanted)}, got {', '.join(columns)}"
        )
    return found


def _output(where: str, output: object, n_outputs: int, names: Sequence[str]) -> int:
    """Return the number of an output given by number or name."""
    text = "" if output is None else str(output).strip()
    if text in names:
        return list(names).index(text)
    if not text.isdecimal():
        hint = nearest(text, names) if names else ", and the model names none: give numbers from 0"
        raise EarmarkError(f"{where}: the model has no output {text!r}{hint}")
    if int(text) >= n_outputs:
        raise EarmarkError(
            f"{where}: output {text} asked of a model with {n_outputs:,} (0 to {n_outputs - 1:,})"
        )
    return int(text)


def _find(where: str, name: str, ontology: Ontology, skip_unknown: bool) -> int | None:
    try:
        return ontology.index[ontology.find(name)]
    except EarmarkError as error:
        if skip_unknown:
            return None
        raise EarmarkError(
            f"{where}: {error}; delete the line, or leave such lines out with --skip-unknown"
        ) from None


def _checked(source: str, pairs: Iterable[tuple[int, int]]) -> ClassMap:
    outputs, columns = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
    if not outputs:
        raise EarmarkError(f"{source}: not one of the workspace's classes is mapped to an output")
    return ClassMap(outputs, columns)
