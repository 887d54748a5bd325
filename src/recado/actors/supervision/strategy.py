"""How failures are answered: which exceptions, who is restarted, how often. Values and counting, nothing else.

SU1  In any `within` seconds there are at most `max_restarts` restarts: of the one actor (OneForOne), or of the
     group (AllForOne). The window is half open: a restart exactly `within` seconds ago does not count any more.
SU2  What is not trapped, or is over the budget, stops the actor; then its supervisor is told, and fails for it
     unless it decides otherwise (`on_signal`).

A strategy belongs to the supervisor (`supervisor_strategy` of its class) or to an actor (`supervision=` when it is
spawned or linked). Actors with the same AllForOne object, under the same supervisor, are one group.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias


class RestartType(enum.Enum):
    PERMANENT = "permanent"  # restarted when it fails
    TEMPORARY = "temporary"  # stopped when it fails, as if it had been stopped by somebody


PERMANENT = RestartType.PERMANENT
TEMPORARY = RestartType.TEMPORARY


@dataclass(frozen=True, eq=False)
class OneForOne:
    """Only who failed is restarted; the budget is its own."""

    max_restarts: int | None = 10
    within: float | None = 60.0
    trap: tuple[type[BaseException], ...] = (Exception,)


@dataclass(frozen=True, eq=False)
class AllForOne:
    """All of the group are restarted, whoever failed; the budget is the group's."""

    max_restarts: int | None = 10
    within: float | None = 60.0
    trap: tuple[type[BaseException], ...] = (Exception,)


SupervisorStrategy: TypeAlias = OneForOne | AllForOne

DEFAULT_STRATEGY = OneForOne()


class RestartBudget:
    """The restarts of the last `within` seconds."""

    __slots__ = ("_restarts",)

    def __init__(self) -> None:
        self._restarts: deque[float] = deque()

    def try_spend(self, strategy: SupervisorStrategy, now: float) -> bool:
        """Whether one more restart is allowed now; if so it is counted (SU1)."""
        restarts = self._restarts
        if strategy.max_restarts is None:
            return True
        if strategy.within is not None:
            while restarts and now - restarts[0] >= strategy.within:
                restarts.popleft()
        if len(restarts) >= strategy.max_restarts:
            return False
        restarts.append(now)
        return True
