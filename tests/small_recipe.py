"""A whole run in seconds."""

from __future__ import annotations

from earmark.config import Recipe

SMALL = Recipe.model_validate(
    {
        "name": "small",
        "scenes": {"n_train": 40, "n_tune": 16, "n_eval": 16, "clip_seconds": 1.5},
        "teacher": {
            "name": "teacher",
            "model": {"width": 0.125},
            "train": {"epochs": 1, "batch_patches": 32},
        },
        "students": [
            {
                "name": "student",
                "model": {"width": 0.125},
                "train": {"epochs": 1, "batch_patches": 32},
            }
        ],
        "cross_fit": {"n_folds": 2},
        "sweep": {
            "discard_percents": [0, 5],
            "random_control_percents": [5],
            "n_resamples": 100,
        },
        "report": {"flag_percent": 5, "listen_flags": 2},
    }
)
