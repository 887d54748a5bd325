"""Restart budgets are exact at the edge of the window; decisions about children."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recado.actors import AllForOne, OneForOne
from recado.actors.supervision.children import (
    Children,
    Decision,
    RestartGroup,
    RestartOne,
    StopChildren,
)
from recado.actors.supervision.strategy import DEFAULT_STRATEGY, RestartBudget

# Quarters of a second, so that sums are exact and the edge is really met.
moments = st.lists(st.integers(0, 12).map(lambda quarter: quarter / 4), max_size=30)


@given(moments, st.integers(0, 4), st.sampled_from([0.25, 1.0, 2.5, None]))
def test_a_budget_is_that_of_every_window(
    steps: list[float], most: int, within: float | None
) -> None:  # SG1
    strategy, budget = OneForOne(most, within=within), RestartBudget()
    now, spent = 0.0, list[float]()
    for step in steps:
        now += step
        counted = [at for at in spent if within is None or now - at < within]
        allowed = budget.try_spend(strategy, now)
        assert allowed == (len(counted) < most)
        if allowed:
            spent.append(now)


def test_the_edge_of_the_window() -> None:
    strategy, budget = OneForOne(2, within=10), RestartBudget()
    assert budget.try_spend(strategy, 0.0)
    assert budget.try_spend(strategy, 9.75)
    assert not budget.try_spend(strategy, 9.999)
    assert budget.try_spend(strategy, 10.0)  # the first is exactly ten seconds ago
    assert not budget.try_spend(strategy, 19.5)
    assert budget.try_spend(strategy, 19.75)


def test_without_a_limit() -> None:
    strategy, budget = OneForOne(None), RestartBudget()
    assert all(budget.try_spend(strategy, 0.0) for _ in range(1000))


def test_one_for_one_has_a_budget_each() -> None:
    family: Children[str] = Children(OneForOne(1, within=10))
    family.add("a", None)
    family.add("b", None)
    assert family.decide("a", ValueError(), 0.0) == RestartOne("a")
    assert family.decide("b", ValueError(), 0.0) == RestartOne("b")
    assert family.decide("a", ValueError(), 1.0) == StopChildren(("a",))


def test_all_for_one_restarts_those_who_share_it_in_their_order() -> None:  # FA1
    group = AllForOne(1, within=10)
    family: Children[str] = Children(DEFAULT_STRATEGY)
    for child, strategy in (("a", group), ("b", None), ("c", group), ("d", AllForOne())):
        family.add(child, strategy)
    assert family.decide("c", ValueError(), 0.0) == RestartGroup(group, ("a", "c"))
    assert family.decide("a", ValueError(), 9.0) == StopChildren(("a", "c"))
    assert family.decide("a", ValueError(), 10.0) == RestartGroup(group, ("a", "c"))


def test_what_is_not_trapped_is_given_up_at_once() -> None:
    family: Children[str] = Children(OneForOne(trap=(KeyError,)))
    family.add("a", None)
    assert family.decide("a", ValueError(), 0.0) == StopChildren(("a",))
    decision: Decision[str] = family.decide("a", KeyError(), 0.0)
    assert decision == RestartOne("a")


def test_who_is_unlinked_begins_anew() -> None:
    family: Children[str] = Children(OneForOne(1, within=10))
    family.add("a", None)
    family.decide("a", ValueError(), 0.0)
    assert family.remove("a")
    assert not family.remove("a")
    family.add("a", None)
    assert family.decide("a", ValueError(), 1.0) == RestartOne("a")
