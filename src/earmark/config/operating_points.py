"""The paper's operating points: the one parameter that a scan needs, without pydantic."""

PAPER_DISCARD_PERCENTS: tuple[float, ...] = (
    0, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20,
)  # fmt: skip
"""The paper's 18 operating points: per cent of each class's implicit labels that are ignored."""
