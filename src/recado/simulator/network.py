"""A network that delays, loses, doubles and reorders what is sent, is cut in one direction, and has slow nodes.

It knows nodes by their names and nothing of what they send. Chance comes in; each packet takes the same number
of draws whatever becomes of it, so that one more loss does not change the fate of all that follows.

N1  A packet arrives never, once or twice, unchanged, and after it was sent.
N2  On an ordered network, what arrives on one way (from one node to another) arrives in the order of sending.
N3  Nothing that is sent on a way while it is cut arrives; the way back is another way.
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


@dataclass(frozen=True)
class NetworkConditions:
    """How the network is today. Shares are of all packets, times in seconds."""

    delay: tuple[float, float] = (0.001, 0.010)
    loss_ratio: float = 0.0
    duplicate_ratio: float = 0.0
    reorder_ratio: float = 0.0
    """The share that takes a detour, and so comes behind what was sent later."""
    reorder_delay: float = 0.1
    ordered: bool = False
    max_delay: float = inf
    """What would be under way for longer, because nodes are slow, is lost."""


class SimulatedNetwork(Generic[Packet]):
    def __init__(
        self,
        schedule: Schedule,
        random: Random,
        deliver: Callable[[str, str, Packet], object],
        conditions: NetworkConditions | None = None,
    ) -> None:
        """`arrive` is called with the sender, the receiver and the packet."""
        self.conditions = conditions or NetworkConditions()
        self.sent = self.lost = self.duplicated = self.reordered = 0
        self._schedule = schedule
        self._random = random.random
        self._deliver = deliver
        self._cut: dict[Direction, None] = {}
        self._slow: dict[str, float] = {}
        self._last_arrival: dict[Direction, float] = {}

    def send(self, source: str, target: str, packet: Packet) -> None:
        weather, chance = self.conditions, self._random
        lost, doubled, strays, first, second = chance(), chance(), chance(), chance(), chance()
        self.sent += 1
        way = (source, target)
        if lost < weather.loss_ratio or way in self._cut:
            self.lost += 1
            return
        shortest, longest = weather.delay
        delay = shortest + (longest - shortest) * first
        if strays < weather.reorder_ratio:
            self.reordered += 1
            delay += weather.reorder_delay * second
        self._schedule_arrival(way, packet, delay)
        if doubled < weather.duplicate_ratio:
            self.duplicated += 1
            self._schedule_arrival(way, packet, shortest + (longest - shortest) * second)

    def _schedule_arrival(self, way: Direction, packet: Packet, delay: float) -> None:
        if self._slow:
            delay *= self._slow.get(way[0], 1.0) * self._slow.get(way[1], 1.0)
            if delay > self.conditions.max_delay:
                self.lost += 1
                return
        moment = self._schedule.now + delay
        if self.conditions.ordered:
            # Of equal moments the schedule keeps the order.
            moment = max(moment, self._last_arrival.get(way, 0.0))
            self._last_arrival[way] = moment
        self._schedule.call_at(moment, self._deliver, *way, packet)

    # ── what may be wrong with it ─────────────────────────────────────────────────────────────────

    def cut(self, source: str, target: str) -> None:
        """One way; what is under way already arrives."""
        self._cut[source, target] = None

    def heal(self) -> None:
        """All that was cut."""
        self._cut.clear()

    def slow_down(self, node: str, factor: float) -> None:
        """All that it sends and receives takes so many times as long."""
        if factor == 1.0:
            self._slow.pop(node, None)
        else:
            self._slow[node] = factor
