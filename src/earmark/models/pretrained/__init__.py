"""Pretrained networks: the catalogue of named teachers, readers of weights, inference, class maps.

Every network is a :class:`~earmark.models.pretrained.PretrainedNetwork`. ``embedding`` runs one
over a workspace's clips and stores embeddings and outputs; ``class_maps`` matches its classes with
the dataset's. Probes on embeddings are trained in :mod:`earmark.training`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
