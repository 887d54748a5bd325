"""Unconfirmed publishes across connections, compared with a list of numbers (CUP1, CUP2, CUP3)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recado.client.unconfirmed_publishes import UnconfirmedPublishes


class Connections(RuleBasedStateMachine):
    """The broker is a list: `wire` has the sequence numbers of the messages sent on the current channel."""

    def __init__(self) -> None:
        super().__init__()
        self.outstanding = UnconfirmedPublishes()
        self.published = 0
        self.confirmed: set[int] = set()
        self.wire: list[int] = []
        self.answered: set[int] = set()  # the present channel's numbers
        self.connected = True

    def _body(self, number: int) -> bytes:
        return b"%d" % number

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        bodies = [self._body(self.published + 1 + i) for i in range(count)]
        batch = self.outstanding.add("x", "k", bodies, b"\0\0", False)
        numbers = range(batch.first_number, batch.end_number)
        assert numbers == range(self.published + 1, self.published + 1 + count)
        self.published += count
        if self.connected:
            self.outstanding.mark_sent()
            self.wire += numbers

    @precondition(lambda self: self.connected)
    @rule()
    def lose(self) -> None:
        self.connected = False

    @precondition(lambda self: not self.connected)
    @rule()
    def restore(self) -> None:
        self.connected = True
        self.wire, self.answered = [], set()
        self.outstanding.start_channel()
        while self.outstanding.has_unsent:
            for batch in self.outstanding.take_unsent():
                numbers = range(batch.first_number, batch.end_number)
                assert list(batch.bodies) == [self._body(number) for number in numbers]
                self.wire += numbers
        missing = set(range(1, self.published + 1)) - self.confirmed
        assert self.wire == sorted(missing)

    @precondition(lambda self: self.connected and self.wire)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(1, len(self.wire)))
        count = data.draw(st.integers(1, len(self.wire) - first + 1))
        numbers = set(range(first, first + count)) - self.answered
        told = []
        for number in sorted(numbers):  # a session tells each once, in ranges; here one by one
            told += self.outstanding.settle(range(number, number + 1))
        self.answered |= numbers
        own = [each for some in told for each in some]
        assert own == [self.wire[number - 1] for number in sorted(numbers)]
        assert not self.confirmed.intersection(own)
        self.confirmed.update(own)

    @precondition(lambda self: self.connected and self.wire)
    @rule(data=st.data())
    def confirm_upto(self, data: st.DataObject) -> None:
        """All that was not answered, as one range where it is one."""
        last = data.draw(st.integers(1, len(self.wire)))
        first = max(self.answered, default=0) + 1
        if first <= last:
            told = self.outstanding.settle(range(first, last + 1))
            own = [each for some in told for each in some]
            assert own == self.wire[first - 1 : last]
            self.answered.update(range(first, last + 1))
            self.confirmed.update(own)

    @invariant()
    def numbers_are_right(self) -> None:
        assert self.outstanding.confirms.unconfirmed_count == self.published - len(self.confirmed)
        if len(self.confirmed) == self.published:
            assert self.outstanding.memory_bytes == 0
        else:
            assert self.outstanding.memory_bytes > 0


TestConnections = Connections.TestCase
TestConnections.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
