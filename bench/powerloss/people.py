"""The clients of the broker. Each has a new connection in every incarnation, and does one thing at a time.

Their methods are recorded before they are sent, and their input when it is read. They send nothing while an
answer is pending, so everything in the history was processed.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple, Protocol

from bench.crash import history as h
from bench.crash import message
from bench.crash.history import Message
from bench.crash.topology import Route
from recado.amqp import methods as m
from recado.amqp.events import ContentReceived
from recado.amqp.frames import encode_method_frame, extract_body, extract_properties
from recado.amqp.properties import Properties, decode_properties

from . import history as p
from .client import CHANNEL, Client, publishing
from .history import History
from .node import Node
from .topology import RECEIPTS, Habit, Temper


class Person(Protocol):
    def join(self, node: Node, incarnation: int) -> None:
        """Connect in a new incarnation of the broker."""

    def act(self) -> None:
        """Do something, if it is possible now."""


def size(rng: Random) -> int:
    """Of a body's filling: mostly small, some larger than a segment may be."""
    scale = rng.random()
    return rng.randrange(60) if scale < 0.85 else rng.randrange(700 if scale < 0.99 else 5000)


class Publisher:
    def __init__(self, habit: Habit, history: History, rng: Random) -> None:
        self.routes = habit.routes
        self._habit = habit
        self._history = history
        self._rng = rng
        self._number = 0
        self._transaction = 1
        self._open = 0  # messages of the transaction
        self._waiting: dict[int, Message] = {}
        self._unsure: list[tuple[Message, bytes]] = []
        self._frames: dict[Message, bytes] = {}

    def join(self, node: Node, incarnation: int) -> None:
        self._incarnation = incarnation
        self._client = client = Client(node)
        self._tag = 0
        self._open = 0
        self._transaction += 1
        self._unsure = [(each, self._frames[each]) for each in self._waiting.values()]
        self._waiting.clear()
        if self._habit.transactions:
            client.tell(m.TxSelect())
        else:
            client.tell(m.ConfirmSelect())
        client.on_confirm = self._confirmed
        client.on_return = self._returned

    def act(self) -> None:
        if not self._client.is_free:
            return
        if self._habit.transactions:
            self._transact()
        elif self._habit.has_ids and self._rng.random() < 0.5:
            self._resend()
        else:
            room = self._habit.window - len(self._waiting)
            if room > 0:
                self._send(self._rng.randint(1, max(room // 2, 1)))

    def _send(self, count: int) -> None:
        rng, habit = self._rng, self._habit
        # Half of the time all are equal, so that they form a run.
        alike = rng.random() < 0.5
        route, length = rng.choice(self.routes), size(rng)
        frames = []
        for _ in range(count):
            if not alike:
                route, length = rng.choice(self.routes), size(rng)
            if habit.astray is not None and rng.random() < 0.05:
                frames.append(self._prepare(habit.astray, length))
            else:
                frames.append(self._prepare(route, length))
        self._client.feed(b"".join(frames))

    def _prepare(self, route: Route, length: int) -> bytes:
        """Return the frames of the next message, and record it."""
        rng, habit = self._rng, self._habit
        self._number += 1
        which: Message = (habit.name, self._number)
        priority = rng.randint(0, habit.priorities)
        persistent = rng.random() >= habit.transient
        about = Properties(delivery_mode=2 if persistent else 1, priority=priority or None)
        if habit.longest_delay:
            about.headers = {"x-delay": rng.randrange(habit.longest_delay)}
        if habit.has_ids:
            about.message_id = str(self._number)
        transaction = self._transaction if habit.transactions else None
        self._history.add(
            h.Sent(self._incarnation, which, route.queues, priority, persistent, transaction)
        )
        body = message.make(which, length)
        frames = publishing(route.exchange, route.key, body, about, mandatory=not route.queues)
        if not habit.transactions:
            self._expect(which, frames)
        return frames

    def _expect(self, which: Message, frames: bytes) -> None:
        self._tag += 1
        self._waiting[self._tag] = which
        self._frames[which] = frames

    def _resend(self) -> None:
        """Send a message again that was not confirmed in an earlier incarnation, or any."""
        if self._unsure:
            which, frames = self._unsure.pop(0)
        elif self._frames:
            which = self._rng.choice(list(self._frames))
            frames = self._frames[which]
        else:
            return
        self._history.add(p.Resent(self._incarnation, which))
        self._expect(which, frames)
        self._client.feed(frames)

    def _transact(self) -> None:
        add, rng, name = self._history.add, self._rng, self._habit.name
        choice = rng.random()
        if not self._open or choice < 0.4:
            count = rng.randint(1, self._habit.window)
            self._open += count
            self._send(count)
        elif choice < 0.85:
            number = self._transaction
            add(h.CommitAsked(name, number))
            self._client.ask(m.TxCommit(), lambda _, __: add(h.Committed(name, number)))
            self._next_transaction()
        else:
            add(h.RolledBack(name, self._transaction))
            self._client.tell(m.TxRollback())
            self._next_transaction()

    def _next_transaction(self) -> None:
        self._transaction += 1
        self._open = 0

    def _confirmed(self, tag: int, multiple: bool, kept: bool) -> None:
        tags = [each for each in self._waiting if each <= tag] if multiple else [tag]
        for each in tags:
            told = self._waiting.pop(each)
            self._history.add(h.Confirmed(told) if kept else h.Refused(told))

    def _returned(self, body: bytes) -> None:
        which = message.parse(body)
        damaged = h.Damaged("(returned)", repr(body[:80]))
        self._history.add(damaged if which is None else h.Returned(which))


class Held(NamedTuple):
    tag: int
    message: Message
    redelivered: bool


class Consumer:
    def __init__(
        self, temper: Temper, history: History, rng: Random, label: str | None = None
    ) -> None:
        """`label` is the name of the queue in the history, if it differs."""
        self._temper = temper
        self._queue = label or temper.queue
        self._history = history
        self._rng = rng
        self._times = 0
        self._receipts = 0

    def join(self, node: Node, incarnation: int) -> None:
        self._times += 1
        self._node, self._incarnation = node, incarnation
        self._name = f"{self._temper.name}-{self._times}"
        self._held: list[Held] = []
        self._client = client = Client(node)
        client.on_delivery = self._delivered
        client.on_leave = self._leaves
        temper = self._temper
        if temper.transactions:
            client.tell(m.TxSelect())
        client.tell(m.BasicQos(0, temper.prefetch))
        client.tell(m.BasicConsume(temper.queue, no_ack=temper.automatic))

    def _delivered(self, method: m.BasicDeliver, event: ContentReceived) -> None:
        add, queue, redelivered = self._history.add, self._queue, method.redelivered
        body = extract_body(event.content)
        which = message.parse(body)
        if which is None:
            add(h.Damaged(queue, repr(body[:80])))
            return
        add(h.Delivered(self._incarnation, self._name, queue, which, redelivered))
        if self._temper.automatic:
            add(p.Unmarked(queue, which))
            add(h.Acked(queue, which))
        else:
            self._held.append(Held(method.delivery_tag, which, redelivered))

    def act(self) -> None:
        if not self._client.is_free:
            return
        rng = self._rng
        if rng.random() < self._temper.leaves:
            self._client.leave()
            self.join(self._node, self._incarnation)
        elif len(self._held) >= self._temper.batch or (self._held and rng.random() < 0.3):
            self._settle()

    def _leaves(self) -> None:
        self._history.add(h.Gone(self._incarnation, self._name, self._queue))

    def _settle(self) -> None:
        temper, rng, add, queue = self._temper, self._rng, self._history.add, self._queue
        count = rng.randint(1, len(self._held))
        held, self._held = self._held[:count], self._held[count:]
        acked: list[Held] = []
        frames = []
        for each in held:
            chance = rng.random()
            if chance < temper.rejects:
                add(h.Rejected(queue, each.message))
                frames.append(_nack(each, requeue=False))
            elif chance < temper.rejects + temper.requeues and not each.redelivered:
                add(h.Requeued(queue, each.message))
                frames.append(_nack(each, requeue=True))
            else:
                add(h.Acked(queue, each.message))
                acked.append(each)
        if frames:
            self._client.feed(b"".join(frames))
        if not acked:
            return
        if temper.multiple:
            self._client.ack(acked[-1].tag, multiple=True)
        else:
            self._client.ack(*(each.tag for each in acked))
        if temper.transactions:
            self._commit(tuple(each.message for each in acked))

    def _commit(self, acked: tuple[Message, ...]) -> None:
        """Together with a receipt."""
        self._receipts += 1
        add, number, queue = self._history.add, self._receipts, self._queue
        publisher = f"{self._temper.name}-receipts"
        receipt: Message = (publisher, number)
        add(h.Sent(self._incarnation, receipt, (RECEIPTS,), transaction=number))
        add(p.Receipted(queue, acked, receipt))
        add(h.CommitAsked(publisher, number))

        def answered(_method: m.Method, _body: bytes) -> None:
            add(h.Committed(publisher, number))
            add(h.Kept(queue, acked))

        body = message.make(receipt, 0)
        self._client.feed(publishing("", RECEIPTS, body, Properties(delivery_mode=2)))
        self._client.ask(m.TxCommit(), answered)


def _nack(held: Held, *, requeue: bool) -> bytes:
    return encode_method_frame(CHANNEL, m.BasicNack(held.tag, False, requeue))


class StreamReader:
    """Reads a stream from its beginning, once in each incarnation."""

    def __init__(
        self, stream: str, history: History, rng: Random, label: str | None = None
    ) -> None:
        self._name = stream
        self._stream = label or stream
        self._history = history
        self._rng = rng

    def join(self, node: Node, incarnation: int) -> None:
        self._incarnation = incarnation
        self._tags: list[int] = []
        self._client = client = Client(node)
        client.on_delivery = self._delivered
        client.tell(m.BasicQos(0, 20))
        client.tell(m.BasicConsume(self._name, arguments={"x-stream-offset": "first"}))

    def _delivered(self, method: m.BasicDeliver, event: ContentReceived) -> None:
        content = event.content
        which = message.parse(extract_body(content))
        self._tags.append(method.delivery_tag)
        headers = decode_properties(extract_properties(content)).headers or {}
        offset = headers["x-stream-offset"]
        if which is None or not isinstance(offset, int):
            self._history.add(h.Damaged(self._stream, repr(content[:80])))
        else:
            self._history.add(p.Shown(self._incarnation, self._stream, int(offset), which))

    def act(self) -> None:
        if self._tags and self._rng.random() < 0.7:
            self.make_room()

    def make_room(self) -> bool:
        """Whether there was something to ack."""
        if not self._tags:
            return False
        self._client.ack(self._tags[-1], multiple=True)
        self._tags.clear()
        return True


class Purger:
    def __init__(self, queue: str, history: History, rng: Random) -> None:
        self._queue = queue
        self._history = history
        self._rng = rng

    def join(self, node: Node, incarnation: int) -> None:
        self._client = Client(node)

    def act(self) -> None:
        if self._client.is_free and self._rng.random() < 0.2:
            add, queue = self._history.add, self._queue
            self._client.node.flush_coalesced()
            for client in self._client.node.clients:
                client.hear()  # the consumer keeps its unacked message
            add(p.PurgeAsked(queue))
            self._client.ask(m.QueuePurge(queue), lambda _, __: add(p.Purged(queue)))


class NoteTaker:
    """Has the broker remember a number that grows."""

    NAME = "count"

    def __init__(self, history: History, rng: Random) -> None:
        self._history = history
        self._rng = rng
        self._value = 0
        self._asked: list[tuple[int, int]] = []  # (lsn, value)

    def join(self, node: Node, incarnation: int) -> None:
        self._store = node.store
        self._asked.clear()
        found = self._store.metadata.get(("note", "/", self.NAME))
        self._history.add(p.NoteFound(self.NAME, 0 if found is None else int(found)))

    def act(self) -> None:
        if self._rng.random() < 0.3:
            self._value += 1
            self._history.add(p.Noted(self.NAME, self._value))
            self._store.set_metadata("note", "/", self.NAME, b"%d" % self._value)
            self._asked.append((self._store.lsn, self._value))
            self._store.notify_when_durable(self)

    def on_durable(self) -> None:
        while self._asked and self._asked[0][0] <= self._store.durable_lsn:
            self._history.add(p.NoteKept(self.NAME, self._asked.pop(0)[1]))
