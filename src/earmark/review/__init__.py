"""People listen to flags: what they are asked, what they answer, and what follows from it.

``queue`` draws the items to judge, in the random orders of ``strata``; ``judgements`` stores
answers, which are only ever added to, and ``judgement_files`` exchanges them with other tools. From
answers come the precision of flags (``flag_precision``), the chance that a label is missing
(``judged_chance``) and corrected labels (``relabel``). ``peaks`` finds where to listen, and
``class_card`` tells what a class is. ``server`` is the page on which people listen.

Only ``server`` knows of the web, and nothing here draws or trains.
"""
