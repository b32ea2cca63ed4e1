"""Pages from templates: every text is escaped, and a page contains all that it needs.

The templates, styles and scripts lie in ``templates/``. A page asks for its own style and script
by ``shipped``, so that it opens without a network and without another file.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from earmark.audio import log_mel_png, mp3_bytes
from earmark.report.contents import HeardFlag
from earmark.report.numerals import is_known, number_text, percent_text, rounded

if TYPE_CHECKING:
    from jinja2 import Environment


def render(name: str, **values: Any) -> str:
    """Return the page that a template makes of some values."""
    return templates().get_template(name).render(**values)


@functools.cache
def templates() -> Environment:
    """Return the templates, with the filters that they share."""
    # Jinja takes a tenth of a second to load, and most who import earmark write no page.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("earmark.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_unbroken,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # What is not a number is no JSON: better an error here than a page that stays empty.
    found.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    found.globals["shipped"] = _shipped
    found.tests["known"] = is_known
    found.filters.update(
        content_hash=content_hash,
        data_uri=_data_uri,
        number=number_text,
        percent=percent_text,
        rounded=rounded,
    )
    return found


def flag_picture(flag: HeardFlag) -> bytes:
    """Return the PNG of a flag's frames, the patch that scored best in a frame of its own."""
    assert flag.frames is not None
    return log_mel_png(flag.frames, flag.best_patch)


def flag_sound(sample_rate_hz: int) -> Callable[[HeardFlag], bytes]:
    """Return what makes the MP3 of a flag's waveform."""
    return lambda flag: mp3_bytes(np.asarray(flag.waveform), sample_rate_hz)


def content_hash(content: str) -> Markup:
    """Return the hash by which a content security policy admits an inline script or style."""
    found = hashlib.sha256(content.encode()).digest()
    return Markup(f"'sha256-{base64.b64encode(found).decode('ascii')}'")


def _unbroken(value: Any) -> Any:
    """Keep per cent signs with their numbers; markup has been made from such texts already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return value.replace(" %", "\u00a0%")
    return value


@functools.cache
def _shipped(name: str) -> Markup:
    """Return a style or script of ours, which goes into a page as it is."""
    file = resources.files("earmark.report").joinpath("templates", name)
    return Markup(file.read_text(encoding="utf-8"))


def _data_uri(content: bytes, media_type: str) -> str:
    """Return an address that contains the file itself."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
