"""Datasets whose truth is known, because they are made here.

``scenes`` mixes events into clips, ``sound_sources`` has a function for the sound of each class,
``waveforms`` what these are built of, and ``hiding`` takes labels away as nomination does. The
truth is kept to judge by, never to train on.
"""
