"""Simulated datasets whose complete labels are known.

``scenes`` mixes the synthetic sounds of ``sound_sources`` into clips, ``mixtures`` mixes recorded
sounds, and ``hiding`` removes labels in the way AudioSet's nomination did. The complete labels
are used for evaluation only, never for training.
"""
