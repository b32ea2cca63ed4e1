"""What raters are asked: queues to measure with, and queues that learn and find.

``queue`` is what all have in common, and ``stored`` reads and writes them. ``measuring`` draws a
random sample of every class and band at once, in the orders of ``strata``. A queue that grows is
drawn by ``live`` from a ``population``: its ``candidates`` by chance, and a random sample of all
labels, in ``portions`` that are kept as they were ``drawn``. What was ``heard`` teaches chances,
the sample's answers are ``estimates`` of all labels, and ``gains`` says what it found.
"""
