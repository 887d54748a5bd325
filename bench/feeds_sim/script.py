"""Everything that a seed determines in advance: the members, the medium, and the faults.

A world has four phases:

    0 … BEGIN seconds    archives start, and agree on a view: earlier messages need not be archived
    … TROUBLE seconds    messages are published, and faults happen
    … QUIET seconds      no faults; all programs that are to run do, and finish what they have started
    … the end            some publishers publish once more, and all subscribers must get it
"""

from __future__ import annotations

from enum import Enum
from random import Random

import msgspec

from recado.simulator.network import Direction, NetworkConditions

from . import plots
from .company import ARCHIVES, Company
from .fault import (
    Blackout,
    Crash,
    Cut,
    CutOff,
    Fault,
    Halt,
    Leave,
    Outage,
    Slow,
    Stall,
    Storm,
)
from .history import Policy
from .plots import Plot, Troubles

BEGIN = 2.2
TROUBLE = 17.0
QUIET = 13.0
END = 21.0
"""How long the quiet phase and the last messages may take: an archive settles the last view up to 10 s after
the faults, and compares its records with others up to ten heartbeats later."""

PLOTTED = 0.25
"""The share of worlds with a combination of faults (plots.py)."""

STALLED = 0.06
"""The share of worlds in total order without faults, except that programs are stopped for long."""

PATIENCE = 8.0
"""Longer than any program is down or any packet in flight, shorter than the quiet phase: a message that no
member has by then is lost."""
LIFETIME = 6.0
"""Of a datagram."""


class Kind(Enum):
    """Of medium."""

    ETHER = "ether"
    """Datagrams, no broker."""
    RECADO = "recado"
    """A broker all of whose queues see one order."""
    RABBIT = "rabbit"
    """A broker whose queues may see different orders of two publishers."""


class Script(msgspec.Struct, frozen=True):
    seed: int
    kind: Kind
    total: bool
    uniform: bool
    counted: bool
    """Whether members know the number of archives, other than from their view."""
    packet: int
    """The largest packet of the medium."""
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    policies: dict[str, Policy]
    """The recovery policy of each subscriber."""
    slow_readers: tuple[str, ...]
    """Subscribers with slow applications."""
    absent: tuple[str, ...]
    """Subscribers that are down in the end."""
    silent: tuple[str, ...]
    """Publishers that publish nothing at the end."""
    disk: float
    """The usual maximum of how long the disk of an archive takes to sync."""
    weather: NetworkConditions
    faults: Troubles

    @property
    def members(self) -> tuple[str, ...]:
        return (*ARCHIVES, *self.subscribers)


def draw(seed: int, plot: Plot | None = None) -> Script:
    """`plot`: has the faults of this world, instead of those that the seed chooses."""
    random = Random(f"{seed} script")
    kind = random.choice((Kind.ETHER, Kind.ETHER, Kind.RECADO, Kind.RABBIT))
    publishers = tuple(f"p{n}" for n in range(1, random.randint(2, 4)))
    subscribers = tuple(f"s{n}" for n in range(1, random.randint(2, 5)))
    company = Company(publishers, subscribers)
    policies = (Policy.VECTOR, Policy.PESSIMISTIC, Policy.ARCHIVE, Policy.NONE)
    weather = NetworkConditions()
    if kind is Kind.ETHER:
        loss = random.choice((0.0, 0.02, 0.1))
        strays = random.choice((0.0, 0.1))
        weather = NetworkConditions(
            loss_ratio=loss, duplicate_ratio=loss / 2, reorder_ratio=strays, max_delay=LIFETIME
        )
    count = random.randint(1, 7)
    moments = sorted(random.uniform(BEGIN + 0.5, TROUBLE - 2.0) for _ in range(count))
    stalls = _stalls(seed, company)
    plotted = plot(Random(f"{seed} plot"), company) if plot is not None else ()
    return Script(
        seed,
        kind,
        total=random.random() < 0.25 or bool(stalls),
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
        faults=plotted
        or stalls
        or _plot(seed, kind, company)
        or tuple((moment, _fault(random, kind, company)) for moment in moments),
    )


def suits(plot: Plot, kind: Kind) -> bool:
    """Whether the faults of this plot can befall the medium."""
    return plot in _plots(kind)


def _plots(kind: Kind) -> tuple[Plot, ...]:
    return plots.WITHOUT_BROKER if kind is Kind.ETHER else plots.WITH_BROKER


def _stalls(seed: int, company: Company) -> Troubles:
    """None, in most worlds."""
    random = Random(f"{seed} stalls")
    return plots.stalls(random, company) if random.random() < STALLED else ()


def _plot(seed: int, kind: Kind, company: Company) -> Troubles:
    """None, in most worlds."""
    random = Random(f"{seed} plot")
    if random.random() >= PLOTTED:
        return ()
    return random.choice(_plots(kind))(random, company)


def _fault(random: Random, kind: Kind, company: Company) -> Fault:
    subscribers, everybody = company.subscribers, company.everybody
    crashing = random.choice((subscribers, subscribers, ARCHIVES, company.publishers))
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
        share = random.random()
        if share < 0.2:
            return Outage(random.choice((0.1, 1.0, 3.0)))
        if share < 0.3:
            return Halt(random.choice((2.0, 4.0, 10.0)))
        return CutOff(random.choice(everybody), down)
    if random.random() < 0.3:
        loss = random.choice((0.2, 0.4))
        weather = NetworkConditions((0.001, 0.05), loss, 0.2, 0.3, 0.3, max_delay=LIFETIME)
        return Storm(weather, min(down, 4.0))
    return Cut(_ways(random, everybody), down)


def _ways(random: Random, everybody: tuple[str, ...]) -> tuple[Direction, ...]:
    """One group from the others, in both directions or one."""
    group = random.sample(everybody, random.randint(1, len(everybody) - 1))
    others = [name for name in everybody if name not in group]
    if random.random() < 0.3:
        return tuple((one, other) for one in group for other in others)
    return plots.apart(group, others)
