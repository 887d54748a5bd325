"""A broker in the simulated world, with the connections to it, and the behaviour of a client that is cut off.

The queue of a node exists while its connection does; the queue of an archive on P is durable and has its name.
The order within a queue is preserved, and so is that of the packets of one node. With `one_order` all queues
see one order, as on recado; without it packets of two nodes may arrive in different orders in two queues, as on
RabbitMQ.

When a connection breaks, the packets in flight on it are lost, and so is the queue of the node. When the broker
restarts all connections break, and unconfirmed packets are lost from a durable queue or not, each separately. A
client that reconnects sends unconfirmed packets again; packets that it sent on A meanwhile are lost.

A broker that is stopped (SIGSTOP) loses nothing: packets wait in its sockets, also those of clients that fail
meanwhile, and are routed when it runs again. Clients that connect wait as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import msgspec

from recado.simulator.network import NetworkConditions, SimulatedNetwork
from recado.simulator.schedule import Schedule

from .media import UNTAGGED, Address, Listener

BROKER = "broker"
ROUTING = NetworkConditions(delay=(0.0001, 0.004), ordered=True)
SAFE_AFTER = 0.010
"""Longer than it takes to route."""


class Letter(msgspec.Struct, eq=False):
    sender: Address
    on_a: bool
    to: str
    packet: bytes
    number: int = 0
    safe_at: float = 0.0


class Parcel(msgspec.Struct):
    """A packet on its way to a node. One with a tag is redelivered until it is settled."""

    tag: int
    letter: Letter


class Receipt(msgspec.Struct):
    upto: int


Wired: TypeAlias = Letter | Parcel | Receipt


class Client:
    """The connection of one node, and packets that wait for the next one."""

    def __init__(self, node: Address) -> None:
        self.node = node
        self.connection = 0  # none
        self.unconfirmed: deque[Letter] = deque()
        self.unsettled: deque[tuple[int, Letter]] = deque()
        self.tags = 0
        self.coordinates = False


class Post:
    def __init__(
        self, schedule: Schedule, random: Random, listener: Listener, *, one_order: bool
    ) -> None:
        self._schedule = schedule
        self._random = random
        self._listener = listener
        self._one_order = one_order
        self._connections = 0
        self._clients: dict[str, Client] = {}
        self._queues: dict[str, deque[Letter]] = {}
        """The packets in the durable queue of each archive while it has no connection."""
        wires = NetworkConditions(delay=(0.0005, 0.006), ordered=True)
        self.wires = SimulatedNetwork[tuple[int, Wired]](schedule, random, self._wired, wires)
        self._routes = SimulatedNetwork[Letter](schedule, random, self._enqueue, ROUTING)
        self.is_down = False
        self._stopped_until = 0.0
        self._waiting: deque[Callable[[], None]] = deque()
        """The deferred actions of the stopped broker."""

    # ── as a medium ───────────────────────────────────────────────────────────────────────────────

    def join(self, node: Address) -> None:
        self._clients[node.text] = Client(node)
        if node.is_archive:
            self._queues.setdefault(node.name, deque())
        self.connect(node)

    def drop(self, node: Address) -> None:
        self.cut_off(node)
        del self._clients[node.text]

    def cast(self, node: Address, packet: bytes, number: int) -> None:
        letter = Letter(node, False, "", packet, number)
        client = self._clients[node.text]
        if number:
            client.unconfirmed.append(letter)
        self._mail(client, letter)

    def send(self, node: Address, to: str, packet: bytes) -> None:
        self._mail(self._clients[node.text], Letter(node, True, to, packet))

    def listen(self, node: Address, *, to_coordinators: bool) -> None:
        self._clients[node.text].coordinates = to_coordinators

    def settle(self, node: Address, upto: int) -> None:
        """As if the broker knew at once: a late ack would only cause a redelivery."""
        unsettled = self._clients[node.text].unsettled
        while unsettled and unsettled[0][0] <= upto:
            unsettled.popleft()

    def calm(self) -> None:
        self.wires.conditions = NetworkConditions(delay=(0.0005, 0.006), ordered=True)
        for client in self._clients.values():
            self.wires.slow_down(client.node.text, 1.0)
        self.resume()
        if self.is_down:
            self.restart()
        for client in self._clients.values():
            if not client.connection:
                self.connect(client.node)

    # ── connections ───────────────────────────────────────────────────────────────────────────────

    def connect(self, node: Address) -> None:
        client = self._clients.get(node.text)
        if client is None or client.connection or self.is_down:
            return
        if self._is_stopped:
            self._waiting.append(lambda: self.connect(node))
            return
        self._connections += 1
        client.connection = self._connections
        if client.unconfirmed:
            self._listener.cast_again(node)
        for letter in client.unconfirmed:
            self._mail(client, letter)
        if node.is_archive:
            queued = self._queues[node.name]
            while queued:
                self._deliver_tagged(client, queued.popleft())

    def cut_off(self, node: Address) -> None:
        client = self._clients.get(node.text)
        if client is None or not client.connection:
            return
        client.connection = 0
        if node.is_archive:
            queued = self._queues[node.name]
            queued.extendleft(letter for _, letter in reversed(client.unsettled))
            client.unsettled.clear()

    def stop(self, seconds: float) -> None:
        self._stopped_until = max(self._stopped_until, self._schedule.now + seconds)
        self._schedule.call_at(self._stopped_until, self._resume_if_due)

    def resume(self) -> None:
        self._stopped_until = 0.0
        while self._waiting:
            self._waiting.popleft()()

    def _resume_if_due(self) -> None:
        if self._stopped_until <= self._schedule.now:
            self.resume()

    @property
    def _is_stopped(self) -> bool:
        return self._stopped_until > self._schedule.now

    def crash(self) -> None:
        self.is_down = True
        self._waiting.clear()
        self._stopped_until = 0.0
        for client in self._clients.values():
            self.cut_off(client.node)
        now = self._schedule.now
        for name, queued in self._queues.items():
            self._queues[name] = deque(
                letter for letter in queued if letter.safe_at <= now or self._random.random() < 0.5
            )

    def restart(self) -> None:
        self.is_down = False

    # ── letters ───────────────────────────────────────────────────────────────────────────────────

    def _mail(self, client: Client, letter: Letter) -> None:
        if client.connection:
            self.wires.send(client.node.text, BROKER, (client.connection, letter))

    def _wired(self, source: str, target: str, packet: tuple[int, Wired]) -> None:
        connection, content = packet
        client = self._clients.get(source if target == BROKER else target)
        if client is None or client.connection != connection:
            return
        match content:
            case Letter():
                self._accept(client, content)
            case Parcel(tag, letter):
                self._listener.arrived(client.node, letter.on_a, letter.sender, letter.packet, tag)
            case Receipt(number):
                while client.unconfirmed and client.unconfirmed[0].number <= number:
                    client.unconfirmed.popleft()
                self._listener.confirmed(client.node, number)

    def _accept(self, client: Client, letter: Letter) -> None:
        if self._is_stopped:
            self._waiting.append(lambda: self._accept(client, letter))
            return
        safe_at = self._schedule.now + SAFE_AFTER
        accepted = msgspec.structs.replace(letter, safe_at=safe_at)
        way = BROKER if self._one_order else client.node.text
        for each in self._clients.values():
            node = each.node
            if letter.on_a:
                hears = node.hears(letter.to, coordinates=each.coordinates)
            else:
                hears = node.is_member and not node.is_archive
            if hears:
                self._routes.send(way, node.text, accepted)
        if not letter.on_a:
            for name in self._queues:
                self._routes.send(way, name, accepted)
        if letter.number:
            self._schedule.call_at(safe_at, self._confirm, client, client.connection, letter.number)

    def _confirm(self, client: Client, connection: int, number: int) -> None:
        if self._is_stopped:
            self._waiting.append(lambda: self._confirm(client, connection, number))
            return
        self.wires.send(BROKER, client.node.text, (connection, Receipt(number)))

    def _enqueue(self, source: str, queue: str, letter: Letter) -> None:
        if self._is_stopped:
            self._waiting.append(lambda: self._enqueue(source, queue, letter))
            return
        if queue not in self._queues:
            client = self._clients.get(queue)
            if client is not None and client.connection:
                self._deliver(client, letter, UNTAGGED)
            return
        if self.is_down and self._random.random() < 0.5:
            return  # not confirmed yet
        owners = [each for each in self._clients.values() if each.node.name == queue]
        if owners and owners[0].connection:
            self._deliver_tagged(owners[0], letter)
        else:
            self._queues[queue].append(letter)

    def _deliver_tagged(self, client: Client, letter: Letter) -> None:
        client.tags += 1
        client.unsettled.append((client.tags, letter))
        self._deliver(client, letter, client.tags)

    def _deliver(self, client: Client, letter: Letter, tag: int) -> None:
        self.wires.send(BROKER, client.node.text, (client.connection, Parcel(tag, letter)))
