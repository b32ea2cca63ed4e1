"""A queue that grows, as a server of made-up answers behind the page; the sounds are real."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Route

from earmark.flags import MissingEstimates
from earmark.metrics import Interval
from earmark.review import Gains
from earmark.review.server.session import ReviewSession

YIELD = Gains(
    MissingEstimates(1_000, 950, Interval(551.0, 503.5, 598.5), 300, 214),
    n_next_found=71.2,
    curve=((0, 0), (100, 90), (300, 214)),
    forecast=((400, 285),),
).to_dict() | {"advice": "This is a good place to stop."}
CLASSES = {
    "dog": ("Dog", ["Animal", "Dog"]),
    "rain": ("Rain", ["Water", "Rain"]),
    "bell": ("Bell", ["Bell"]),
    "siren": ("Siren", ["Alarm", "Siren"]),
}


@dataclass
class Growing:
    """Answers for the page; ``said`` are the judgements that it sent."""

    session: ReviewSession
    mode: str
    n_blocks: int = 2
    said: list[dict[str, Any]] = field(default_factory=list)
    drawn: list[dict[str, Any]] = field(default_factory=list)

    def serve(self, page: Page) -> None:
        """Answer in place of the server whatever it does not know yet."""
        page.route("**/api/**", self._answer)

    @property
    def current(self) -> dict[str, str]:
        """What was said last of each item, retractions taken into account."""
        retracted = {one["retracts"] for one in self.said}
        kept = [one for one in self.said if one["answer"] and one["id"] not in retracted]
        return {one["item"]: one["answer"] for one in kept}

    def clips(self, block: int) -> list[dict[str, Any]]:
        """Return the items of a block: three sounds, two of one class and one of another."""
        sounds = self.session.queue.items["item"].unique(maintain_order=True)[
            3 * block : 3 * block + 3
        ]
        if self.mode == "class":
            return [
                {"item": sound, "class_id": class_id, "peaks": [[0.5, 1.0]]}
                for sound, class_id in zip(sounds, ("dog", "dog", "rain"), strict=True)
            ]
        names = list(CLASSES)[:3]
        offers = [[self.offer(sound, class_id) for class_id in names] for sound in sounds]
        return [
            {"clip": sound, "labels": ["Hum", "Wind"], "offers": own}
            for sound, own in zip(sounds, offers, strict=True)
        ]

    @staticmethod
    def offer(sound: str, class_id: str) -> dict[str, Any]:
        name, path = CLASSES[class_id]
        peaks = [[0.5, 1.2], [2.0, 2.5]] if class_id == "dog" else [[2.8, 3.4]]
        item = f"{sound}-{class_id}"
        return {"item": item, "class_id": class_id, "name": name, "path": path, "peaks": peaks}

    def _answer(self, route: Route) -> None:
        address = urlsplit(route.request.url)
        parts = address.path.removeprefix("/api/").split("/")
        match parts:
            case ["session"]:
                told: Any = self._session()
            case ["blocks", "next"]:
                told = {"block": self._next()}
            case ["blocks", number]:
                told = {"block": int(number), "cards": _CARDS, "items": self.clips(int(number))}
            case ["blocks", number, "summary"]:
                told = _SUMMARY
            case ["yield"]:
                told = YIELD
            case ["classes"]:
                asked = parse_qs(address.query)["q"][0].lower()
                told = {"classes": [_found(c) for c in CLASSES if asked in c]}
            case ["clips", sound, "offers"]:
                told = self.offer(sound, route.request.post_data_json["class_id"])
            case ["judgements"]:
                self.said.append(route.request.post_data_json)
                told = {"stored": True, "is_new": True}
            case _:
                route.fallback()
                return
        route.fulfill(json=told)

    def _items(self, block: int) -> list[str]:
        clips = self.clips(block)
        return [one["item"] for clip in clips for one in clip.get("offers", [clip])]

    def _session(self) -> dict[str, Any]:
        block_of = {item: number for number in range(self.n_blocks) for item in self._items(number)}
        retracted = {one["retracts"] for one in self.said}
        history = [
            {
                key: one[key]
                for key in ("id", "item", "answer", "span_start", "span_end")
                if key in one
            }
            | {"block": block_of.get(one["item"], 0)}
            for one in self.said
            if one["answer"] and one["id"] not in retracted
        ]
        return self.session.describe("ann") | {
            "aim": "find",
            "mode": self.mode,
            "grows": True,
            "blocks": list(self.drawn),
            "history": history,
        }

    def _next(self) -> dict[str, Any] | None:
        """Return the first unfinished block, drawn now if there is none."""
        for number in range(self.n_blocks):
            items = self._items(number)
            if not set(items) <= set(self.current):
                block = {
                    "block": number,
                    "class_id": "dog",
                    "name": "Dog and Rain",
                    "n_items": len(items),
                }
                self.drawn += [] if block in self.drawn else [block]
                return block
        return None


def _found(class_id: str) -> dict[str, Any]:
    name, path = CLASSES[class_id]
    return {"class_id": class_id, "name": name, "path": path}


_CARDS = [
    _found(class_id) | {"definition": "", "confused": [], "examples": [], "decoy": None}
    for class_id in ("dog", "rain")
]
_SUMMARY = {
    "name": "Dog and Rain",
    "answers": {"present": 2, "not_present": 1, "unsure": 0, "cannot_play": 0},
    "flags": "the labels heard",
    "is_sample": False,
    "n_judged": 3,
    "low": 0.67,
    "high": 0.67,
    "interval_low": 0.2,
    "interval_high": 0.9,
    "gold": {"passed": 0, "total": 0, "is_failed": False},
    "points": [],
}
