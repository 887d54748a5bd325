"""Random texts: each is parsed or refused with a position, quickly."""

from __future__ import annotations

from bench.selector.texts import Texts, try_one

COUNT = 3_000


def test_nothing_escapes() -> None:
    texts = Texts(20_261_116)
    outcomes = [try_one(texts.make()) for _ in range(COUNT)]
    faults = [outcome for outcome in outcomes if outcome.fault is not None]
    assert not faults
    understood = sum(outcome.understood for outcome in outcomes)
    assert COUNT * 0.1 < understood < COUNT * 0.9  # else it would be no test of both
