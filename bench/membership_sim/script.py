"""Everything that a seed determines: the nodes, their clocks, and the faults.

Each plot is a combination of faults. After the last fault everything heals, and the network has `QUIET_S` to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec import Struct

START_S: Final = 5.0
"""Until then all nodes have joined; the faults come later."""
QUIET_S: Final = 12.0
SIZES: Final = (2, 3, 4, 5, 8, 8, 13, 13, 24, 40)


# ── faults ────────────────────────────────────────────────────────────────────────────────────────


class Kill(Struct, frozen=True, tag=True):
    at: float
    node: int
    is_reset: bool
    """The process dies and its system resets the connections; otherwise the machine is silent."""


class Restart(Struct, frozen=True, tag=True):
    at: float
    node: int
    incarnation: int


class Stall(Struct, frozen=True, tag=True):
    at: float
    node: int
    until: float


class Lossy(Struct, frozen=True, tag=True):
    """A node loses this share of what it sends, and of what it should receive."""

    at: float
    node: int
    until: float
    ratio: float


class Slow(Struct, frozen=True, tag=True):
    """The loop of a node handles everything late by this time, its timers excepted."""

    at: float
    node: int
    until: float
    delay: float


class LossyLink(Struct, frozen=True, tag=True):
    """Two nodes lose what they send to each other, in one or in both directions."""

    at: float
    nodes: tuple[int, int]
    until: float
    ratio: float
    is_one_way: bool


class Isolate(Struct, frozen=True, tag=True):
    """A node loses all that it sends, all that it should receive, or both."""

    at: float
    node: int
    until: float
    sends: bool
    receives: bool


class Partition(Struct, frozen=True, tag=True):
    at: float
    nodes: frozenset[int]
    """One side."""
    until: float


class Jump(Struct, frozen=True, tag=True):
    """The clock of a node jumps by this time."""

    at: float
    node: int
    by: float


class Leave(Struct, frozen=True, tag=True):
    at: float
    node: int


class JoinLate(Struct, frozen=True, tag=True):
    at: float
    node: int


class Reuse(Struct, frozen=True, tag=True):
    """The node's address is given to a node of another network; it is killed before."""

    at: float
    node: int


class Forge(Struct, frozen=True, tag=True):
    """Packets from a node without the secret, and about nodes that do not exist."""

    at: float
    node: int
    """The node that receives them."""


Fault = (
    Kill
    | Restart
    | Stall
    | Lossy
    | Slow
    | LossyLink
    | Isolate
    | Partition
    | Jump
    | Leave
    | JoinLate
    | Reuse
    | Forge
)


class Script(Struct, frozen=True):
    seed: int
    plot: str
    size: int
    faults: tuple[Fault, ...]
    rates: tuple[float, ...]
    """Of the clocks."""
    end: float

    @property
    def is_calm(self) -> bool:
        """Whether detection times count: only nodes are killed, and the network is sound."""
        return all(isinstance(fault, Kill) for fault in self.faults)


# ── plots ─────────────────────────────────────────────────────────────────────────────────────────

Plot = Callable[[Random, int], list[Fault]]


def silent_crashes(random: Random, size: int) -> list[Fault]:
    return _crashes(random, size, is_reset=False)


def reset_crashes(random: Random, size: int) -> list[Fault]:
    return _crashes(random, size, is_reset=True)


