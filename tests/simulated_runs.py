"""Made-up finished runs of the simulation study, as benchmarks/simulation.py keeps them."""

from __future__ import annotations

from typing import Any

METRICS = (
    "lwlrap", "lwlrap_calibrated", "d_prime_all", "map", "lwlrap_given", "d_prime_given",
)  # fmt: skip


def make_student(strategy: str, point: float, value: float, tune: float) -> dict[str, Any]:
    """Return a student whose every metric is ``value``."""
    return {
        "strategy": strategy, "point": point, **dict.fromkeys(METRICS, value), "tune_lwlrap": tune
    }  # fmt: skip


def make_run(world: int, students: list[dict[str, Any]], **setting: Any) -> dict[str, Any]:
    """Return a run with a baseline of 0.5 on all metrics, and on tune, before the students."""
    flags = [
        make_flags(1.0, n_flags=10, n_right=6, n_beside=1),
        make_flags(10.0, n_flags=100, n_right=20, n_beside=30),
    ]
    return {
        "dataset": "scenes", "missing_rate": 0.5, "n_train": 500, "world": world, "flags": flags,
        "students": [make_student("baseline", 0.0, 0.5, 0.5), *students], "seconds": 20.0,
    } | setting  # fmt: skip


def make_flags(percent: float, *, n_flags: int, n_right: int, n_beside: int) -> dict[str, float]:
    """Return one operating point of a world of 1,000 implicit labels, 40 of them missing."""
    return {
        "discard_percent": percent, "n_flags": n_flags, "n_right": n_right, "n_missing": 40,
        "n_beside": n_beside, "n_implicit": 1000, "n_beside_all": 200,
    }  # fmt: skip


def make_study() -> list[dict[str, Any]]:
    """Return two worlds of both sources at two missing rates and two train sizes.

    Mask gains 0.02 in world 0 and 0.04 in world 1, the random control 0.01, complete labels 0.3;
    Hill's loss does worse on tune than doing nothing.
    """
    return [
        make_run(
            world,
            [
                make_student("mask", 1.0, 0.5, 0.5),
                make_student("mask", 10.0, 0.52 + 0.02 * world, 0.6),
                make_student("random", 1.0, 0.4, 0.9),
                make_student("random", 10.0, 0.51, 0.1),
                make_student("hill", 1.0, 0.9, 0.4),
                make_student("truth", 0.0, 0.8, 0.4),
            ],
            dataset=dataset,
            missing_rate=rate,
            n_train=n_train,
        )
        for world in (0, 1)
        for dataset in ("scenes", "esc10")
        for rate in (0.2, 0.8)
        for n_train in (500, 4500)
    ]
