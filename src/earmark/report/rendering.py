"""Pages from templates: every text is escaped, and a page contains all that it needs.

The templates, styles and scripts lie in ``templates/``. A page asks for its own style and script
by ``shipped``, so that it opens without a network and without another file. Several pages share the
flags to hear, the curve of what listening found, and the words that a page cannot do without: they
are in ``GLOSSARY``, each in a sentence, and linked from their first use.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from markupsafe import Markup, escape
from numpy.typing import NDArray

from earmark.report.numerals import is_known, number_text, percent_text, rounded

if TYPE_CHECKING:
    from jinja2 import Environment

    from earmark.flags import Findings
    from earmark.review import Gains


MOST_SOUND_BYTES = 900_000
"""MP3 of all flags that a page plays: with pictures, and as text, it stays below 2 MB."""

CURVE_WIDTH, CURVE_HEIGHT = 320, 120
"""Size of the curve of what listening found, in pixels, without its words."""

_TOO_MANY = "not played here, to keep the page small"

_N_HEARD = 40
"""Flags that a page lists to be heard."""

_FEW_OF_A_CLASS = 3
"""As many flags of a class are heard, or more where there are few classes."""


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
    found.globals.update(shipped=_shipped, policy=_policy)
    found.tests["known"] = is_known
    found.filters.update(
        data_uri=_data_uri,
        number=number_text,
        percent=percent_text,
        rounded=rounded,
    )
    return found


@dataclass(frozen=True)
class HeardFlag:
    """One flag to hear and see; ``is_missing`` is the truth about it, where it is known."""

    rank: int
    clip_id: str
    score: float
    chance: float | None = None
    is_missing: bool | None = None
    waveform: NDArray[np.float32] | None = None
    frames: NDArray[np.floating] | None = None
    """Log-mel frames [frame, band]."""
    best_patch: tuple[int, int] | None = None
    """First frame of the patch that scored best, and the frame after its last."""
    class_name: str = ""
    note: str = ""
    """Which part of a long clip it is, or why there is nothing to hear."""


def first_to_hear(findings: Findings, n_most: int = _N_HEARD) -> pl.DataFrame:
    """Choose of what was found the flags that are worth hearing first (:func:`flags_to_hear`)."""
    # No class is heard more often than that.
    return flags_to_hear(findings.flag_table.first_of_each(max(n_most, _FEW_OF_A_CLASS)), n_most)


def flags_to_hear(flags: pl.DataFrame, n_most: int = _N_HEARD) -> pl.DataFrame:
    """Choose the flags that are worth hearing first: the likeliest, but only a few of each class.

    Flags without a chance come last, those at the top of their class first.
    """
    n_classes = max(flags["class_id"].n_unique(), 1)
    n_each = max(_FEW_OF_A_CLASS, -(-n_most // n_classes))
    # What is as likely, or as unknown, is taken by rank, so that classes take turns.
    likeliest = flags.sort(
        "chance", "rank", "class_id", descending=[True, False, False], nulls_last=True
    )
    return likeliest.filter(pl.int_range(pl.len()).over("class_id") < n_each).head(n_most)


def flag_picture(flag: HeardFlag) -> bytes:
    """Return the PNG of a flag's frames, the patch that scored best in a frame of its own."""
    from earmark.audio import log_mel_png  # most pages have no sounds

    assert flag.frames is not None
    return log_mel_png(flag.frames, flag.best_patch)


def flag_sound(sample_rate_hz: int) -> Callable[[HeardFlag], bytes]:
    """Return what makes the MP3 of a flag's waveform, once for each flag."""
    made: dict[int, bytes] = {}

    def sound(flag: HeardFlag) -> bytes:
        from earmark.audio import mp3_bytes  # most pages have no sounds

        if id(flag) not in made:
            made[id(flag)] = mp3_bytes(np.asarray(flag.waveform), sample_rate_hz)
        return made[id(flag)]

    return sound


def fit_sounds(
    flags: Sequence[HeardFlag],
    sound: Callable[[HeardFlag], bytes],
    most_bytes: int = MOST_SOUND_BYTES,
) -> list[HeardFlag]:
    """Return flags of which the first can be heard, as many as leave the page small.

    The others lose sound and picture, and say so.
    """
    shown, room = [], most_bytes
    for flag in flags:
        if flag.waveform is not None and len(flag.waveform):
            room -= len(sound(flag))
        silent = replace(flag, waveform=None, frames=None, note=flag.note or _TOO_MANY)
        shown.append(flag if room >= 0 else silent)
    return shown


