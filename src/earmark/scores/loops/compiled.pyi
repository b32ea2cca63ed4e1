"""The loops over blocks of scores [clip, class]. Arrays have no gaps and are in C order.

An array of another type, shape or order, or an index that would point beyond one, is refused.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint32]
Shorts = NDArray[np.uint16]
Longer = NDArray[np.uint64]
Doubles = NDArray[np.float64]

def count_scores(
    block: Floats,
    lows: Floats,
    scales: Floats,
    fewest: Bits,
    spans: Bits,
    starts: Longs,
    columns: Ints,
    explicit: Floats,
    waiting: Shorts,
    n_waiting: Ints,
    counts: Ints,
    /,
) -> int:
    """Add implicit scores to ``counts`` [class, bin], bin 0 excepted.

    Codes of the last ones still wait, ``n_waiting`` [strip] of STRIP classes each, in ``waiting``
    [strip * WAITING], until :func:`count_last` is called. Counts that have not been added to yet
    may be negative.
    The scores of explicit labels, which are ``columns[starts[row]:starts[row + 1]]``, go into
    ``explicit``, parallel to ``columns``. Returns the first row with a score that is not valid
    (``fewest`` and ``spans`` are those of :func:`earmark.scores.keys.valid_bits`), or -1.
    """

def count_last(waiting: Shorts, n_waiting: Ints, counts: Ints, /) -> None:
    """Add to ``counts`` the scores that wait; none waits afterwards."""

def pick_scores(
    block: Floats,
    lows: Floats,
    scales: Floats,
    hot: Bits,
    starts: Longs,
    explicit: Ints,
    columns: Ints,
    keys: Longs,
    first_row: int,
    /,
) -> int:
    """Write class and key of the implicit scores in hot bins, NaN excepted; return how many.

    ``hot`` [class, N_BINS / 32] holds a bit for each bin, the lowest first; explicit labels are
    ``explicit[starts[row]:starts[row + 1]]``;
    ``columns`` and ``keys`` have a place for every score.
    """

def limit_vectors(n_lanes: int, /) -> int:
    """Have loops written by hand for vectors of more lanes not be used; return what held before.

    There are some for 16 and for 8 lanes; 1 leaves none. Vectors that the compiler makes stay. For
    tests: the results are the same.
    """

def squeeze_codes(codes: Ints, out: Ints, /) -> int:
    """Write the codes that are not 0, one after another, and return how many.

    ``out`` has 16 places more than there are codes. It is a step of the loops above.
    """

def place_keys(columns: Ints, keys: Longs, cursors: Longs, ends: Longs, out: Longs, /) -> None:
    """Move keys to the places of their class: from ``cursors[class]``, which advances.

    What comes at ``ends[class]`` or beyond is dropped.
    """

def find_fingerprints(block: Floats, columns: Ints, factors: Longer, out: Longer, /) -> bool:
    """Write the fingerprint of every clip; tell whether any score of the block is not finite.

    A fingerprint is mixed from the bits of the scores in ``columns``, times ``factors``.
    """

def fill_clues(
    scores: Floats,
    table: Floats,
    raised: Floats,
    facts: Floats,
    together: Floats,
    positive_starts: Longs,
    positives: Ints,
    ancestor_starts: Longs,
    ancestors: Ints,
    descendant_starts: Longs,
    descendants: Ints,
    sibling_starts: Longs,
    siblings: Ints,
    child_starts: Longs,
    children: Ints,
    parent_starts: Longs,
    parents: Ints,
    out: Floats,
    /,
) -> None:
    """Fill ``out`` [clip, class, clue] with all clues or the first (earmark.flags.chances.clues).

    ``table`` [class, bin] is the first clue in the middle of bins, ``raised`` where a class below
    is labelled; ``facts`` [6, class] are begin and inverse width of the bins, mean and inverse sd
    of implicit scores, mean of positives and the prior's logarithm; ``together`` is [class, class]
    or empty. Of equal scores the class that comes first has the better rank.
    """

def add_chances(
    scores: Floats,
    log_odds: Floats,
    starts: Longs,
    explicit: Ints,
    counts: Ints,
    n_expected: Doubles,
    doubt: Doubles,
    state: Longs,
    rows: Longs,
    columns: Ints,
    logits: Floats,
    kept_odds: Floats,
    first_row: int,
    lowest: float,
    per_step: float,
    /,
) -> None:
    """Add implicit labels with finite log-odds to what is known of their classes.

    To ``counts`` [class, step], which begins at ``lowest`` and whose outer steps take what lies
    beyond; their chances to ``n_expected`` [class], and chance * (1 - chance) to ``doubt`` [class].
    Explicit labels are ``explicit[starts[row]:starts[row + 1]]``: their log-odds become NaN. The
    labels of the step ``state[0]`` and higher ones are kept in the last four arrays, of which
    ``state[1]`` places are taken; where these do not suffice, that step rises. ``per_step`` is a
    power of 2, and ``lowest`` a whole number of steps, so that no label is put into a wrong one.
    """

def look_at_odds(
    labelled: Doubles,
    implicit: Doubles,
    scores: Doubles,
    parameters: Doubles,
    likelihood: Doubles,
    gradient: Doubles,
    information: Doubles,
    /,
) -> None:
    """Write what counts and scores [class, bin] tell at parameters (a, b, log r) [class, 3].

    The log ``likelihood`` [class], its ``gradient`` [class, 3] and Fisher's ``information``
    [class, 3, 3]; the model is that of :mod:`earmark.flags.chances.labelled_odds`.
    """

def fit_mixture(
    counts: Doubles,
    weights: Doubles,
    alike: Doubles,
    basis: Doubles,
    shape: Doubles,
    depth: Doubles,
    centre: Doubles,
    precision: Doubles,
    parameters: Doubles,
    objective: Doubles,
    information: Doubles,
    n_steps: int,
    converged: float,
    is_together: bool,
    /,
) -> None:
    """Bring ``parameters`` [class, parameter] to their most probable by steps of Newton's.

    A class takes steps until one gains less than ``converged`` in its log posterior; together, all
    classes take as many as the one that takes most.
    What is given is a :class:`earmark.flags.mixture.Mixture`. Writes ``objective`` [class] and
    ``information`` [class, parameter, parameter] there.
    """

def keep_labels(
    scores: Floats,
    rows: Longs,
    is_open: NDArray[np.bool_],
    edges: Floats,
    is_kept: NDArray[np.bool_],
    /,
) -> None:
    """Write masks [student, clip, class]: false where a label is open and scored above its edge.

    The clips are ``rows`` of the scores; ``is_open`` is theirs [clip, class], ``edges`` are
    [student, class]. It is the complement of :func:`earmark.losses.ignored`.
    """

def spread_labels(
    starts: Longs,
    columns: Ints,
    is_present: NDArray[np.bool_],
    rows: Longs,
    target: Floats,
    is_implicit: NDArray[np.bool_],
    /,
) -> None:
    """Write what labels ask of the clips ``rows`` [clip, class], and which of them nobody gave.

    Clip i has the labels ``columns[starts[i]:starts[i + 1]]``, and of these ``is_present`` says
    which ask for 1; all others ask for 0.
    """
