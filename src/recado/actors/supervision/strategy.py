"""Supervisor strategies: which exceptions lead to a restart, of which actors, and how often. This module only
holds the rules and counts restarts; restart.py carries them out.

SG1  In any `within` seconds there are at most `max_restarts` restarts: of the one actor (OneForOne), or of the
     group (AllForOne). The window is half open: a restart exactly `within` seconds ago does not count any more.
SG2  An exception that is not in `trap` stops the actor that failed. A failure that exceeds the budget stops it,
     or its whole group (AllForOne). Then the supervisor gets a ChildFailed, and fails itself unless it handles
     that in `on_signal`.

A strategy belongs to the supervisor (`supervisor_strategy` of its class) or to one actor
(`supervisor_strategy=` of `spawn` or `link`). Actors with the same AllForOne object, under the same supervisor,
are one group.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias


class RestartType(enum.Enum):
    PERMANENT = "permanent"  # restarted when it fails
    TEMPORARY = "temporary"  # stopped when it fails; its supervisor is not asked


PERMANENT = RestartType.PERMANENT
TEMPORARY = RestartType.TEMPORARY


@dataclass(frozen=True, eq=False)
class OneForOne:
    """Restart only the actor that failed, at most `max_restarts` times in `within` seconds.

    `max_restarts=None` allows any number of restarts; `within=None` counts all restarts since the start.
    Exceptions that are not in `trap` stop the actor.
    """

    max_restarts: int | None = 10
    within: float | None = 60.0
    trap: tuple[type[BaseException], ...] = (Exception,)


@dataclass(frozen=True, eq=False)
class AllForOne:
    """Restart all actors of the group when one fails; the group shares the budget. Fields as for OneForOne."""

    max_restarts: int | None = 10
    within: float | None = 60.0
    trap: tuple[type[BaseException], ...] = (Exception,)


SupervisorStrategy: TypeAlias = OneForOne | AllForOne

DEFAULT_STRATEGY = OneForOne()


class RestartBudget:
    """The times of the restarts in the last `within` seconds."""

    __slots__ = ("_restarts",)

    def __init__(self) -> None:
        self._restarts: deque[float] = deque()

    def try_spend(self, strategy: SupervisorStrategy, now: float) -> bool:
        """Count a restart if one more is allowed now, and return whether it is (SG1)."""
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
