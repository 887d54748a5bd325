"""The children of a supervisor, and its decision when one of them fails. Pure.

FA1  Children are in the order in which they were linked. A group is stopped in reverse order, and started in
     order.
FA2  Every failure leads to one decision: restart these children, or stop these and notify the supervisor.
FA3  At most one restart of a group runs at a time. The failure of a member during a restart, even of a member
     that has just joined, is handled after that restart.
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
        # The strategy of each child; None is the default.
        self.strategies: dict[Child, SupervisorStrategy | None] = {}
        self._budgets: dict[Child, RestartBudget] = {}
        # A group exists as long as its strategy object is referenced.
        self._group_budgets: WeakKeyDictionary[AllForOne, RestartBudget] = WeakKeyDictionary()
        # The groups that are being restarted, with the failures of their members meanwhile.
        self.group_restarts: dict[AllForOne, dict[Child, BaseException | None]] = {}

    def add(self, child: Child, strategy: SupervisorStrategy | None) -> None:
        self.strategies[child] = strategy

    def remove(self, child: Child) -> bool:
        """Remove a child, and return whether there was one."""
        self._budgets.pop(child, None)
        return self.strategies.pop(child, self) is not self

    def defer_failure(self, child: Child, reason: BaseException) -> bool:
        """If the group of a child is being restarted, record its failure for later and return True (FA3)."""
        for group, failures in self.group_restarts.items():
            if child in failures or self.strategy_of(child) is group:
                failures[child] = reason
                return True
        return False

    def decide(self, child: Child, reason: BaseException, now: float) -> Decision[Child]:
        """Return the decision about a failure, and count the restart against the budget (FA2)."""
        match self.strategy_of(child):
            case OneForOne() as strategy:
                affected: tuple[Child, ...] = (child,)
                budget = self._budgets.setdefault(child, RestartBudget())
                restart: Decision[Child] = RestartOne(child)
            case AllForOne() as strategy:
                affected = tuple(
                    each for each in self.strategies if self.strategy_of(each) is strategy
                )
                budget = self._group_budgets.setdefault(strategy, RestartBudget())
                restart = RestartGroup(strategy, affected)
        if not isinstance(reason, strategy.trap):
            return StopChildren((child,))
        if not budget.try_spend(strategy, now):
            return StopChildren(affected)
        return restart

    def strategy_of(self, child: Child) -> SupervisorStrategy:
        return self.strategies.get(child) or self.default_strategy
