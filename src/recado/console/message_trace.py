"""Traces: the paths of chosen messages through exchanges, queues, dead letters and consumers.

An operator starts a trace for a vhost and a limited time, for messages with a certain id or that match a selector.
A message is chosen when it is published. From then on the trace follows it by its positions in queues, and by the
payload objects with which it enters the next ones (see `recado.broker.message_observer`), so that messages without an
id can be followed, too.

Work and memory of a trace are limited:

TRC1  At most `MESSAGES_MAX_COUNT` messages are kept, with `EVENTS_OF_MESSAGE_MAX_COUNT` events each: a new message
     takes the place of the oldest one, and a new event that of the event in the middle.
TRC2  Messages are examined and chosen only within a budget (see `message_budget`). Others are counted as skipped.
TRC3  A message is followed in at most `LOCATIONS_OF_MESSAGE_MAX_COUNT` queues.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recado.amqp.frames import extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import STORED_MAX_ENTRY_COUNT
from recado.broker.channel import Settlement
from recado.broker.message_observer import MessageObserver

from .message_budget import MessageBudget

if TYPE_CHECKING:
    from recado.broker.consumer import Consumer, PeerConnection
    from recado.broker.message_filter import MessageFilter
    from recado.broker.queue import Queue
    from recado.broker.routing import VhostAccess
    from recado.broker.run import Run

MESSAGES_MAX_COUNT: Final = 500
EVENTS_OF_MESSAGE_MAX_COUNT: Final = 100
LOCATIONS_OF_MESSAGE_MAX_COUNT: Final = 32
LISTED_QUEUES_MAX_COUNT: Final = 20
ENTERING_MAX_COUNT: Final = 256  # messages that may still enter queues
ENTERING_MAX_BYTES: Final = 4 << 20
KEPT_BODY_BYTES: Final = 4_096
KEPT_PROPERTIES_BYTES: Final = 16_384
CHOSEN_IN_WINDOW_MAX_COUNT: Final = 100  # 1,000 in a second


class TraceFilter(msgspec.Struct, frozen=True):
    """Which messages a trace chooses; all conditions must hold, and without any it chooses all messages."""

    message_id: str = ""
    correlation_id: str = ""
    selector: str = ""


class TraceEvent(msgspec.Struct, omit_defaults=True):
    """What happened to a message. Which fields are set depends on `kind`."""

    at: int
    kind: str
    """What the observer is notified of: published, entered, delivered, acknowledged, forwarded, …"""
    exchange: str | None = None
    routing_key: str | None = None
    queue: str | None = None
    offset: int | None = None
    queues: tuple[str, ...] = ()
    """The queues that a published message is routed to; the first of `queue_count`."""
    queue_count: int | None = None
    user: str | None = None
    connection: str | None = None
    channel: int | None = None
    consumer: str | None = None
    """A consumer tag; None for basic.get."""
    redelivered: bool = False
    is_settled: bool = False
    """Delivered without acknowledgement: the message has left the queue."""
    reason: str | None = None


class TracedMessage:
    """A chosen message, and what happened to it."""

    __slots__ = (
        "_locations",
        "body",
        "body_bytes",
        "events",
        "number",
        "omitted_event_count",
        "properties",
        "queues",
    )

    def __init__(self, number: int, properties: Properties, body: bytes, body_bytes: int) -> None:
        """`body` is the first part of a body of `body_bytes` bytes."""
        self.number = number
        self.properties = properties
        self.body = body
        self.body_bytes = body_bytes
        self.events: list[TraceEvent] = []
        self.omitted_event_count = 0
        self.queues: dict[str, None] = {}
        """The names of the queues that it has entered; at most as many as locations."""
        self._locations: list[tuple[Queue, int]] = []

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids by which messages are related: a reply has the correlation id of its request."""
        each = (self.properties.message_id, self.properties.correlation_id)
        return tuple(value for value in each if value)

    def add(self, event: TraceEvent) -> None:
        if len(self.events) >= EVENTS_OF_MESSAGE_MAX_COUNT:
            del self.events[EVENTS_OF_MESSAGE_MAX_COUNT // 2]
            self.omitted_event_count += 1
        self.events.append(event)

    def enter(self, queue: Queue, position: int) -> tuple[Queue, int] | None:
        """Add a location; return the one that is followed no longer (TRC3)."""
        if len(self.queues) < LOCATIONS_OF_MESSAGE_MAX_COUNT:
            self.queues[queue.name] = None
        self._locations.append((queue, position))
        if len(self._locations) <= LOCATIONS_OF_MESSAGE_MAX_COUNT:
            return None
        return self._locations.pop(0)

    @property
    def locations(self) -> Sequence[tuple[Queue, int]]:
        return self._locations


class _Location(msgspec.Struct):
    message: TracedMessage
    is_delivered: bool = False


class Trace(MessageObserver):
    """The observer of one vhost, from its start until it is stopped; what it has found can be read after that."""

    def __init__(
        self,
        filter_: TraceFilter,
        message_filter: MessageFilter | None,
        clock: Callable[[], int],
        name_connection: Callable[[PeerConnection], str],
    ) -> None:
        """`message_filter` is the compiled selector; `clock` returns milliseconds since 1970."""
        self.filter = filter_
        self.forgotten_count = 0
        self.chosen_count = 0
        self.messages: OrderedDict[int, TracedMessage] = OrderedDict()
        self._clock = clock
        self._name_connection = name_connection
        self._needle = _encode_id(filter_.message_id or filter_.correlation_id)
        self._locations: dict[Queue, dict[int, _Location]] = {}
        # By the identity of payloads, which this keeps from being freed.
        self._entering: OrderedDict[int, tuple[bytes, TracedMessage]] = OrderedDict()
        self._entering_bytes = 0
        self._budget = MessageBudget(
            message_filter, CHOSEN_IN_WINDOW_MAX_COUNT, self._has_ids if self._needle else None
        )

    @property
    def skipped_count(self) -> int:
        return self._budget.skipped_count

    def clear_locations(self) -> None:
        """Free the memory that is needed only to follow messages, because the trace was stopped."""
        self._locations.clear()
        self._entering.clear()
        self._entering_bytes = 0

    def find_related(self, message: TracedMessage) -> list[TracedMessage]:
        """Return the messages with an id in common, this one among them, in order."""
        wanted = set(message.ids)
        return [
            each
            for each in self.messages.values()
            if each is message or not wanted.isdisjoint(each.ids)
        ]

    # ── choosing ────────────────────────────────────────────────────────────────────────────────────

    def published(
        self,
        access: VhostAccess,
        connection: PeerConnection,
        channel: int,
        run: Run,
        queues: Sequence[Queue],
    ) -> None:
        at = self._clock()
        for index in self._budget.choose(run, at, MESSAGES_MAX_COUNT):
            payload = run.payloads[index]
            message = self._add_message(run, index)
            message.add(
                TraceEvent(
                    at,
                    "published",
                    exchange=run.origin.exchange,
                    routing_key=run.origin.routing_key,
                    queues=tuple(each.name for each in queues[:LISTED_QUEUES_MAX_COUNT]),
                    queue_count=len(queues),
                    user=access.user.name,
                    connection=self._name_connection(connection),
                    channel=channel,
                )
            )
            self._note_entering(payload, message)

    def _has_ids(self, content: bytes) -> bool:
        encoded = extract_properties(content)
        if self._needle not in encoded:
            return False
        properties = decode_properties(encoded, max_entries=STORED_MAX_ENTRY_COUNT)
        wanted = self.filter
        return (not wanted.message_id or properties.message_id == wanted.message_id) and (
            not wanted.correlation_id or properties.correlation_id == wanted.correlation_id
        )

    def _add_message(self, run: Run, index: int) -> TracedMessage:
        encoded, body, body_bytes = run.read_start(index, KEPT_BODY_BYTES)
        properties = decode_properties(encoded, max_entries=STORED_MAX_ENTRY_COUNT)
        if len(encoded) > KEPT_PROPERTIES_BYTES:
            properties = msgspec.structs.replace(properties, headers=None)
        self.chosen_count += 1
        message = TracedMessage(self.chosen_count, properties, body, body_bytes)
        self.messages[message.number] = message
        if len(self.messages) > MESSAGES_MAX_COUNT:
            _, oldest = self.messages.popitem(last=False)
            self.forgotten_count += 1
            for queue, position in oldest.locations:
                self._forget(queue, position)
        return message

    # ── following ───────────────────────────────────────────────────────────────────────────────────

    def unroutable(self, run: Run, *, returned: bool) -> None:
        for message in self._find_entering(run).values():
            if message.queues:  # an address of direct replies, which does not count as a queue
                continue
            reason = "returned to the publisher" if returned else "dropped"
            message.add(TraceEvent(self._clock(), "unroutable", reason=reason))

    def entered(self, queue: Queue, run: Run) -> None:
        for index, message in self._find_entering(run).items():
            position = run.first_position + index * run.stride
            left = message.enter(queue, position)
            if left is not None:
                self._forget(*left)
            self._locations.setdefault(queue, {})[position] = _Location(message)
            message.add(
                TraceEvent(
                    self._clock(),
                    "entered",
                    exchange=run.origin.exchange,
                    routing_key=run.origin.routing_key,
                    queue=queue.name,
                    offset=position,
                )
            )

    def refused(self, queue: Queue, run: Run) -> None:
        for message in self._find_entering(run).values():
            reason = "the queue is full"
            message.add(TraceEvent(self._clock(), "refused", queue=queue.name, reason=reason))

    def delivered(
        self,
        queue: Queue,
        run: Run,
        connection: PeerConnection,
        consumer: Consumer | None,
        *,
        is_settled: bool,
    ) -> None:
        for position, location in self._find(queue, run, 0, len(run)):
            location.is_delivered = True
            location.message.add(
                TraceEvent(
                    self._clock(),
                    "delivered",
                    queue=queue.name,
                    offset=position,
                    connection=self._name_connection(connection),
                    channel=consumer.channel.number if consumer is not None else None,
                    consumer=consumer.tag if consumer is not None else None,
                    redelivered=run.redelivered,
                    is_settled=is_settled,
                )
            )
            if is_settled:
                self._forget(queue, position)

    def settled(self, queue: Queue, run: Run, low: int, high: int, settlement: Settlement) -> None:
        for position, location in self._find(queue, run, low, high):
            if not location.is_delivered:
                continue
            location.is_delivered = False
            kind = _SETTLED[settlement]
            location.message.add(TraceEvent(self._clock(), kind, queue=queue.name, offset=position))
            if settlement is Settlement.ACK:
                self._forget(queue, position)

    def forwarded(self, queue: Queue, run: Run, reason: str, exchange: str | None) -> None:
        first = run.first_position
        for position, location in self._find(queue, run, 0, len(run)):
            message = location.message
            message.add(
                TraceEvent(
                    self._clock(),
                    "forwarded",
                    exchange=exchange,
                    routing_key=run.origin.routing_key,
                    queue=queue.name,
                    offset=position,
                    reason=reason,
                )
            )
            index = (position - first) // run.stride + run.taken_count
            self._note_entering(run.payloads[index], message)

    def dropped(self, queue: Queue, run: Run, reason: str) -> None:
        for position, location in self._find(queue, run, 0, len(run)):
            location.message.add(
                TraceEvent(
                    self._clock(), "dropped", queue=queue.name, offset=position, reason=reason
                )
            )
            self._forget(queue, position)

    def purged(self, queue: Queue) -> None:
        reason = "the queue was deleted" if queue.deleted else "the queue was purged"
        for position, location in list(self._locations.get(queue, {}).items()):
            if location.is_delivered and not queue.deleted:
                continue
            location.message.add(
                TraceEvent(
                    self._clock(), "purged", queue=queue.name, offset=position, reason=reason
                )
            )
            self._forget(queue, position)

    # ── where messages are ──────────────────────────────────────────────────────────────────────────

    def _note_entering(self, payload: bytes, message: TracedMessage) -> None:
        if len(payload) <= 1:  # Python has one object for all equal ones
            return
        self._entering[id(payload)] = (payload, message)
        self._entering_bytes += len(payload)
        while len(self._entering) > 1 and (
            len(self._entering) > ENTERING_MAX_COUNT or self._entering_bytes > ENTERING_MAX_BYTES
        ):
            _, (forgotten, _) = self._entering.popitem(last=False)
            self._entering_bytes -= len(forgotten)

    def _find_entering(self, run: Run) -> dict[int, TracedMessage]:
        """Return the followed messages of a run that enters a queue, by their indexes."""
        entering = self._entering
        if not entering:
            return {}
        payloads = run.payloads[run.taken_count :] if run.taken_count else run.payloads
        return {
            index: entering[id(payload)][1]
            for index, payload in enumerate(payloads)
            if id(payload) in entering
        }

    def _find(self, queue: Queue, run: Run, low: int, high: int) -> Sequence[tuple[int, _Location]]:
        """Return the followed messages among low..high-1 of a run of a queue, by their positions."""
        locations = self._locations.get(queue)
        if not locations:
            return ()
        first, stride = run.first_position, run.stride
        if high - low <= len(locations):
            positions = range(first + low * stride, first + high * stride, stride)
            return [(each, locations[each]) for each in positions if each in locations]
        found = []
        for position, location in locations.items():
            index, rest = divmod(position - first, stride)
            if rest == 0 and low <= index < high:
                found.append((position, location))
        return sorted(found, key=lambda each: each[0])

    def _forget(self, queue: Queue, position: int) -> None:
        locations = self._locations.get(queue)
        if locations is not None:
            locations.pop(position, None)
            if not locations:
                del self._locations[queue]


_SETTLED: Final = {
    Settlement.ACK: "acknowledged",
    Settlement.REQUEUE: "requeued",
    Settlement.REJECT: "rejected",
}


def _encode_id(text: str) -> bytes:
    """Return an id as properties have it; empty without one."""
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded if encoded else b""


def describe_event(event: TraceEvent) -> dict[str, Any]:
    """Return an event as a JSON object."""
    described: dict[str, Any] = msgspec.to_builtins(event)
    return described
