"""People judge flags by ear: what they are asked, what they answer, and what follows from it.

``queue`` is the queue of a review: it is drawn at once (``random_queue``) or block by block from
``candidates`` while people answer; ``queue_items`` is its table and ``queue_files`` keeps it in the
workspace. ``judgements`` stores answers, which are only ever added to, and ``judgement_files``
exchanges them with other tools. From answers come the precision of flags (``precision``), the
number of missing labels and a forecast (``estimates``), what p_missing learns from (``answers``),
corrected labels (``relabel``) and how good raters are (``raters``). ``selections`` exchanges where
classes are heard. ``peaks`` finds where to listen, and ``class_card`` describes a class. ``server``
is the page on which people listen.

Only ``server`` knows of the web, and nothing here draws or trains.
"""

from earmark.review.answers import HeardLabels, estimate_from_answers, read_heard
from earmark.review.candidates import (
    RARE_POWER,
    Candidates,
    LabelSelection,
    NoChances,
    Population,
    find_candidates,
    find_population,
    next_by_class,
    next_by_clip,
    turns_due,
)
from earmark.review.class_card import Card, Cards
from earmark.review.estimates import (
    Gains,
    JudgedLabels,
    advise_change,
    estimate,
    find_gains,
    forecast_yield,
    judged_labels,
    learn_from,
)
from earmark.review.judgement_files import (
    read_judgements,
    read_label_studio_answers,
    write_judgements,
    write_label_studio_tasks,
)
from earmark.review.judgements import (
    ADJUDICATED,
    ANSWERS,
    JUDGEMENT_SCHEMA,
    Answer,
    Conflict,
    Judgement,
    JudgementStore,
    combine_votes,
    store_refusal,
)
from earmark.review.peaks import Peaks, find_peaks, with_places
from earmark.review.precision import (
    CELL,
    Agreement,
    Scope,
    agreement,
    controls,
    curve,
    flags_asked,
    precision_table,
    tally,
    without_failed_blocks,
)
from earmark.review.queue import N_CLIPS, N_OFFERS, ReviewQueue, answer_from_truth, deal_blocks
from earmark.review.queue_files import (
    is_drawn_from,
    open_drawn,
    params_of,
    read_population,
    read_queue,
    write_population,
    write_queue,
)
from earmark.review.queue_items import (
    CONTROLS,
    GROWING,
    QUEUE_SCHEMA,
    DrawnBlock,
    DrawnBlocks,
    Mode,
    QueueSnapshot,
    block_plan,
    item_id,
)
from earmark.review.random_queue import Orders, draw, make_queue, ranks
from earmark.review.raters import WeighedRaters, adjudication_queue, weigh_answers
from earmark.review.relabel import relabel, without_cleared, write_relabelled
from earmark.review.selections import (
    SELECTION_FORMATS,
    SelectionFormat,
    SoundFiles,
    export_selections,
    import_selections,
    selection_format,
)

__all__ = [
    "ADJUDICATED",
    "ANSWERS",
    "CELL",
    "CONTROLS",
    "GROWING",
    "JUDGEMENT_SCHEMA",
    "N_CLIPS",
    "N_OFFERS",
    "QUEUE_SCHEMA",
    "RARE_POWER",
    "SELECTION_FORMATS",
    "Agreement",
    "Answer",
    "Candidates",
    "Card",
    "Cards",
    "Conflict",
    "DrawnBlock",
    "DrawnBlocks",
    "Gains",
    "HeardLabels",
    "JudgedLabels",
    "Judgement",
    "JudgementStore",
    "LabelSelection",
    "Mode",
    "NoChances",
    "Orders",
    "Peaks",
    "Population",
    "QueueSnapshot",
    "ReviewQueue",
    "Scope",
    "SelectionFormat",
    "SoundFiles",
    "WeighedRaters",
    "adjudication_queue",
    "advise_change",
    "agreement",
    "answer_from_truth",
    "block_plan",
    "combine_votes",
    "controls",
    "curve",
    "deal_blocks",
    "draw",
    "estimate",
    "estimate_from_answers",
    "export_selections",
    "find_candidates",
    "find_gains",
    "find_peaks",
    "find_population",
    "flags_asked",
    "forecast_yield",
    "import_selections",
    "is_drawn_from",
    "item_id",
    "judged_labels",
    "learn_from",
    "make_queue",
    "next_by_class",
    "next_by_clip",
    "open_drawn",
    "params_of",
    "precision_table",
    "ranks",
    "read_heard",
    "read_judgements",
    "read_label_studio_answers",
    "read_population",
    "read_queue",
    "relabel",
    "selection_format",
    "store_refusal",
    "tally",
    "turns_due",
    "weigh_answers",
    "with_places",
    "without_cleared",
    "without_failed_blocks",
    "write_judgements",
    "write_label_studio_tasks",
    "write_population",
    "write_queue",
    "write_relabelled",
]
