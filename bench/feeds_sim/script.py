"""What a seed decides before anything happens: who takes part, on what medium, and what goes wrong when.

A world lives through four times:

    0 … BEGIN seconds    archives begin, and agree on a view: what is published before is nobody's to keep
    … TROUBLE seconds    messages are published, and everything fails that may
    … QUIET seconds      nothing fails, whoever is to be alive is; what was begun comes to its end
    … the end            some publishers publish once more, and everybody must get it
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import TypeAlias

import msgspec

from recado.simulator.network import Weather

from .history import Policy

BEGIN = 2.2
TROUBLE = 17.0
QUIET = 13.0
END = 17.0
"""How long the quiet and the last messages may take, behind the trouble."""

PATIENCE = 8.0
"""Longer than anybody is away, shorter than the quiet: what nobody has by then is nowhere."""

ARCHIVES = ("a1", "a2", "a3")


class Kind(Enum):
    """Of medium."""

    ETHER = "ether"
    """Datagrams, no broker."""
    RECADO = "recado"
    """A broker all of whose queues see one order."""
    RABBIT = "rabbit"
    """A broker whose queues may see different orders of two publishers."""


class Crash(msgspec.Struct, frozen=True):
    """Of a publisher, a subscriber or an archive; it is back after `down` seconds."""

    name: str
    down: float


class Blackout(msgspec.Struct, frozen=True):
    """All archives crash at once; they are back after `down` seconds, one after the other."""

    down: float


class Leave(msgspec.Struct, frozen=True):
    """In order; it is back after `down` seconds."""

    name: str
    down: float


class Stall(msgspec.Struct, frozen=True):
    """It does nothing for a while, as a program that waits for memory or a debugger."""

    name: str
    seconds: float


class Slow(msgspec.Struct, frozen=True):
    """Whatever it sends or gets takes so many times as long."""

    name: str
    times: float
    seconds: float


class Cut(msgspec.Struct, frozen=True):
    """Ways on which nothing gets through, until all ways are mended."""

    ways: tuple[tuple[str, str], ...]
    seconds: float


class Storm(msgspec.Struct, frozen=True):
    weather: Weather
    seconds: float


class CutOff(msgspec.Struct, frozen=True):
    """From the broker: a connection breaks."""

    name: str
    seconds: float


class Outage(msgspec.Struct, frozen=True):
    """Of the broker, which loses live queues."""

    seconds: float


Fault: TypeAlias = Crash | Blackout | Leave | Stall | Slow | Cut | Storm | CutOff | Outage


class Script(msgspec.Struct, frozen=True):
    seed: int
    kind: Kind
    total: bool
    uniform: bool
    counted: bool
    """Whether members know how many archives there are, other than from their view."""
    packet: int
    """The largest packet of the medium."""
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    policies: dict[str, Policy]
    """What each subscriber asks for when it returns."""
    slow_readers: tuple[str, ...]
    """Subscribers whose applications take their time."""
    absent: tuple[str, ...]
    """Subscribers that are down in the end."""
    silent: tuple[str, ...]
    """Publishers that publish nothing in the end."""
    disk: float
    """How long an archive's disk takes to sync, at most but for a few times."""
    weather: Weather
    faults: tuple[tuple[float, Fault], ...]
    """With their times."""

    @property
    def members(self) -> tuple[str, ...]:
        return (*ARCHIVES, *self.subscribers)


def draw(seed: int) -> Script:
    random = Random(f"{seed} script")
    kind = random.choice((Kind.ETHER, Kind.ETHER, Kind.RECADO, Kind.RABBIT))
    publishers = tuple(f"p{n}" for n in range(1, random.randint(2, 4)))
    subscribers = tuple(f"s{n}" for n in range(1, random.randint(2, 5)))
    policies = (Policy.VECTOR, Policy.PESSIMISTIC, Policy.ARCHIVE, Policy.NONE)
    weather = Weather()
    if kind is Kind.ETHER:
        loss = random.choice((0.0, 0.02, 0.1))
        weather = Weather(loss=loss, duplication=loss / 2, straying=random.choice((0.0, 0.1)))
    count = random.randint(1, 7)
    moments = sorted(random.uniform(BEGIN + 0.5, TROUBLE - 2.0) for _ in range(count))
    return Script(
        seed,
        kind,
        total=random.random() < 0.25,
        uniform=random.random() < 0.3,
        counted=random.random() < 0.5,
        packet=random.choice((400, 1400, 1 << 20)),
        publishers=publishers,
        subscribers=subscribers,
        policies={name: random.choice(policies) for name in subscribers},
        slow_readers=tuple(name for name in subscribers if random.random() < 0.3),
        absent=tuple(name for name in subscribers[1:] if random.random() < 0.3),
        silent=tuple(name for name in publishers if random.random() < 0.5),
        disk=random.choice((0.005, 0.02, 0.4)),
        weather=weather,
        faults=tuple((moment, _fault(random, kind, publishers, subscribers)) for moment in moments),
    )


def _fault(
    random: Random, kind: Kind, publishers: tuple[str, ...], subscribers: tuple[str, ...]
) -> Fault:
    everybody = (*ARCHIVES, *publishers, *subscribers)
    crashing = random.choice((subscribers, subscribers, ARCHIVES, publishers))
    name = random.choice(crashing)
    down = random.choice((0.05, 0.5, 2.0, 4.0, 6.0)) * random.uniform(0.8, 1.2)
    match random.randrange(10):
        case 0 | 1 | 2:
            return Crash(name, down)
        case 9:
            return Blackout(down / 2)
        case 3:
            return Leave(random.choice((*subscribers, *ARCHIVES)), down)
        case 4:
            return Stall(random.choice(everybody), random.choice((0.3, 1.0, 3.0, 5.0)))
        case 5:
            return Slow(random.choice(everybody), random.choice((10.0, 100.0)), down)
        case _:
            pass
    if kind is not Kind.ETHER:
        if random.random() < 0.3:
            return Outage(random.choice((0.1, 1.0, 3.0)))
        return CutOff(random.choice(everybody), down)
    if random.random() < 0.3:
        loss = random.choice((0.2, 0.4))
        return Storm(Weather((0.001, 0.05), loss, 0.2, 0.3, 0.3), min(down, 4.0))
    return Cut(_ways(random, everybody), down)


def _ways(random: Random, everybody: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """One group from the others, in both directions or one."""
    group = random.sample(everybody, random.randint(1, len(everybody) - 1))
    others = [name for name in everybody if name not in group]
    there = [(one, other) for one in group for other in others]
    if random.random() < 0.3:
        return tuple(there)
    return (*there, *((other, one) for one, other in there))