def listened_html(gains: Gains | None) -> Markup:
    """Return the part of a page that draws what listening found; nothing where nobody listened.

    Its curve is drawn here, into the page: it needs no script, no style sheet and no file.
    """
    points = [] if gains is None else [*gains.curve, *gains.forecast]
    if gains is None or not gains.n_answered or len(points) < 2:
        return Markup("")
    most_answered, most_found = (max(1, *counts) for counts in zip(*points, strict=True))

    def line(points: Sequence[tuple[int, int]]) -> str:
        return " ".join(
            f"{CURVE_WIDTH * n / most_answered:.1f},{CURVE_HEIGHT * (1 - k / most_found):.1f}"
            for n, k in points
        )

    forecast = line([*gains.curve[-1:], *gains.forecast])
    return Markup(
        render(
            "listened.html",
            gains=gains,
            lines={"found": line(gains.curve), "forecast": forecast},
            n_answered=most_answered,
            n_found=most_found,
            wide=CURVE_WIDTH,
            tall=CURVE_HEIGHT,
        )
    )


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


def _policy(styles: Sequence[str], script: str) -> Markup:
    """Return the policy by which a browser runs our own style and script in a page, and no other.

    Whatever gets into the page from a dataset can then neither run nor ask another machine.
    """
    admitted = " ".join(content_hash(_shipped(style)) for style in styles)
    return Markup(
        "default-src 'none'; img-src data:; media-src data:; "
        f"style-src {admitted}; script-src {content_hash(_shipped(script))}; "
        "base-uri 'none'; form-action 'none'"
    )


def _data_uri(content: bytes, media_type: str) -> str:
    """Return an address that contains the file itself."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


@dataclass(frozen=True)
class Term:
    """A word of the trade: how it is written in texts (a pattern), and what it means."""

    name: str
    pattern: str
    meaning: str

    @property
    def anchor(self) -> str:
        """The identifier of its place on a page."""
        return "term-" + re.sub(r"\W+", "-", self.name.replace("′", "-prime")).strip("-")


GLOSSARY = (
    Term(
        "lwlrap",
        r"lwlrap",
        "How well a network ranks the classes that are in a clip above those that are not: of the "
        "classes ranked as high as a right one, the share that is right, averaged over classes. 1 "
        "is perfect.",
    ),
    Term(
        "mAP",
        r"mAP",
        "Mean average precision: for each class, how well clips that have it are ranked above "
        "those that have not; averaged over classes. 1 is perfect.",
    ),
    Term(
        "d′",
        r"d(?:′|&#39;)(?!\w)",
        "How far apart a network's scores of clips with and without a class lie, in standard "
        "deviations. 0 is chance, 3 is very good.",
    ),
    Term(
        "AUC",
        r"AUC",
        "How often a clip that has a label scores higher than one that has not. 0.5 is chance, 1 "
        "is perfect.",
    ),
    Term(
        "explicit",
        r"[Ee]xplicit",
        "A label about which somebody was asked: present, or not present.",
    ),
    Term(
        "implicit",
        r"[Ii]mplicit",
        "A label about which nobody was asked. Training takes it for absent, but it may be there.",
    ),
    Term(
        "flag",
        r"[Ff]lag(?:s|ged)?(?!\w)",
        "An implicit label that looks missing, because the teacher scores it high.",
    ),
    Term(
        "teacher",
        r"[Tt]eacher",
        "The network whose scores say which labels look missing.",
    ),
    Term(
        "student",
        r"[Ss]tudents?",
        "A network trained with some labels ignored, and measured, to see whether that helps.",
    ),
    Term(
        "operating point",
        r"[Oo]perating points?",
        "How much is ignored: the share of each class's implicit labels, highest scores first. It "
        "is chosen on clips set apart (tune) and judged on others (eval).",
    ),
    Term(
        "calibration",
        r"[Cc]alibrat(?:ion|ed)",
        "A control: every student gets the best shift of its scores for rare and common classes, "
        "so that what is left of a gain is not such a shift.",
    ),
)
"""Terms, in the order in which the page lists them."""


def linker(names: Sequence[str] | None = None) -> Callable[[str], Markup]:
    """Return what links the first use of each term on one page to its place in the glossary.

    Of all terms, or of those with some names.
    """
    unseen = {
        f"t{place}": term
        for place, term in enumerate(GLOSSARY)
        if names is None or term.name in names
    }
    pattern = re.compile(
        "|".join(rf"(?P<{key}>(?<!\w){term.pattern})" for key, term in unseen.items())
    )

    def link(text: str) -> Markup:
        def replace(found: re.Match[str]) -> str:
            term = unseen.pop(found.lastgroup or "", None)
            if term is None:
                return found[0]
            return f'<a class="term" href="#{term.anchor}">{found[0]}</a>'

        escaped = str(escape(text.replace(" %", "\u00a0%")))
        return Markup(pattern.sub(replace, escaped))

    return link
