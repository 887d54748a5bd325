"""The outbox against a simple model: nothing is lost, duplicated or out of order."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recado.actors.remote.amqp.frame_batch import BATCH_MAX_BYTES, MAX_BATCH_FRAMES
from recado.actors.remote.amqp.outbox import (
    ENTRY_OVERHEAD_BYTES,
    BridgeOutbox,
    OutboxEntry,
    OutboxMessage,
)
from recado.actors.remote.errors import LimitExceededError

LIMIT = 3 * BATCH_MAX_BYTES
KEYS = ("key", "other")


class Outboxes(RuleBasedStateMachine):
    """The frames that are owed, in order, and the message in which each was published."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = BridgeOutbox(LIMIT)
        self.owed: list[OutboxEntry] = []
        self.out: dict[int, OutboxMessage] = {}
        self.last = 0
        self.made = 0

    @rule(key=st.sampled_from(KEYS), size=st.integers(0, 100) | st.just(BATCH_MAX_BYTES // 2))
    def post(self, key: str, size: int) -> None:
        self.made += 1
        entry = (key, b"%30d" % self.made + bytes(size))
        full = sum(len(frame) + ENTRY_OVERHEAD_BYTES for _, frame in [*self.owed, entry]) > LIMIT
        if full:
            with pytest.raises(LimitExceededError):
                self.outbox.put(*entry)
        else:
            self.outbox.put(*entry)
            self.owed.append(entry)

    @precondition(lambda self: self.outbox.waiting_count)
    @rule()
    def publish(self) -> None:
        sent = self.outbox.next_message()
        alike = [entry for entry in self.waiting() if entry[0] == sent.key]
        assert sent.entries() == alike[: sent.frame_count]
        assert len(sent.body) <= BATCH_MAX_BYTES
        assert sent.frame_count <= MAX_BATCH_FRAMES
        if sent.frame_count < min(len(alike), MAX_BATCH_FRAMES):  # there was no room for the next
            assert len(sent.body) + len(alike[sent.frame_count][1]) + 10 > BATCH_MAX_BYTES
        self.last += 1
        self.outbox.mark_published(self.last, sent)
        self.out[self.last] = sent

    @rule(upto=st.integers(0, 30), count=st.integers(1, 5))
    def settle(self, upto: int, count: int) -> None:
        """Also numbers that are none of ours."""
        numbers = range(upto, upto + count)
        expected = [self.out[number] for number in numbers if number in self.out]
        assert self.outbox.mark_settled(numbers) == expected
        for number in numbers:
            self.forget(number)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.out)))
        sent = self.out[number]
        assert self.outbox.take_returned(sent.key, sent.body) == (number, sent)
        assert self.outbox.take_returned(sent.key, sent.body) is None
        self.forget(number)

    def waiting(self) -> list[OutboxEntry]:
        out = [entry for sent in self.out.values() for entry in sent.entries()]
        return [entry for entry in self.owed if entry not in out]

    def forget(self, number: int) -> None:
        if number in self.out:
            for entry in self.out.pop(number).entries():
                self.owed.remove(entry)

    @rule()
    def lose(self) -> None:
        self.outbox.requeue_published()
        self.out.clear()
        self.last = 0  # the next channel counts anew

    @invariant()
    def keeps_its_word(self) -> None:
        self.outbox.check()
        assert self.outbox.is_empty is not bool(self.owed)
        assert self.outbox.waiting_count == len(self.waiting())

    def teardown(self) -> None:
        dropped = self.outbox.take_all()
        assert len(dropped) == len(self.owed)
        for key in KEYS:  # those of a key in their order
            of_key = [entry for entry in self.owed if entry[0] == key]
            assert [entry for entry in dropped if entry[0] == key] == of_key
        assert self.outbox.is_empty


TestOutboxes = Outboxes.TestCase


def test_there_is_room_again_when_half_of_it_is_gone() -> None:
    outbox = BridgeOutbox(4 * ENTRY_OVERHEAD_BYTES)
    for number in range(1, 5):
        outbox.put("key", b"")
        outbox.mark_published(number, outbox.next_message())
    assert not outbox.has_space
    outbox.mark_settled(range(1, 2))
    assert not outbox.has_space
    outbox.mark_settled(range(2, 3))
    assert outbox.has_space
