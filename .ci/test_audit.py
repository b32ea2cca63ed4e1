"""What the audit of pinned versions says, with an index that answers from a table."""

from __future__ import annotations

import pytest
from audit import CONSTRAINTS, audit, pins

PINS = [("good", "1.0"), ("bad", "2.0"), ("silent", "3.0")]
KNOWN = {"good": [], "bad": [{"id": "PYSEC-1", "fixed_in": ["2.1"], "link": "https://x"}]}


def test_every_constraint_is_asked_about() -> None:
    text = CONSTRAINTS.read_text()
    assert len(pins(text)) == len([line for line in text.splitlines() if "==" in line]) > 100


def test_a_vulnerable_version_fails_with_what_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(PINS, lambda pin: KNOWN.get(pin[0])) == 1
    told = capsys.readouterr().out
    assert "bad 2.0: PYSEC-1, mended in 2.1" in told
    assert "2 versions asked about, 1 vulnerable" in told
    assert "nothing was said of 1: silent" in told


def test_without_a_network_it_is_skipped_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(PINS, lambda _: None) == 0
    assert "skipped" in capsys.readouterr().out
