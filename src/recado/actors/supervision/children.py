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

from .strategy import AllForOne, OneForOne, RestartBudget, SupervisorStrategy

Child = TypeVar("Child", bound=Hashable)


@dataclass(frozen=True)
class RestartOne(Generic[Child]):
    child: Child


@dataclass(frozen=True)
class RestartGroup(Generic[Child]):
    group: AllForOne
    children: tuple[Child, ...]


@dataclass(frozen=True)
class StopChildren(Generic[Child]):
    children: tuple[Child, ...]


Decision: TypeAlias = RestartOne[Child] | RestartGroup[Child] | StopChildren[Child]


class Children(Generic[Child]):
    __slots__ = ("_budgets", "_group_budgets", "default_strategy", "group_restarts", "strategies")

    def __init__(self, default_strategy: SupervisorStrategy) -> None:
        self.default_strategy = default_strategy
        self.strategies: dict[Child, SupervisorStrategy | None] = {}
        self._budgets: dict[Child, RestartBudget] = {}
        # A group is there as long as anybody knows its strategy.
        self._group_budgets: WeakKeyDictionary[AllForOne, RestartBudget] = WeakKeyDictionary()
        # Groups that are being restarted, and who of them failed meanwhile.
        self.group_restarts: dict[AllForOne, dict[Child, BaseException | None]] = {}

    def add(self, child: Child, strategy: SupervisorStrategy | None) -> None:
        self.strategies[child] = strategy

    def remove(self, child: Child) -> bool:
        self._budgets.pop(child, None)
        return self.strategies.pop(child, self) is not self

    def defer_failure(self, child: Child, reason: BaseException) -> bool:
        """Whether its group is being restarted; then the failure is noted, to be answered when that is done."""
        for group, failures in self.group_restarts.items():
            if child in failures or self.strategy_of(child) is group:
                failures[child] = reason
                return True
        return False

    def decide(self, child: Child, reason: BaseException, now: float) -> Decision[Child]:
        match self.strategy_of(child):
            case OneForOne() as strategy:
                children: tuple[Child, ...] = (child,)
                budget = self._budgets.setdefault(child, RestartBudget())
                restart: Decision[Child] = RestartOne(child)
            case AllForOne() as strategy:
                children = tuple(
                    each for each in self.strategies if self.strategy_of(each) is strategy
                )
                budget = self._group_budgets.setdefault(strategy, RestartBudget())
                restart = RestartGroup(strategy, children)
        if not isinstance(reason, strategy.trap):
            return StopChildren((child,))
        if not budget.try_spend(strategy, now):
            return StopChildren(children)
        return restart

    def strategy_of(self, child: Child) -> SupervisorStrategy:
        return self.strategies.get(child) or self.default_strategy
