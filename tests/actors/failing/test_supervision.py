"""Budgets are exact at the edge of the window; families decide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recado.actors import AllForOne, OneForOne
from recado.actors.failing.family import Decision, Family, GiveUp, RestartGroup, RestartOne
from recado.actors.failing.supervision import DEFAULT, Budget

# Quarters of a second, so that sums are exact and the edge is really met.
moments = st.lists(st.integers(0, 12).map(lambda quarter: quarter / 4), max_size=30)


@given(moments, st.integers(0, 4), st.sampled_from([0.25, 1.0, 2.5, None]))
def test_a_budget_is_that_of_every_window(
    steps: list[float], most: int, within: float | None
) -> None:  # SU1
    strategy, budget = OneForOne(most, within=within), Budget()
    now, spent = 0.0, list[float]()
    for step in steps:
        now += step
        counted = [at for at in spent if within is None or now - at < within]
        allowed = budget.spend(strategy, now)
        assert allowed == (len(counted) < most)
        if allowed:
            spent.append(now)


def test_the_edge_of_the_window() -> None:
    strategy, budget = OneForOne(2, within=10), Budget()
    assert budget.spend(strategy, 0.0)
    assert budget.spend(strategy, 9.75)
    assert not budget.spend(strategy, 9.999)
    assert budget.spend(strategy, 10.0)  # the first is exactly ten seconds ago
    assert not budget.spend(strategy, 19.5)
    assert budget.spend(strategy, 19.75)


def test_without_a_limit() -> None:
    strategy, budget = OneForOne(None), Budget()
    assert all(budget.spend(strategy, 0.0) for _ in range(1000))


def test_one_for_one_has_a_budget_each() -> None:
    family: Family[str] = Family(OneForOne(1, within=10))
    family.link("a", None)
    family.link("b", None)
    assert family.decide("a", ValueError(), 0.0) == RestartOne("a")
    assert family.decide("b", ValueError(), 0.0) == RestartOne("b")
    assert family.decide("a", ValueError(), 1.0) == GiveUp(("a",))


def test_all_for_one_restarts_those_who_share_it_in_their_order() -> None:  # FA1
    group = AllForOne(1, within=10)
    family: Family[str] = Family(DEFAULT)
    for child, strategy in (("a", group), ("b", None), ("c", group), ("d", AllForOne())):
        family.link(child, strategy)
    assert family.decide("c", ValueError(), 0.0) == RestartGroup(group, ("a", "c"))
    assert family.decide("a", ValueError(), 9.0) == GiveUp(("a", "c"))
    assert family.decide("a", ValueError(), 10.0) == RestartGroup(group, ("a", "c"))


def test_what_is_not_trapped_is_given_up_at_once() -> None:
    family: Family[str] = Family(OneForOne(trap=(KeyError,)))
    family.link("a", None)
    assert family.decide("a", ValueError(), 0.0) == GiveUp(("a",))
    decision: Decision[str] = family.decide("a", KeyError(), 0.0)
    assert decision == RestartOne("a")


def test_who_is_unlinked_begins_anew() -> None:
    family: Family[str] = Family(OneForOne(1, within=10))
    family.link("a", None)
    family.decide("a", ValueError(), 0.0)
    assert family.unlink("a")
    assert not family.unlink("a")
    family.link("a", None)
    assert family.decide("a", ValueError(), 1.0) == RestartOne("a")
