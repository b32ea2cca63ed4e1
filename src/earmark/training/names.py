"""Names of what a strategy may ask of training. Nothing here needs torch.

Losses are made by :mod:`earmark.training.rivals`, flags by :mod:`earmark.training.treatments`.
"""

LOSS_NAMES = (
    "bce",
    "weak-negatives",
    "an-ls",
    "em",
    "asl",
    "hill",
    "splc",
    "ll-r",
    "ll-ct",
    "ll-cp",
    "consistency",
)
"""Losses: the usual one, and the rivals that need no teacher."""

BY_EPOCH = ("splc", "ll-r", "ll-ct", "ll-cp")
"""Losses that change from one epoch to the next."""

BY_PERCENT = ("percentile", "random", "budget")
"""Policies whose points are a per cent: of each class's implicit labels, or (budget) of all."""

OWN_POLICIES = ("psla", "ancestors", "random", "oracle", "all")
"""Policies of training, beside those of :mod:`earmark.flags.flag`."""
