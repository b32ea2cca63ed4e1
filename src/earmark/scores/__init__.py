"""What a teacher said: scores [clip, class], as logits.

A *matrix* of scores lies in memory or on disk and is read a few rows at a time; a *file* of scores
is what people have, in any format and on either scale; a *folder* of scores is what ``earmark
score`` writes. They are aligned with labels here, and their order statistics are found, exactly,
in two passes over scores of any size. What scores mean for labels is the room of flags.
"""
