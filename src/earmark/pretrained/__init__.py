"""Networks that others trained, and what they hear in clips.

Here live the catalogue of teachers that earmark knows by name, the readers of others' weights, one
interface for every network (:class:`~earmark.pretrained.network.PretrainedNetwork`), the pass over
a workspace's sounds that keeps what a network hears, and the map from its classes to a dataset's.
How a probe learns from what was heard is the business of :mod:`earmark.training`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
