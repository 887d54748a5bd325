"""Whom an actor supervises, and what it decides when one of them fails.

FA1  Children are in the order in which they were linked. A group is restarted as a house is rebuilt: taken down
     in reverse order, put up in order.
FA2  Every failure is answered once: these are restarted, or these are stopped and the supervisor is told.
FA3  A group is restarted once at a time: who fails meanwhile, also one that has just joined it, waits for
     that.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from .supervision import AllForOne, Budget, OneForOne, Supervision

Child = TypeVar("Child", bound=Hashable)


@dataclass(frozen=True)
class RestartOne(Generic[Child]):
    child: Child


@dataclass(frozen=True)
class RestartGroup(Generic[Child]):
    group: AllForOne
    children: tuple[Child, ...]


@dataclass(frozen=True)
class GiveUp(Generic[Child]):
    children: tuple[Child, ...]


Decision: TypeAlias = RestartOne[Child] | RestartGroup[Child] | GiveUp[Child]


class Family(Generic[Child]):
    __slots__ = ("_budgets", "_group_budgets", "children", "default", "rebuilding")

    def __init__(self, default: Supervision) -> None:
        self.default = default
        self.children: dict[Child, Supervision | None] = {}
        self._budgets: dict[Child, Budget] = {}
        # A group is there as long as anybody knows its strategy.
        self._group_budgets: WeakKeyDictionary[AllForOne, Budget] = WeakKeyDictionary()
        # Groups that are being restarted, and who of them failed meanwhile.
        self.rebuilding: dict[AllForOne, dict[Child, BaseException | None]] = {}

    def link(self, child: Child, supervision: Supervision | None) -> None:
        self.children[child] = supervision

    def unlink(self, child: Child) -> bool:
        self._budgets.pop(child, None)
        return self.children.pop(child, self) is not self

    def fails_meanwhile(self, child: Child, reason: BaseException) -> bool:
        """Whether its group is being restarted; then the failure is noted, to be answered when that is done."""
        for group, failures in self.rebuilding.items():
            if child in failures or self._strategy(child) is group:
                failures[child] = reason
                return True
        return False

    def decide(self, child: Child, reason: BaseException, now: float) -> Decision[Child]:
        match self._strategy(child):
            case OneForOne() as strategy:
                children: tuple[Child, ...] = (child,)
                budget = self._budgets.setdefault(child, Budget())
                restart: Decision[Child] = RestartOne(child)
            case AllForOne() as strategy:
                children = tuple(each for each in self.children if self._strategy(each) is strategy)
                budget = self._group_budgets.setdefault(strategy, Budget())
                restart = RestartGroup(strategy, children)
        if not isinstance(reason, strategy.trap):
            return GiveUp((child,))
        if not budget.spend(strategy, now):
            return GiveUp(children)
        return restart

    def _strategy(self, child: Child) -> Supervision:
        return self.children.get(child) or self.default
