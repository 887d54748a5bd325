"""The kinds of fault, with the affected nodes and the duration. `faults` executes them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from recado.simulator.network import Direction, NetworkConditions


class Crash(msgspec.Struct, frozen=True):
    """Of a publisher, a subscriber or an archive; it is back after `down` seconds."""

    name: str
    down: float


class Blackout(msgspec.Struct, frozen=True):
    """All archives crash at the same time; they return after `down` seconds, one after the other."""

    down: float


class Leave(msgspec.Struct, frozen=True):
    """In order; it is back after `down` seconds."""

    name: str
    down: float


class Stall(msgspec.Struct, frozen=True):
    """The program does not run for a while, as one that waits for memory or a debugger."""

    name: str
    seconds: float


class Slow(msgspec.Struct, frozen=True):
    """Its packets take so many times as long, in both directions."""

    name: str
    times: float
    seconds: float


class Cut(msgspec.Struct, frozen=True):
    """Directions in which nothing gets through, until all partitions heal."""

    ways: tuple[Direction, ...]
    seconds: float


class Storm(msgspec.Struct, frozen=True):
    weather: NetworkConditions
    seconds: float


class CutOff(msgspec.Struct, frozen=True):
    """From the broker: a connection breaks."""

    name: str
    seconds: float


class Outage(msgspec.Struct, frozen=True):
    """Of the broker, which loses live queues."""

    seconds: float


class Halt(msgspec.Struct, frozen=True):
    """The broker is stopped (SIGSTOP) and loses nothing: packets are delayed until it runs again."""

    seconds: float


Fault: TypeAlias = Crash | Blackout | Leave | Stall | Slow | Cut | Storm | CutOff | Outage | Halt
