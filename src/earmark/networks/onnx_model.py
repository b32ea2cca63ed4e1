"""Models from elsewhere: any ONNX file that turns waveforms or log-mel patches into scores.

What goes in is told from the shape of the model's input, and can be said: waveforms are [samples],
[batch, samples] or [batch, 1, samples], patches [batch, frames, bands] or [batch, 1, frames,
bands]. Sizes that a model fixes are met: a waveform is cut, a batch filled up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError, check_file, nearest
from earmark.networks.onnx_export import open_session
from earmark.runs import InputKind, digest

SAMPLE_RATE_HZ = 16_000
"""Of waveforms, unless the model or the user says otherwise."""

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
