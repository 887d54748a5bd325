"""A stream in any order of commands, against a list of bodies: BS1 to BS4 after each."""

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.checks import StreamOffset

from .stage import GUEST, Peer, close_channel, run_of
from .stores import PagingStore
from .test_stream import deliveries, new_stream, reader


class Reading:
    """A consumer and its expected messages."""

    def __init__(self, channel: Channel, peer: Peer, prefetch: int, begins: int) -> None:
        self.channel = channel
        self.peer = peer
        self.prefetch = prefetch
        self.next = begins
        self.held: list[int] = []  # tags
        self.tag = 0


class StreamMachine(RuleBasedStateMachine):
    """Against a list of bodies, with and without a disk."""

    @initialize(lasting=st.booleans())
    def declare(self, lasting: bool) -> None:
        self.store = PagingStore(1 << 20) if lasting else None
        self.broker = Broker(map(str, count(1)).__next__, store=self.store)
        self.broker.add_user(GUEST)
        self.stream = new_stream(self.broker)
        self.model: list[bytes] = []
        self.safe = 0
        self.readings: list[Reading] = []

    @rule(number=st.integers(1, 6), alike=st.booleans())
    def publish(self, number: int, alike: bool) -> None:
        bodies = [b"%06d" % (len(self.model) + i) for i in range(number)]
        self.stream.publish(run_of(bodies, alike=alike), 0)
        self.model += bodies
        if self.store is None:
            self.safe = len(self.model)

    @rule()
    def sync(self) -> None:
        if self.store is not None:
            self.store.sync()
        self.safe = len(self.model)

    @rule(
        prefetch=st.sampled_from((1, 2, 3, 100)),
        kind=st.sampled_from(("first", "last", "next", "offset")),
        value=st.integers(-1, 30),
    )
    def consume(self, prefetch: int, kind: str, value: int) -> None:
        offset = StreamOffset(kind, value)  # type: ignore[arg-type]
        channel, peer = reader(self.broker, self.stream, offset, prefetch)
        begins = {
            "first": 0,
            "last": max(self.safe - 1, 0),
            "next": len(self.model),
            "offset": max(value, 0),
        }[kind]
        self.readings.append(Reading(channel, peer, prefetch, begins))

    @precondition(lambda self: any(reading.held for reading in self.readings))
    @rule(data=st.data(), how=st.sampled_from(list(Settlement)), multiple=st.booleans())
    def settle(self, data: st.DataObject, how: Settlement, multiple: bool) -> None:
        reading = data.draw(st.sampled_from([each for each in self.readings if each.held]))
        tag = data.draw(st.sampled_from(reading.held))
        reading.channel.settle(how, tag, 0, multiple=multiple)
        reading.held = [
            each for each in reading.held if each > tag or (each < tag and not multiple)
        ]

    @precondition(lambda self: bool(self.readings))
    @rule(data=st.data(), congested=st.booleans())
    def congest(self, data: st.DataObject, congested: bool) -> None:
        reading = data.draw(st.sampled_from(self.readings))
        reading.peer.congested = congested
        if not congested:
            reading.channel.resume(0)

    @precondition(lambda self: bool(self.readings))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        reading = data.draw(st.sampled_from(self.readings))
        self.readings.remove(reading)
        close_channel(reading.channel)

    @invariant()
    def everybody_has_what_is_due(self) -> None:
        for reading in getattr(self, "readings", ()):
            for offset, body in deliveries(reading.peer):
                assert (offset, body) == (reading.next, self.model[offset])
                reading.next += 1
                reading.tag += 1
                reading.held.append(reading.tag)
            assert len(reading.held) <= reading.prefetch
            if not reading.peer.congested:
                assert len(reading.held) == reading.prefetch or reading.next >= self.safe


TestAnyOrder = StreamMachine.TestCase
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=40)
