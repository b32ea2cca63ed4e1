"""People listen to flags: what they are asked, what they answer, and what follows from it.

``queues`` draws the items to judge, at once or while people answer; ``judgements`` stores
answers, which are only ever added to, and ``judgement_files`` exchanges them with other tools. From
answers come the precision of flags (``flag_precision``), the chance that a label is missing
(``answers``), corrected labels (``relabel``) and how good raters are (``raters``); ``scope`` says
which labels are the flags.
``selections`` exchanges where classes are heard. ``peaks`` finds where to listen, and
``class_card`` tells what a class is. ``server`` is the page on which people listen.

Only ``server`` knows of the web, and nothing here draws or trains.
"""

from earmark.review.answers import HeardLabels, read_heard
from earmark.review.flag_precision import (
    Agreement,
    agreement,
    controls,
    precision_table,
    without_failed_blocks,
)
from earmark.review.judgement_files import (
    NAMESPACE,
    read_judgements,
    read_label_studio_answers,
    write_judgements,
    write_label_studio_tasks,
)
from earmark.review.judgements import Judgement, JudgementStore
from earmark.review.peaks import with_places
from earmark.review.queues.candidates import NoChances
from earmark.review.queues.drawn import Mode
from earmark.review.queues.gains import Gains, find_gains
from earmark.review.queues.heard import heard_of, learn_from
from earmark.review.queues.live import LiveQueue
from earmark.review.queues.measuring import make_queue
from earmark.review.queues.population import Population, find_population
from earmark.review.queues.promise import advise_change
from earmark.review.queues.queue import GROWING, Queue, block_plan, item_id
from earmark.review.queues.scripted import answer_from_truth
from earmark.review.queues.stored import (
    is_drawn_from,
    open_drawn,
    params_of,
    read_population,
    read_queue,
    write_population,
    write_queue,
)
from earmark.review.raters import WeighedRaters, adjudication_queue, weigh_answers
from earmark.review.relabel import relabel, without_cleared, write_relabelled
from earmark.review.scope import Scope, flags_asked
from earmark.review.selections import (
    SELECTION_FORMATS,
    SelectionFormat,
    export_selections,
    import_selections,
    selection_format,
)

__all__ = [
    "GROWING",
    "NAMESPACE",
    "SELECTION_FORMATS",
    "Agreement",
    "Gains",
    "HeardLabels",
    "Judgement",
    "JudgementStore",
    "LiveQueue",
    "Mode",
    "NoChances",
    "Population",
    "Queue",
    "Scope",
    "SelectionFormat",
    "WeighedRaters",
    "adjudication_queue",
    "advise_change",
    "agreement",
    "answer_from_truth",
    "block_plan",
    "controls",
    "export_selections",
    "find_gains",
    "find_population",
    "flags_asked",
    "heard_of",
    "import_selections",
    "is_drawn_from",
    "item_id",
    "learn_from",
    "make_queue",
    "open_drawn",
    "params_of",
    "precision_table",
    "read_heard",
    "read_judgements",
    "read_label_studio_answers",
    "read_population",
    "read_queue",
    "relabel",
    "selection_format",
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
