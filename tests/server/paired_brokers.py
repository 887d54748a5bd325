"""Two brokers that get the same bytes, and the effects to compare.

Confirms may cover several messages and may be anywhere between the other frames of their channel; only a return must
come before the confirm of its message. So they are compared as a separate sequence.
"""

from typing import NamedTuple

from recado.amqp import methods as m
from recado.amqp.events import Acked, ContentReceived, Event, MethodReceived
from recado.amqp.frames import extract_body
from recado.broker.access import Permission, User
from recado.broker.queue import Queue
from recado.server.options import ConnectionOptions
from recado.server.session import SessionState

from . import scenario as s
from .client import Client, new_broker


class Observed(NamedTuple):
    """The methods with contents, and the single confirms, that a client received on one channel."""

    frames: list[tuple[m.Method, bytes | None]]
    confirms: list[tuple[int, bool]]


class Wire:
    """One connection of one of the brokers, with the events that its client received."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._confirmed: dict[int, set[int]] = {}

    def observe(self, tags: dict[tuple[int, bytes], int]) -> dict[int, Observed]:
        """Return the events since the last call; `tags` are the confirms that bodies wait for."""
        seen: dict[int, Observed] = {}
        for event in self.client.received():
            number = getattr(event, "channel", 0)
            observed = seen.setdefault(number, Observed([], []))
            confirmed = self._confirmed.setdefault(number, set())
            confirms = _confirms(event, confirmed)
            if confirms is not None:
                again = [tag for tag, _ in confirms if tag in confirmed]
                assert not again, f"confirmed twice: {again}"
                confirmed.update(tag for tag, _ in confirms)
                observed.confirms.extend(confirms)
                continue
            match event:
                case MethodReceived(_, method):
                    observed.frames.append((method, None))
                    if isinstance(method, m.ChannelOpenOk):
                        confirmed.clear()
                case ContentReceived(_, method, content):
                    if isinstance(method, m.BasicReturn):
                        tag = tags.get((number, extract_body(content)))
                        assert tag not in confirmed, f"{tag} returned after its confirm"
                    observed.frames.append((method, content))
                case _:
                    raise AssertionError(event)
        return seen


def _confirms(event: Event, confirmed: set[int]) -> list[tuple[int, bool]] | None:
    match event:
        case Acked(_, first, count):
            return [(tag, True) for tag in range(first, first + count)]
        case MethodReceived(_, m.BasicAck(last, True)):
            return [(tag, True) for tag in range(1, last + 1) if tag not in confirmed]
        case MethodReceived(_, m.BasicNack(tag, False)):
            return [(tag, False)]
        case _:
            return None


class Talk:
    """What a client knows of a channel, so that most of its commands are valid."""

    def __init__(self) -> None:
        self.outstanding: list[int] = []
        self.closed = False
        self.start_again()

    def start_again(self) -> None:
        self.consumers: list[str] = []
        self.without_acks: set[str] = set()
        self.gets: list[bool] = []
        self.confirming = False
        self.published = 0

    def note(self, method: m.Method) -> None:
        match method:
            case m.BasicDeliver(consumer_tag, tag):
                if consumer_tag not in self.without_acks:
                    self.outstanding.append(tag)
            case m.BasicGetOk(tag):
                if self.gets and not self.gets.pop(0):
                    self.outstanding.append(tag)
            case m.BasicGetEmpty():
                del self.gets[:1]
            case m.ChannelOpenOk():
                self.outstanding.clear()
            case m.ChannelClose() | m.ConnectionClose():
                self.closed = True
            case _:
                pass


class PairedBrokers:
    """The broker that takes messages one at a time, and the one that takes them in runs."""

    def __init__(self, *run_limits: int) -> None:
        """The last broker also coalesces single messages (see `broker/coalescer.py`)."""
        self.now = 1_000_000
        self.brokers = [new_broker() for _ in run_limits]
        self.brokers[-1].coalescer.is_enabled = True
        self.offers = [ConnectionOptions(run_messages_max=limit) for limit in run_limits]
        self.wires: dict[int, list[Wire]] = {}
        self.talks: dict[tuple[int, int], Talk] = {}
        self.held: dict[int, bytes] = {}
        self.tags: dict[int, dict[tuple[int, bytes], int]] = {}
        self._number = 0

    def number(self) -> int:
        self._number += 1
        return self._number

    def connect(self, connection: int) -> None:
        self.wires[connection] = [
            Wire(
                Client(
                    broker,
                    offer,
                    frame_max=s.FRAME_MAX[connection],
                    channels=s.CHANNELS,
                    now=self.now,
                )
            )
            for broker, offer in zip(self.brokers, self.offers, strict=True)
        ]
        for channel in s.CHANNELS:
            self.talks[connection, channel] = Talk()
        self.held[connection] = b""
        self.tags[connection] = {}

    def reconnect(self, connection: int) -> None:
        self._flush_coalescer()  # a closing client is not delivered coalesced messages: see test_coalescer.py
        for wire in self.wires[connection]:
            wire.client.session.terminate(self.now)
        self.connect(connection)

    def permit(self, permission: Permission) -> None:
        for broker in self.brokers:
            broker.add_user(User("guest", permissions={"/": permission}))

    def wait(self, milliseconds: int, *, tick: bool) -> None:
        self.now += milliseconds
        if tick:
            for broker in self.brokers:
                broker.tick(self.now)

    def feed(self, connection: int, data: bytes, sizes: tuple[tuple[int, ...], ...]) -> None:
        for wire, chunks in zip(self.wires[connection], sizes, strict=True):
            wire.client.feed(data, self.now, chunks)

    def compare(self) -> None:
        """At the end of a turn every observable effect is equal, once dead letters that were put off went."""
        self._flush_coalescer()
        while any(broker.deadline() == 0 for broker in self.brokers):
            for broker in self.brokers:
                broker.tick(self.now)
        for connection, wires in self.wires.items():
            one, other = (wire.observe(self.tags[connection]) for wire in wires)
            assert one == other, f"on connection {connection}"
            for channel, observed in one.items():
                for method, _ in observed.frames:
                    for number in s.CHANNELS if channel == 0 else (channel,):
                        self.talks[connection, number].note(method)
        one_state, other_state = ([*map(_state, self.queues(i).values())] for i in (0, 1))
        assert one_state == other_state

    def _flush_coalescer(self) -> None:
        for broker in self.brokers:
            broker.coalescer.flush(self.now)

    def queues(self, which: int = 0) -> dict[str, Queue]:
        return self.brokers[which].vhosts["/"].queues

    def has_ended(self, connection: int) -> bool:
        one, other = (wire.client.session.state for wire in self.wires[connection])
        assert one is other
        return one is not SessionState.OPEN


def _state(queue: Queue) -> tuple[str, int, int, int]:
    return queue.name, queue.ready, queue.unacked, len(queue.consumers)
