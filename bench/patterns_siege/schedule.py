"""What is done to which program when: pure, decided by a seed.

A program is killed at a random moment, or at one of the points of its role. The broker is killed at a random moment, or
while a program is held at a point, which then goes on without a connection or is killed too. A program is frozen for
longer than its leases, so that another one takes over, and then goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import Final

import msgspec

from .roles import POINTS, Point

PAUSE_S: Final = (0.05, 0.6)
PASSAGES_MAX_COUNT: Final = {"tasks": 2, "flows": 8, "outbox": 8}  # tasks are rare


class Deed(Enum):
    """What is done."""

    KILL = "kill"
    KILL_AT_POINT = "kill at point"
    KILL_BROKER = "kill broker"
    KILL_BROKER_AT_POINT = "kill broker at point"
    KILL_BOTH_AT_POINT = "kill both at point"
    FREEZE = "freeze"


WEIGHTS: Final = {
    Deed.KILL: 25,
    Deed.KILL_AT_POINT: 50,
    Deed.KILL_BROKER: 8,
    Deed.KILL_BROKER_AT_POINT: 9,
    Deed.KILL_BOTH_AT_POINT: 5,
    Deed.FREEZE: 3,
}
FIRST: Final = (
    (Deed.KILL_AT_POINT, "flows", Point.ACK_LIST),
    (Deed.KILL_AT_POINT, "outbox", Point.SOLD),
    (Deed.KILL_AT_POINT, "tasks", Point.ACK),
    (Deed.KILL_BROKER_AT_POINT, "flows", Point.TRANSACTION),
    (Deed.KILL_AT_POINT, "flows", Point.ACK_ORDER),
    (Deed.KILL_BROKER_AT_POINT, "tasks", Point.BEGUN),
)
"""Those with which each siege begins: a short one has no others."""


class Strike(msgspec.Struct, frozen=True):
    """One deed: after `pause` seconds, at the `passages`-th passage of the point."""

    deed: Deed
    role: str
    point: Point
    passages: int
    pause: float

    def __str__(self) -> str:
        match self.deed:
            case Deed.KILL_BROKER:
                return str(self.deed.value)
            case Deed.KILL | Deed.FREEZE:
                return f"{self.deed.value} {self.role}"
            case _:
                return f"{self.deed.value} {self.role}/{self.point.value}"


def make_strikes(random: Random) -> Iterator[Strike]:
    """Yield strikes without end; each role and each point of it has its turn."""
    decks: dict[str, list[Point]] = {role: [] for role in POINTS}
    roles: list[str] = []
    number = 0
    while True:
        if number < len(FIRST):
            deed, role, point = FIRST[number]
        else:
            (deed,) = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
            roles = roles or random.sample(list(POINTS), len(POINTS))
            role = roles.pop()
            decks[role] = decks[role] or random.sample(POINTS[role], len(POINTS[role]))
            point = decks[role].pop()
        number += 1
        yield Strike(
            deed, role, point, random.randint(1, PASSAGES_MAX_COUNT[role]), random.uniform(*PAUSE_S)
        )
