"""Batches of acks against a model of the broker, which closes the channel for an unknown tag."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.amqp.acks import AckBatch


class Book:
    def __init__(self, count: int) -> None:
        self.out = set(range(1, count + 1))

    def ack(self, tag: int, multiple: bool) -> set[int]:
        assert tag in self.out, "an unknown delivery tag"
        told = {each for each in self.out if each <= tag} if multiple else {tag}
        self.out -= told
        return told


@given(
    order=st.permutations(range(1, 25)),
    rejected=st.sets(st.integers(1, 24)),
    turns=st.lists(st.integers(1, 6), min_size=24, max_size=24),
)
def test_exactly_what_was_settled_is_told_and_once(
    order: list[int], rejected: set[int], turns: list[int]
) -> None:
    acks, book = AckBatch(), Book(24)
    settled: set[int] = set()
    for turn in turns:
        now, order = order[:turn], order[turn:]
        for tag in now:
            if tag in rejected:
                book.ack(tag, False)
                acks.mark_rejected(tag)
            else:
                settled.add(tag)
                acks.settle(tag)
        for tag, multiple in acks.take_acks():
            told = book.ack(tag, multiple)
            assert told <= settled
            settled -= told
        assert not settled
    assert not book.out
    assert acks.settled_upto == 24


def test_what_is_settled_in_order_takes_one_ack() -> None:
    acks = AckBatch()
    for tag in (1, 3, 2):
        acks.settle(tag)
    assert acks.take_acks() == [(3, True)]
    acks.settle(4)
    assert acks.take_acks() == [(4, False)]
    assert acks.take_acks() == []
