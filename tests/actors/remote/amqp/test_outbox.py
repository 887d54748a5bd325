"""The outbox against a list that is obviously right: nothing is lost, doubled or out of order."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recado.actors.remote.amqp.outbox import WEIGHT, Entry, Outbox, Sent
from recado.actors.remote.amqp.parcel import MOST, TOGETHER
from recado.actors.remote.transport import Full

LIMIT = 3 * MOST
KEYS = ("key", "other")


class Outboxes(RuleBasedStateMachine):
    """What is owed, in order, and which of it is out in which message."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(LIMIT)
        self.owed: list[Entry] = []
        self.out: dict[int, Sent] = {}
        self.last = 0
        self.made = 0

    @rule(key=st.sampled_from(KEYS), size=st.integers(0, 100) | st.just(MOST // 2))
    def post(self, key: str, size: int) -> None:
        self.made += 1
        entry = (key, b"%30d" % self.made + bytes(size))
        full = sum(len(frame) + WEIGHT for _, frame in [*self.owed, entry]) > LIMIT
        if full:
            with pytest.raises(Full):
                self.outbox.put(*entry)
        else:
            self.outbox.put(*entry)
            self.owed.append(entry)

    @precondition(lambda self: self.outbox.waits)
    @rule()
    def publish(self) -> None:
        sent = self.outbox.next()
        alike = [entry for entry in self.waiting() if entry[0] == sent.key]
        assert sent.entries() == alike[: sent.frames]
        assert len(sent.body) <= MOST
        assert sent.frames <= TOGETHER
        if sent.frames < min(len(alike), TOGETHER):  # there was no room for the next
            assert len(sent.body) + len(alike[sent.frames][1]) + 10 > MOST
        self.last += 1
        self.outbox.out(self.last, sent)
        self.out[self.last] = sent

    @rule(upto=st.integers(0, 30), count=st.integers(1, 5))
    def settle(self, upto: int, count: int) -> None:
        """Also numbers that are none of ours."""
        numbers = range(upto, upto + count)
        expected = [self.out[number] for number in numbers if number in self.out]
        assert self.outbox.settled(numbers) == expected
        for number in numbers:
            self.forget(number)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.out)))
        sent = self.out[number]
        assert self.outbox.returned(sent.key, sent.body) == (number, sent)
        assert self.outbox.returned(sent.key, sent.body) is None
        self.forget(number)

    def waiting(self) -> list[Entry]:
        out = [entry for sent in self.out.values() for entry in sent.entries()]
        return [entry for entry in self.owed if entry not in out]

    def forget(self, number: int) -> None:
        if number in self.out:
            for entry in self.out.pop(number).entries():
                self.owed.remove(entry)

    @rule()
    def lose(self) -> None:
        self.outbox.lost()
        self.out.clear()
        self.last = 0  # the next channel counts anew

    @invariant()
    def keeps_its_word(self) -> None:
        self.outbox.check()
        assert self.outbox.is_empty is not bool(self.owed)
        assert self.outbox.waits == len(self.waiting())

    def teardown(self) -> None:
        dropped = self.outbox.drop()
        assert len(dropped) == len(self.owed)
        for key in KEYS:  # those of a key in their order
            of_key = [entry for entry in self.owed if entry[0] == key]
            assert [entry for entry in dropped if entry[0] == key] == of_key
        assert self.outbox.is_empty


TestOutboxes = Outboxes.TestCase


def test_there_is_room_again_when_half_of_it_is_gone() -> None:
    outbox = Outbox(4 * WEIGHT)
    for number in range(1, 5):
        outbox.put("key", b"")
        outbox.out(number, outbox.next())
    assert not outbox.has_room
    outbox.settled(range(1, 2))
    assert not outbox.has_room
    outbox.settled(range(2, 3))
    assert outbox.has_room
