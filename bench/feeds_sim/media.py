"""The media of a simulated feed: a local network, or a broker on it.

A node has an address, which is new in each of its incarnations. On channel P a packet goes to all, on A to an address,
to "members", to "archives", or to "coordinators": members that have subscribed to that.

Ether   datagrams: each is delayed, lost, duplicated and reordered for each receiver separately. Post    a
broker, in `post.py`.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import msgspec

from recado.simulator.network import NetworkConditions, SimulatedNetwork
from recado.simulator.schedule import Schedule

UNTAGGED = 0


class Address(msgspec.Struct, frozen=True):
    """Of one incarnation of a node. The durable queue of an archive on a broker has its name."""

    text: str
    name: str
    is_member: bool
    is_archive: bool

    def hears(self, to: str, *, coordinates: bool) -> bool:
        match to:
            case "members":
                return self.is_member
            case "coordinators":
                return self.is_member and coordinates
            case "archives":
                return self.is_archive
            case _:
                return self.text == to


class Listener(Protocol):
    def arrived(
        self, node: Address, on_a: bool, sender: Address, packet: bytes, tag: int
    ) -> None: ...

    def confirmed(self, node: Address, upto: int) -> None: ...

    def cast_again(self, node: Address) -> None:
        """All casts of this node that the broker has not confirmed are sent once more."""


class Medium(Protocol):
    def join(self, node: Address) -> None: ...

    def drop(self, node: Address) -> None:
        """It died, or has left."""

    def cast(self, node: Address, packet: bytes, number: int) -> None:
        """Packets with a number above 0 are confirmed."""

    def send(self, node: Address, to: str, packet: bytes) -> None: ...

    def listen(self, node: Address, *, to_coordinators: bool) -> None: ...

    def settle(self, node: Address, upto: int) -> None: ...

    def calm(self) -> None:
        """From now on no faults happen."""


class Datagram(msgspec.Struct, frozen=True):
    sender: Address
    to: str | None
    """None: it was cast, on P."""
    packet: bytes


class Ether:
    """The network identifies nodes by their names: its faults outlast a restart."""

    def __init__(self, schedule: Schedule, random: Random, listener: Listener) -> None:
        self._listener = listener
        self._nodes: dict[str, Address] = {}
        self._coordinators: set[Address] = set()
        self.network = SimulatedNetwork[Datagram](schedule, random, self._arrive)

    def join(self, node: Address) -> None:
        self._nodes[node.name] = node

    def drop(self, node: Address) -> None:
        del self._nodes[node.name]

    def cast(self, node: Address, packet: bytes, number: int) -> None:
        datagram = Datagram(node, None, packet)
        for name in self._nodes:
            self.network.send(node.name, name, datagram)
        if number:
            self._listener.confirmed(node, number)

    def send(self, node: Address, to: str, packet: bytes) -> None:
        datagram = Datagram(node, to, packet)
        for other in self._nodes.values():
            if self._hears(other, to):
                self.network.send(node.name, other.name, datagram)

    def _hears(self, node: Address, to: str) -> bool:
        return node.hears(to, coordinates=node in self._coordinators)

    def listen(self, node: Address, *, to_coordinators: bool) -> None:
        if to_coordinators:
            self._coordinators.add(node)
        else:
            self._coordinators.discard(node)

    def settle(self, node: Address, upto: int) -> None:
        pass

    def calm(self) -> None:
        self.network.heal()
        self.network.conditions = NetworkConditions()
        for name in self._nodes:
            self.network.slow_down(name, 1.0)

    def _arrive(self, _: str, name: str, datagram: Datagram) -> None:
        node = self._nodes.get(name)
        to = datagram.to
        if node is not None and (to is None or self._hears(node, to)):
            on_a = to is not None
            self._listener.arrived(node, on_a, datagram.sender, datagram.packet, UNTAGGED)
