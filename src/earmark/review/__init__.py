"""People listen to flags: what they are asked, what they answer, and what follows from it.

``queue`` draws the items to judge, in the random orders of ``strata``; ``judgements`` stores
answers, which are only ever added to, and ``judgement_files`` exchanges them with other tools. From
answers come the precision of flags (``flag_precision``), the chance that a label is missing
(``answers``) and corrected labels (``relabel``); ``scope`` says which labels are the flags.
``peaks`` finds where to listen, and
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
from earmark.review.queue import (
    Queue,
    block_plan,
    is_drawn_from,
    item_id,
    make_queue,
    read_queue,
    write_queue,
)
from earmark.review.relabel import relabel, without_cleared, write_relabelled
from earmark.review.scope import Scope, flags_asked

__all__ = [
    "NAMESPACE",
    "Agreement",
    "HeardLabels",
    "Judgement",
    "JudgementStore",
    "Queue",
    "Scope",
    "agreement",
    "block_plan",
    "controls",
    "flags_asked",
    "is_drawn_from",
    "item_id",
    "make_queue",
    "precision_table",
    "read_heard",
    "read_judgements",
    "read_label_studio_answers",
    "read_queue",
    "relabel",
    "without_cleared",
    "without_failed_blocks",
    "write_judgements",
    "write_label_studio_tasks",
    "write_queue",
    "write_relabelled",
]
