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
Way = tuple[str, str]


@dataclass(frozen=True)
class Weather:
    """How the network is today. Shares are of all packets, times in seconds."""

    delay: tuple[float, float] = (0.001, 0.010)
    loss: float = 0.0
    duplication: float = 0.0
    straying: float = 0.0
    """The share that takes a detour, and so comes behind what was sent later."""
    detour: float = 0.1
    ordered: bool = False
    lifetime: float = inf
    """What would be under way for longer, because nodes are slow, is lost."""


class Network(Generic[Packet]):
    def __init__(
        self,
        schedule: Schedule,
        random: Random,
        arrive: Callable[[str, str, Packet], object],
        weather: Weather | None = None,
    ) -> None:
        """`arrive` is called with the sender, the receiver and the packet."""
        self.weather = weather or Weather()
        self.sent = self.lost = self.doubled = self.strayed = 0
        self._schedule = schedule
        self._random = random.random
        self._arrive = arrive
        self._cut: dict[Way, None] = {}
        self._slow: dict[str, float] = {}
        self._last: dict[Way, float] = {}

    def send(self, source: str, target: str, packet: Packet) -> None:
        weather, chance = self.weather, self._random
        lost, doubled, strays, first, second = chance(), chance(), chance(), chance(), chance()
        self.sent += 1
        way = (source, target)
        if lost < weather.loss or way in self._cut:
            self.lost += 1
            return
        shortest, longest = weather.delay
        delay = shortest + (longest - shortest) * first
        if strays < weather.straying:
            self.strayed += 1
            delay += weather.detour * second
        self._carry(way, packet, delay)
        if doubled < weather.duplication:
            self.doubled += 1
            self._carry(way, packet, shortest + (longest - shortest) * second)

    def _carry(self, way: Way, packet: Packet, delay: float) -> None:
        if self._slow:
            delay *= self._slow.get(way[0], 1.0) * self._slow.get(way[1], 1.0)
            if delay > self.weather.lifetime:
                self.lost += 1
                return
        moment = self._schedule.now + delay
        if self.weather.ordered:
            # Of equal moments the schedule keeps the order.
            moment = max(moment, self._last.get(way, 0.0))
            self._last[way] = moment
        self._schedule.at(moment, self._arrive, *way, packet)

    # ── what may be wrong with it ─────────────────────────────────────────────────────────────────

    def cut(self, source: str, target: str) -> None:
        """One way; what is under way already arrives."""
        self._cut[source, target] = None

    def mend(self) -> None:
        """All that was cut."""
        self._cut.clear()

    def slow(self, node: str, times: float) -> None:
        """All that it sends and receives takes so many times as long."""
        if times == 1.0:
            self._slow.pop(node, None)
        else:
            self._slow[node] = times
