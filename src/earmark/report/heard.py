"""Flags to hear and see, with their sounds and pictures inside the page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from earmark.audio.pictures import log_mel_png
from earmark.report.contents import HeardFlag
from earmark.report.numerals import number_text
from earmark.report.page_parts import data_uri, text


def heard_html(heard: Mapping[str, Sequence[HeardFlag]], sample_rate_hz: int) -> list[str]:
    """Return a list of flags for each class name, with players where there is sound."""
    parts = []
    for name, flags in heard.items():
        items = "\n".join(_flag_html(flag, sample_rate_hz) for flag in flags)
        parts.append(f'<h3>{text(name)}</h3>\n<ol class="flags">\n{items}\n</ol>')
    return parts


def _flag_html(flag: HeardFlag, sample_rate_hz: int) -> str:
    facts = [f"score {number_text(flag.score, 2)}"]
    if flag.chance is not None and np.isfinite(flag.chance):
        facts.append(f"chance {number_text(flag.chance, 2)}")
    picture = sound = ""
    if flag.frames is not None:
        png = log_mel_png(flag.frames, flag.best_patch)
        picture = f'<img src="{data_uri("image/png", png)}" width="320" height="100" alt="log-mel">'
    if flag.waveform is not None and len(flag.waveform):
        mp3 = _mp3(flag.waveform, sample_rate_hz)
        label = text(f"flag {flag.rank}, {flag.clip_id}")
        source = data_uri("audio/mpeg", mp3)
        sound = f'<audio controls preload="none" src="{source}" aria-label="{label}"></audio>'
    return (
        f'<li><p><b>{flag.rank}</b> <span class="clip">{text(flag.clip_id)}</span></p>'
        f"<p>{' · '.join(facts)}{_truth_html(flag.is_missing)}</p>{picture}{sound}</li>"
    )


def _truth_html(is_missing: bool | None) -> str:
    if is_missing is None:
        return ""
    if is_missing:
        return ' <span class="missing">✓ missing label</span>'
    return ' <span class="decoy">✗ decoy</span>'


def _mp3(waveform: NDArray[np.float32], sample_rate_hz: int) -> bytes:
    import soundfile  # comes with earmark[audio]; a report without sound does not need it

    encoded = io.BytesIO()
    soundfile.write(encoded, np.clip(waveform, -1, 1), sample_rate_hz, format="MP3")
    return encoded.getvalue()