def _crashes(random: Random, size: int, *, is_reset: bool) -> list[Fault]:
    at = START_S + random.random()
    most = max(1, size // random.choice((3, 10, 40)))
    return [Kill(at, node, is_reset) for node in random.sample(range(size), min(most, size - 1))]


def lossy_node(random: Random, size: int) -> list[Fault]:
    return [Lossy(START_S, random.randrange(size), START_S + 12, 0.3)]


def bad_switch(random: Random, size: int) -> list[Fault]:
    """Many nodes that lose most packets, and agree about their healthy peers."""
    ratio = random.choice((0.6, 0.8))
    nodes = random.sample(range(size), max(1, size // 3))
    return [Lossy(START_S, node, START_S + 8, ratio) for node in nodes]


def stalled_nodes(random: Random, size: int) -> list[Fault]:
    faults: list[Fault] = []
    at = START_S
    while at < START_S + 14:
        length = random.choice((0.4, 1.0, 1.3, 2.5, 6.0)) * (0.8 + 0.4 * random.random())
        faults.append(Stall(at, random.randrange(size), at + length))
        at += length + random.uniform(2.6, 3.5)
    return faults


def stuttering_node(random: Random, size: int) -> list[Fault]:
    """Its probes are under way whenever it stalls, and their deadlines are past when it continues."""
    node, at = random.randrange(size), START_S
    faults: list[Fault] = [Slow(START_S, node, START_S + 15, 0.15)]
    while at < START_S + 14:
        until = at + random.uniform(0.6, 0.9)
        faults.append(Stall(at, node, until))
        at = until + random.uniform(0.3, 0.5)
    return faults


def stalled_and_lossy(random: Random, size: int) -> list[Fault]:
    node = random.randrange(size)
    stalls = stalled_nodes(random, size)
    faults: list[Fault] = [
        Stall(each.at, node, each.until) for each in stalls if isinstance(each, Stall)
    ]
    return [Lossy(START_S, node, START_S + 14, 0.3), *faults]


def slow_node(random: Random, size: int) -> list[Fault]:
    return [Slow(START_S, random.randrange(size), START_S + 10, random.choice((0.3, 0.7, 1.5)))]


def lossy_link(random: Random, size: int) -> list[Fault]:
    one, other = random.sample(range(size), 2)
    ratio = random.choice((0.3, 1.0)) if size > 2 else 0.3
    return [LossyLink(START_S, (one, other), START_S + 10, ratio, random.random() < 0.5)]


def one_way(random: Random, size: int) -> list[Fault]:
    sends = random.random() < 0.5
    until = START_S + random.uniform(1, 8)
    return [Isolate(START_S, random.randrange(size), until, sends, not sends)]


def partition(random: Random, size: int) -> list[Fault]:
    side = frozenset(random.sample(range(size), random.randint(1, size - 1)))
    return [Partition(START_S, side, START_S + random.choice((0.9, 1.2, 3.0, 8.0)))]


def restarts(random: Random, size: int) -> list[Fault]:
    faults: list[Fault] = []
    for node in random.sample(range(size), max(1, size // 4)):
        at = START_S + 3 * random.random()
        later = at + random.choice((0.02, 0.3, 1.0, 4.0))
        # Its clock may have been set back.
        incarnation = random.choice((500, 1_000, 2_000))
        faults += [Kill(at, node, random.random() < 0.5), Restart(later, node, incarnation)]
    return faults


def joins_and_leaves(random: Random, size: int) -> list[Fault]:
    faults: list[Fault] = []
    for node in random.sample(range(size), max(1, size // 3)):
        faults.append(Leave(START_S + 4 * random.random(), node))
    if len(faults) == size:
        faults.pop()
    for node in range(size, size + 3):
        faults.append(JoinLate(START_S + 4 * random.random(), node))
    return faults


def clocks(random: Random, size: int) -> list[Fault]:
    return [
        Jump(START_S + 8 * random.random(), random.randrange(size), by)
        for by in random.choices((-3600.0, -3.0, -0.5, 0.7, 3.0, 3600.0), k=8)
    ]


def strangers(random: Random, size: int) -> list[Fault]:
    faults: list[Fault] = [
        Forge(START_S + 4 * random.random(), random.randrange(size)) for _ in range(6)
    ]
    node = random.randrange(1, size)
    return [*faults, Kill(START_S, node, is_reset=True), Reuse(START_S + 0.5, node)]


def mixed(random: Random, size: int) -> list[Fault]:
    """Two plots one after the other, the second with other nodes only by chance."""
    faults: list[Fault] = []
    for plot in random.sample((lossy_node, lossy_link, partition, one_way, clocks), 2):
        faults += plot(random, size)
    return [*faults, *silent_crashes(random, size)] if size > 4 else faults


PLOTS: Final[tuple[Plot, ...]] = (
    silent_crashes,
    silent_crashes,
    reset_crashes,
    reset_crashes,
    lossy_node,
    bad_switch,
    stalled_nodes,
    stuttering_node,
    stalled_and_lossy,
    slow_node,
    lossy_link,
    one_way,
    partition,
    restarts,
    joins_and_leaves,
    clocks,
    strangers,
    mixed,
)


def draw(seed: int, plot: Plot | None = None, size: int | None = None) -> Script:
    random = Random(seed)
    chosen = plot or PLOTS[seed % len(PLOTS)]
    size = size or random.choice(SIZES)
    if chosen is strangers:
        size = max(size, 3)  # of two nodes the stranger would leave one
    if chosen is bad_switch:
        size = max(size, 4)  # of two nodes it could not be said which one is in trouble
    faults = sorted(chosen(random, size), key=lambda fault: fault.at)
    nodes = size + sum(isinstance(fault, JoinLate) for fault in faults)
    rates = tuple(random.choice((1.0, 1.0, 0.98, 1.02)) for _ in range(nodes))
    last = max([getattr(fault, "until", fault.at) for fault in faults], default=START_S)
    return Script(seed, chosen.__name__, size, tuple(faults), rates, last + QUIET_S)
