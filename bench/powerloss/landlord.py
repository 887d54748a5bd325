"""Clients that declare and delete: the surveyor for all, a landlord whose objects come and go, and a fleet.

The history uses unique names: the third queue `let` is `let#3`. So messages that return from an earlier queue
of the same name are noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from bench.crash import history as h
from bench.crash.topology import Route
from recado.amqp import methods as m
from recado.amqp.values import FieldTable
from recado.broker.broker import Broker
from recado.broker.exchange import Exchange

from . import history as p
from .client import Client
from .history import History
from .node import Node
from .people import Consumer, Publisher
from .topology import STREAM, District, Habit, Temper

Look = Callable[[Broker], bool]


class Thing:
    """Something that is declared."""

    def __init__(self, label: str, look: Look) -> None:
        self.label = label
        self.look = look
        self.there = False

    def survey(self, broker: Broker, history: History) -> None:
        """Find out what exists after a crash."""
        self.there = self.look(broker)
        history.add(h.Found(self.label) if self.there else h.Missed(self.label))


class Surveyor:
    """Declares all missing objects before other clients start."""

    def __init__(self, districts: Iterable[District], history: History) -> None:
        self._history = history
        self._things: list[tuple[Thing, m.Method]] = []
        for district in districts:
            self._add_district(district)

    def _add_district(self, district: District) -> None:
        for exchange in district.exchanges:
            arguments = exchange.arguments or {}
            declare = m.ExchangeDeclare(
                exchange.name, exchange.kind, durable=True, arguments=arguments
            )
            self._add(f"exchange {exchange.name}", _exchange(exchange.name, arguments), declare)
        for queue in district.queues:
            declared = m.QueueDeclare(queue.name, durable=True, arguments=queue.arguments)
            self._add(f"queue {queue.name}", _queue(queue.name, queue.arguments), declared)
        for source, name, key in district.bindings:
            look = _binding(source, name, key)
            self._add(f"binding {source} {name} {key}", look, m.QueueBind(name, source, key))
        for source, target, alone in district.dead_letters():
            self._history.add(h.Lettered(source, target, alone))
        for name in dict.fromkeys(
            (*district.trimmed, *district.unordered, *district.at_least_once)
        ):
            trait = p.Trait(
                name,
                name in district.unordered,
                name in district.at_least_once,
                name in district.trimmed,
            )
            self._history.add(trait)

    def _add(self, label: str, look: Look, declare: m.Method) -> None:
        self._things.append((Thing(label, look), declare))

    def survey(self, node: Node) -> None:
        client = Client(node)
        for thing, _ in self._things:
            thing.survey(node.broker, self._history)
        for thing, declare in self._things:
            if not thing.there:
                _ask(client, self._history, thing, declare, there=True)
                node.commit()
        client.leave()


def _ask(client: Client, history: History, thing: Thing, method: m.Method, *, there: bool) -> None:
    def answered(_method: m.Method, _body: bytes) -> None:
        thing.there = there
        history.add(h.Declared(thing.label) if there else h.Deleted(thing.label))

    history.add(h.Asked(thing.label))
    client.ask(method, answered)


def _queue(name: str, arguments: FieldTable) -> Look:
    def look(broker: Broker) -> bool:
        found = broker.vhosts["/"].queues.get(name)
        return found is not None and found.declared_settings.arguments == arguments

    return look


def _exchange(name: str, arguments: FieldTable) -> Look:
    def look(broker: Broker) -> bool:
        found = broker.vhosts["/"].exchanges.get(name)
        return found is not None and found.declared_settings.arguments == arguments

    return look


def _binding(source: str, name: str, key: str) -> Look:
    def look(broker: Broker) -> bool:
        vhost = broker.vhosts["/"]
        queue = vhost.queues.get(name)
        return queue is not None and any(
            each.source == source and each.routing_key == key and not isinstance(queue, Exchange)
            for each in vhost.bindings_to(queue)
        )

    return look


class Landlord(Publisher):
    """Has a queue, an exchange and a binding between them, which are declared and deleted repeatedly."""

    QUEUE, EXCHANGE, KEY = "let", "let-x", "k"
    KINDS: tuple[FieldTable, ...] = (
        {},
        {"x-queue-type": "quorum"},
        STREAM,
        {"x-max-priority": 3},
    )

    def __init__(self, history: History, rng: Random) -> None:
        super().__init__(Habit("landlord", (), 10, priorities=3), history, rng)
        self._count = 0
        self.queue = self._new_queue({})
        self._exchange = self._new_exchange()
        self._binding = self._new_binding()

    def _next(self, name: str) -> str:
        self._count += 1
        return f"{name}#{self._count}"

    def _new_queue(self, arguments: FieldTable) -> Thing:
        return Thing(self._next("queue let"), _queue(self.QUEUE, arguments))

    def _new_exchange(self) -> Thing:
        return Thing(self._next("exchange let"), _exchange(self.EXCHANGE, {}))

    def _new_binding(self) -> Thing:
        look = _binding(self.EXCHANGE, self.QUEUE, self.KEY)
        return Thing(self._next("binding let"), look)

    @property
    def label(self) -> str:
        return self.queue.label.removeprefix("queue ")

    def join(self, node: Node, incarnation: int) -> None:
        super().join(node, incarnation)
        self.survey(node.broker)

    def survey(self, broker: Broker) -> None:
        for thing in (self.queue, self._exchange, self._binding):
            thing.survey(broker, self._history)

    def act(self) -> None:
        if self._client.is_free:
            self._rng.choice(list(self._possible()))()

    def _possible(self) -> Iterable[Callable[[], None]]:
        if not self._exchange.there:
            yield self._declare_exchange
        elif self._rng.random() < 0.2:
            yield self._delete_exchange
        if not self.queue.there:
            yield self._declare_queue
            return
        yield self._publish
        if self._rng.random() < 0.3:
            yield self._delete_queue
        if self._binding.there:
            yield self._unbind
        elif self._exchange.there:
            yield self._bind

    def _publish(self) -> None:
        self.routes = (Route("", self.QUEUE, (self.label,)),)
        if self._binding.there:
            self.routes += (Route(self.EXCHANGE, self.KEY, (self.label,)),)
        room = self._habit.window - len(self._waiting)
        if room > 0:
            self._send(self._rng.randint(1, room))

    def _declare_queue(self) -> None:
        arguments = self._rng.choice(self.KINDS)
        self.queue = self._new_queue(arguments)
        method = m.QueueDeclare(self.QUEUE, durable=True, arguments=arguments)
        _ask(self._client, self._history, self.queue, method, there=True)

    def _declare_exchange(self) -> None:
        self._exchange = self._new_exchange()
        method = m.ExchangeDeclare(self.EXCHANGE, "direct", durable=True)
        _ask(self._client, self._history, self._exchange, method, there=True)

    def _bind(self) -> None:
        self._binding = self._new_binding()
        method = m.QueueBind(self.QUEUE, self.EXCHANGE, self.KEY)
        _ask(self._client, self._history, self._binding, method, there=True)

    def _unbind(self) -> None:
        method = m.QueueUnbind(self.QUEUE, self.EXCHANGE, self.KEY)
        _ask(self._client, self._history, self._binding, method, there=False)

    def _delete_queue(self) -> None:
        self._delete(self.queue, m.QueueDelete(self.QUEUE))

    def _delete_exchange(self) -> None:
        self._delete(self._exchange, m.ExchangeDelete(self.EXCHANGE))

    def _delete(self, thing: Thing, method: m.Method) -> None:
        """The binding is deleted with either of its ends."""
        binding = self._binding
        if not binding.there:
            _ask(self._client, self._history, thing, method, there=False)
            return
        add = self._history.add

        def answered(_method: m.Method, _body: bytes) -> None:
            thing.there = binding.there = False
            add(h.Deleted(thing.label))
            add(h.Deleted(binding.label))

        add(h.Asked(thing.label))
        add(h.Asked(binding.label))
        self._client.ask(method, answered)


class Fleet:
    """A queue that is not durable: its messages may be on disk, but do not outlast the process."""

    QUEUE = "fleet"

    def __init__(self, history: History, rng: Random) -> None:
        self._history = history
        self._rng = rng
        self._thing = Thing("queue fleet#0", _queue(self.QUEUE, {}))
        self._publisher = Publisher(Habit("fleet", (), 15, transient=0.3), history, rng)

    def join(self, node: Node, incarnation: int) -> None:
        self._thing.survey(node.broker, self._history)
        label = f"{self.QUEUE}#{incarnation}"
        self._thing.label = f"queue {label}"
        client = Client(node)
        _ask(client, self._history, self._thing, m.QueueDeclare(self.QUEUE), there=True)
        self._publisher.routes = (Route("", self.QUEUE, (label,)),)
        self._publisher.join(node, incarnation)
        temper = Temper(f"admiral-{incarnation}", self.QUEUE, requeues=0.1)
        self._consumer = Consumer(temper, self._history, self._rng, label)
        self._consumer.join(node, incarnation)

    def act(self) -> None:
        (self._publisher if self._rng.random() < 0.6 else self._consumer).act()

    def died(self) -> None:
        """The process ended, and the queue with it."""
        if self._thing.there:
            self._thing.there = False
            self._history.add(h.Deleted(self._thing.label))
