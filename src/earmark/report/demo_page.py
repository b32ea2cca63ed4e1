"""What the demo found: three short paragraphs for a terminal, and a page with flags to hear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.audio import LOG_MEL_RANGE, wav_bytes
from earmark.errors import quoted
from earmark.experiments import JudgedGain, ToldGain
from earmark.report.numerals import change_text, percent_text, rounded, signed_text
from earmark.report.rendering import HeardFlag, render
from earmark.report.verdict import Verdict

_N_FIRST = 100
_ACTS = {"mask": "ignoring", "hedge": "hedging"}
_RATE_HZ = 16_000


@dataclass(frozen=True)
class StudentsFound:
    """What flags did to students: the way chosen on tune, and the best point of each treatment."""

    chosen: ToldGain
    each: tuple[ToldGain, ...]
    heard: JudgedGain
    n_draws: int
    n_train: int
    n_eval: int

    @property
    def verdict(self) -> Verdict:
        """The verdict on the way that was chosen."""
        found = self.chosen
        return Verdict(
            student="linear probe",
            train_set="train",
            percent=found.percent,
            baseline=found.baseline,
            best=found.value,
            gain=found.gain,
            calibrated_gain=found.calibrated,
            random_gain=found.random,
            random_percent=found.percent,
            strategy=found.treatment,
        )


@dataclass(frozen=True)
class DemoFound:
    """All that the demo says: ``right`` tells of each flag, the likeliest first, whether it is."""

    n_clips: int
    n_classes: int
    n_present: int
    n_missing: int
    n_implicit: int
    right: NDArray[np.bool_]
    students: StudentsFound

    @property
    def n_first(self) -> int:
        """Flags of which it is said first how many are right."""
        return min(_N_FIRST, len(self.right))

    @property
    def n_right(self) -> int:
        """Right ones among the first flags."""
        return int(self.right[: self.n_first].sum())

    @property
    def by_chance(self) -> float:
        """Share of missing labels among all that nobody was asked about."""
        return self.n_missing / max(self.n_implicit, 1)

    @property
    def times_better(self) -> float:
        """How many times better than chance the first flags are."""
        return self.n_right / max(self.n_first, 1) / max(self.by_chance, 1e-9)

    @property
    def facts(self) -> dict[str, Any]:
        """All numbers, for programs."""
        return {
            "n_clips": self.n_clips,
            "n_classes": self.n_classes,
            "n_present": self.n_present,
            "n_missing": self.n_missing,
            "n_flags": len(self.right),
            "n_first": self.n_first,
            "n_right": self.n_right,
            "right_of_all_flags": float(self.right.mean()) if len(self.right) else None,
            "by_chance": self.by_chance,
            "times_better": self.times_better,
            "answer": self.students.verdict.answer,
            "students": asdict(self.students),
        }


def demo_told(found: DemoFound) -> dict[str, list[str]]:
    """Return what was found in sentences, under a heading for each of the three things."""
    return {
        "Flags find missing labels": [
            f"Of the first {found.n_first} flags {found.n_right} are right: "
            f"{found.times_better:.0f} times better than chance "
            f"({percent_text(found.by_chance)}). Of all {len(found.right):,} flags "
            f"{percent_text(float(found.right.mean()))} are."
        ],
        "Students learn better for it": [
            verdict_told(found.students),
            controls_told(found.students),
        ],
        "A hundred answers by ear add to it": [heard_told(found.students.heard)],
    }


def demo_lines(found: DemoFound) -> list[str]:
    """Return what was found as sentences for a terminal, one for each of the three things."""
    each = enumerate(demo_told(found).values(), 1)
    return [scenes_told(found), *(f"{number}. {' '.join(told)}" for number, told in each)]


def heard_told(heard: JudgedGain) -> str:
    """Say what answers by ear found, and what they gave a student."""
    return (
        f"{heard.n_answers:.0f} answers by ear find {heard.n_found:.0f} missing labels, asked at "
        f"random {heard.n_found_at_random:.0f}. They change lwlrap by {change_text(heard.gain)}; "
        f"at random by {change_text(heard.gain_at_random)}."
    )


def scenes_told(found: DemoFound) -> str:
    """Say what the scenes are and what is missing."""
    return (
        f"{found.n_clips:,} made-up scenes, {found.n_classes} classes. Nobody was asked about "
        f"{found.n_missing:,} of the {found.n_present:,} labels that are true: they are missing."
    )


def verdict_told(students: StudentsFound) -> str:
    """Say in one sentence whether students gain."""
    chosen, verdict = students.chosen, students.verdict
    if chosen.treatment not in _ACTS:
        return "No: on the scenes set apart for choosing, nothing beats the labels as they are."
    act = f"{_ACTS[chosen.treatment]} the likeliest {chosen.percent:g} %"
    verb = "raises" if chosen.gain.value > 0 else "lowers"
    moved = f"from {chosen.baseline.value:.3f} to {chosen.value.value:.3f}"
    low, high = signed_text(chosen.gain.low), signed_text(chosen.gain.high)
    change = f"{signed_text(chosen.gain.value)}; 90 % interval {low} to {high}"
    return f"{verdict.answer}: {act} {verb} lwlrap on unseen scenes {moved} ({change})."


def controls_told(students: StudentsFound) -> str:
    """Say what both controls give, and what the other treatment does."""
    chosen = students.chosen
    told = (
        []
        if chosen.treatment not in _ACTS
        else [
            f"As many at random: {change_text(chosen.random)}.",
            f"Every class calibrated first: {change_text(chosen.calibrated)}.",
        ]
    )
    others = [one for one in students.each if one.treatment not in (chosen.treatment, "as given")]
    told += [
        f"{_ACTS[one.treatment].capitalize()} {one.percent:g} %: {change_text(one.gain)}."
        for one in others
    ]
    return " ".join(told)


def demo_html(found: DemoFound, heard: Sequence[HeardFlag], work: Path) -> str:
    """Return the page: what was found, flags to hear, what the numbers mean."""
    return render(
        "demo.html",
        found=found,
        scenes=scenes_told(found),
        told=demo_told(found),
        heard=[_card(one) for one in heard],
        review=f"earmark review {quoted(work)}",
        rounded=rounded,
    )


def _card(flag: HeardFlag) -> dict[str, Any]:
    """Return what the page needs of a flag: its picture is drawn from bytes [band, frame]."""
    assert flag.frames is not None
    assert flag.best_patch is not None
    low, high = LOG_MEL_RANGE
    levels = ((np.asarray(flag.frames) - low) / (high - low)).clip(0, 1) * 255
    n_frames = len(levels)
    first, end = (min(edge / n_frames, 1.0) for edge in flag.best_patch)
    return {
        "flag": flag,
        "sound": wav_bytes(np.asarray(flag.waveform), _RATE_HZ),
        "levels": levels.astype(np.uint8).T[::-1].tobytes(),  # [band, frame], high bands above
        "n_frames": n_frames,
        "n_bands": levels.shape[1],
        "first": round(first, 4),
        "share": round(end - first, 4),
    }
