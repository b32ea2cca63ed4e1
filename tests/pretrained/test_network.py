"""A network is opened by its kind, and only that kind's libraries are loaded."""

from __future__ import annotations

import pytest

from earmark.errors import EarmarkError
from earmark.pretrained.network import open_network
from earmark.runs import PretrainedParams


def test_a_network_of_no_known_kind_is_refused_by_name() -> None:
    with pytest.raises(EarmarkError, match=r"weights\.xyz: no network of a kind"):
        open_network(PretrainedParams(network="weights.xyz"))
