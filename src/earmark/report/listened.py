"""What listening has found, as a part of a page: a sentence, a small curve, advice.

The curve is drawn here, into the page: it needs no script, no style sheet and no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from earmark.report.rendering import render

if TYPE_CHECKING:
    from earmark.review import Gains

WIDE, TALL = 320, 120
"""Size of the curve, in pixels, without its words."""

Points = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class YieldCurve:
    """What was found against what was answered, and the forecast, as lines of a drawing."""

    n_answered: int
    n_found: int
    found: Points
    forecast: Points

    @classmethod
    def of(cls, gains: Gains) -> YieldCurve | None:
        """Return the curve; None where there is no line to draw."""
        if len(gains.curve) + len(gains.forecast) < 2:
            return None
        ahead = [*gains.curve[-1:], *gains.forecast]
        answered, found = zip(*gains.curve, *gains.forecast, strict=True)
        return cls(max(1, *answered), max(1, *found), gains.curve, ahead)

    def line(self, points: Points) -> str:
        """Return points as a polyline's: x grows with answers, y falls with what was found."""
        return " ".join(f"{self.x(n):.1f},{self.y(found):.1f}" for n, found in points)

    def x(self, n_answered: int) -> float:
        """Return how far to the right so many answers stand."""
        return WIDE * n_answered / self.n_answered

    def y(self, n_found: int) -> float:
        """Return how far down so many finds stand."""
        return TALL * (1 - n_found / self.n_found)


def listened_html(gains: Gains | None) -> Markup:
    """Return the part of a page that says what listening found; nothing where nobody listened."""
    if gains is None or not gains.n_answered:
        return Markup("")
    drawn = YieldCurve.of(gains)
    page = render("listened.html", gains=gains, drawn=drawn, wide=WIDE, tall=TALL)
    return Markup(page)
