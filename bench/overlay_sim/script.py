"""Everything that a seed determines: the nodes, the network, the faults and what users do."""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import Final

import msgspec

from recado.simulator.network import NetworkConditions

FAULTS_FROM_S: Final = 3.0
HEALED_AT_S: Final = 11.0
CHECKED_AT_S: Final = 17.0
END_S: Final = 22.0


class Crash(msgspec.Struct, frozen=True):
    """Some node crashes, as soon as no range lacks copies because of an earlier one."""

    count: int = 1
    """At once; at most half of K."""
    restart_after: float | None = 1.0
    name: str | None = None
    """Of the node; by default any."""


class Join(msgspec.Struct, frozen=True):
    pass


class Leave(msgspec.Struct, frozen=True):
    pass


class Pause(msgspec.Struct, frozen=True):
    duration: float


class Partition(msgspec.Struct, frozen=True):
    """Some nodes are separated from the others."""

    count: int
    duration: float
    direction: str
    """`both`, `in` or `out`: what is lost, seen from these nodes."""


class Storm(msgspec.Struct, frozen=True):
    """More packets are lost."""

    loss_ratio: float
    duration: float


class Role(Enum):
    SENDER = "sender"
    RECEIVER = "receiver"


class CrashAt(msgspec.Struct, frozen=True):
    """The sender or receiver of the next message of a kind crashes: a step of a hand-over."""

    message: str
    role: Role
    skip: int
    """Let so many of them pass before."""
    restart_after: float | None = 1.0


Fault = Crash | Join | Leave | Pause | Partition | Storm | CrashAt

STEPS: Final = (
    *("Invite", "PullState", "StateChunk", "Canvass", "Willing"),
    *("PrepareBallot", "Promised", "FetchLog", "LogSuffix", "Accept", "Accepted"),
    *("Decided", "Announce", "StateConfirmed", "Append", "Stored"),
    *("Commands", "Answers", "Notify", "Notified"),
)


class Script(msgspec.Struct, frozen=True):
    seed: int
    nodes: int
    replicas: int
    topics: int
    operations: int
    weather: NetworkConditions
    drift: bool
    detects: bool
    """The nodes find out who is alive; otherwise the world tells them, late, which takes less time to simulate."""
    faults: tuple[tuple[float, Fault], ...]


def draw(seed: int) -> Script:
    random = Random(f"overlay {seed}")
    nodes = random.choice((3, 4, 5, 5, 6, 7, 8, 10))
    if seed % 50 == 0:
        nodes = random.randint(20, 60)
    replicas = 4 if nodes >= 6 and random.random() < 0.2 else 2
    return Script(
        seed=seed,
        nodes=nodes,
        replicas=replicas,
        topics=random.randint(4, 10),
        operations=random.randint(60, 130),
        weather=_draw_weather(random),
        drift=random.random() < 0.3,
        detects=seed % 3 == 0,
        faults=_draw_faults(random, nodes, replicas),
    )


def _draw_weather(random: Random) -> NetworkConditions:
    return NetworkConditions(
        delay=(0.001, random.choice((0.004, 0.01, 0.03))),
        loss_ratio=random.choice((0.0, 0.0, 0.02, 0.1)),
        duplicate_ratio=random.choice((0.0, 0.05, 0.2)),
        reorder_ratio=random.choice((0.0, 0.1)),
        reorder_delay=random.choice((0.05, 0.5)),
    )


def _draw_faults(random: Random, nodes: int, replicas: int) -> tuple[tuple[float, Fault], ...]:
    faults: list[tuple[float, Fault]] = []
    for _ in range(random.randint(0, 5)):
        at = random.uniform(FAULTS_FROM_S, HEALED_AT_S - 2.0)
        faults.append((at, _draw_fault(random, nodes, replicas)))
    return tuple(sorted(faults, key=lambda each: each[0]))


def _draw_fault(random: Random, nodes: int, replicas: int) -> Fault:
    restart = random.choice((None, 0.05, 1.0, 2.0))
    match random.randrange(9):
        case 0 | 1:
            return Crash(random.randint(1, replicas // 2), restart)
        case 2:
            return Join()
        case 3:
            return Leave()
        case 4:
            return Pause(random.choice((0.3, 1.0, 3.0)))
        case 5:
            count = random.randint(1, max(1, nodes // 2))
            direction = random.choice(("both", "both", "in", "out"))
            return Partition(count, random.choice((0.5, 2.0, 4.0)), direction)
        case 6:
            return Storm(random.choice((0.2, 0.4)), random.choice((0.5, 2.0)))
        case _:
            role = random.choice(tuple(Role))
            return CrashAt(random.choice(STEPS), role, random.choice((0, 0, 1, 3, 10)), restart)
