"""The options of policies of flags, as every stage that flags takes them."""

from __future__ import annotations

from typing import Annotated, TypedDict

from earmark.options import Option, read_share_or_mean


class PolicyOptions(TypedDict, total=False):
    """What policies of flags can be told; each option brings its own policy with it."""

    discard_percent: Annotated[float, Option("percentile: of each class; 1.", low=0, high=100)]
    target: Annotated[float, Option("precision: lowest chance; 0.5.")]
    n_flags: Annotated[int, Option("budget: flags in all; up to 1,000.", low=0)]
    balance: Annotated[float, Option("budget: how much small classes count; 0.", low=0)]
    quantile: Annotated[
        float | str,
        Option("positives_quantile: a share, or mean; mean.", read=read_share_or_mean),
    ]
    gate: Annotated[bool, Option("positives_quantile: a parent or child is labelled.")]
    probability: Annotated[float, Option("global: lowest score; 0.6.")]


PolicyName = Annotated[
    str | None,
    Option(
        "How flags are chosen: budget, percentile, precision, positives_quantile, confident or "
        "global; budget, or the one whose option is given."
    ),
]
