"""A network that delays, loses, duplicates and reorders packets, with one-way partitions and slow nodes.

Nodes are names, and packets are opaque. The source of randomness is an argument. Each packet takes the same
number of random numbers, so a change in the fate of one packet does not change that of later packets.

NW1  A packet arrives never, once or twice, unchanged, and after it was sent.
NW2  On an ordered network, the packets from one node to another arrive in the order of sending.
NW3  Nothing that is sent in a direction while it is cut arrives; the opposite direction is not affected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Generic, TypeVar

from recado.simulator.schedule import Schedule

Packet = TypeVar("Packet")
Direction = tuple[str, str]
"""Source and target node."""


@dataclass(frozen=True)
class NetworkConditions:
    """The properties of the network. Ratios are of all packets, times are in seconds."""

    delay: tuple[float, float] = (0.001, 0.010)
    loss_ratio: float = 0.0
    duplicate_ratio: float = 0.0
    reorder_ratio: float = 0.0
    """The ratio of packets that are delayed further, so that later ones overtake them."""
    reorder_delay: float = 0.1
    ordered: bool = False
    max_delay: float = inf
    """A packet to or from a slow node is lost if its delay would be longer than this."""


class SimulatedNetwork(Generic[Packet]):
    """Delivers packets between named nodes, on a `Schedule`."""

    def __init__(
        self,
        schedule: Schedule,
        random: Random,
        deliver: Callable[[str, str, Packet], object],
        conditions: NetworkConditions | None = None,
    ) -> None:
        """`deliver` is called with source, target and packet when a packet arrives."""
        self.conditions = conditions or NetworkConditions()
        self.sent = self.lost = self.duplicated = self.reordered = 0
        self._schedule = schedule
        self._random = random.random
        self._deliver = deliver
        self._cut: dict[Direction, None] = {}
        self._slow: dict[str, float] = {}
        self._last_arrival: dict[Direction, float] = {}

    def send(self, source: str, target: str, packet: Packet) -> None:
        conditions, draw = self.conditions, self._random
        # Always five draws, so that one more loss does not change the fate of later packets.
        lost, duplicated, reordered, first, second = draw(), draw(), draw(), draw(), draw()
        self.sent += 1
        direction = (source, target)
        if lost < conditions.loss_ratio or direction in self._cut:
            self.lost += 1
            return
        shortest, longest = conditions.delay
        delay = shortest + (longest - shortest) * first
        if reordered < conditions.reorder_ratio:
            self.reordered += 1
            delay += conditions.reorder_delay * second
        self._schedule_arrival(direction, packet, delay)
        if duplicated < conditions.duplicate_ratio:
            self.duplicated += 1
            self._schedule_arrival(direction, packet, shortest + (longest - shortest) * second)

    def _schedule_arrival(self, direction: Direction, packet: Packet, delay: float) -> None:
        if self._slow:
            delay *= self._slow.get(direction[0], 1.0) * self._slow.get(direction[1], 1.0)
            if delay > self.conditions.max_delay:
                self.lost += 1
                return
        arrival = self._schedule.now + delay
        if self.conditions.ordered:
            # The schedule preserves the order of equal times.
            arrival = max(arrival, self._last_arrival.get(direction, 0.0))
            self._last_arrival[direction] = arrival
        self._schedule.call_at(arrival, self._deliver, *direction, packet)

    # ── faults ────────────────────────────────────────────────────────────────────────────────────

    def cut(self, source: str, target: str) -> None:
        """Lose everything that is sent from now on in one direction; packets in flight still arrive."""
        self._cut[source, target] = None

    def heal(self) -> None:
        """End all cuts."""
        self._cut.clear()

    def slow_down(self, node: str, factor: float) -> None:
        """Multiply the delay of all packets to and from a node; a factor of 1 ends that."""
        if factor == 1.0:
            self._slow.pop(node, None)
        else:
            self._slow[node] = factor
