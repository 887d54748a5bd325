"""Plans for sets of nodes that Hypothesis chooses: everybody is reached once, and nobody sends too much."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.overlay.dissemination import NOTHING, Plan, plan_dissemination
from recado.overlay.identifier import NodeId

# Ids that differ only in the first or only in the last digits make deep and lopsided trees.
IDS = st.one_of(
    st.integers(0, 300), st.integers(0, 2**128 - 1), st.integers(0, 255).map(lambda i: i << 120)
).map(NodeId)
SETS = st.sets(IDS, max_size=80)
FAN_OUTS = st.sampled_from([2, 4, 16])


def reached(plan: Plan) -> Counter[NodeId]:
    """Return how often each node gets a copy of a notification that matches everywhere."""
    counts: Counter[NodeId] = Counter()
    pending = [plan.owner]
    while pending:
        assignment = plan.assignment(pending.pop())
        counts.update((*assignment.relays, *assignment.leaves))
        pending += assignment.relays
    return counts


@given(IDS, SETS, FAN_OUTS)
def test_every_subscriber_is_reached_once(owner: NodeId, nodes: set[NodeId], fan_out: int) -> None:
    """DP1"""
    plan = plan_dissemination(owner, nodes, 1, direct_max=5, fan_out=fan_out)
    assert reached(plan) == Counter(nodes - {owner})


@given(IDS, SETS, FAN_OUTS)
def test_no_node_of_a_tree_sends_more_than_its_share(
    owner: NodeId, nodes: set[NodeId], fan_out: int
) -> None:
    """DP2"""
    plan = plan_dissemination(owner, nodes, 1, direct_max=0, fan_out=fan_out)
    assert all(each.copies_max <= fan_out for each in plan.assignments.values())


@given(IDS, SETS, FAN_OUTS)
def test_each_selector_is_evaluated_once(owner: NodeId, nodes: set[NodeId], fan_out: int) -> None:
    """DP4"""
    plan = plan_dissemination(owner, nodes, 1, direct_max=5, fan_out=fan_out)
    evaluated = Counter(node for relay in plan.assignments for node in plan.evaluates(relay))
    assert evaluated == Counter(nodes | {owner})


@given(IDS, SETS.filter(bool), FAN_OUTS, st.integers(0, 79))
def test_the_death_of_a_node_changes_few_assignments(
    owner: NodeId, nodes: set[NodeId], fan_out: int, index: int
) -> None:
    """DP3, in both directions: its death and its return."""
    gone = sorted(nodes)[index % len(nodes)]
    before = plan_dissemination(owner, nodes, 1, direct_max=0, fan_out=fan_out)
    after = plan_dissemination(owner, nodes - {gone}, 2, direct_max=0, fan_out=fan_out)
    levels = 128 // (fan_out.bit_length() - 1)
    bound = 2 * depth(before) + 3
    assert bound <= 2 * levels + 3
    for changes in (after.changes(before), before.changes(after)):
        assert len(changes) <= bound
    assert gone == owner or after.assignment(gone) == NOTHING


def depth(plan: Plan) -> int:
    count, level = 0, [plan.owner]
    while level:
        level = [node for relay in level for node in plan.assignment(relay).relays]
        count += 1
    return count


def test_the_changes_lead_from_one_plan_to_the_next() -> None:
    random = Random(1)
    nodes = [NodeId(random.getrandbits(128)) for _ in range(500)]
    before = plan_dissemination(nodes[0], nodes[:400], 1, direct_max=0)
    after = plan_dissemination(nodes[0], nodes[100:], 2, direct_max=0)
    merged = {**before.assignments, **after.changes(before)}
    assert {node: each for node, each in merged.items() if each != NOTHING} == {
        node: each for node, each in after.assignments.items() if each != NOTHING
    }
    assert after.changes(None) == after.assignments
    assert after.version == 2


def test_few_subscribers_are_served_by_the_owner() -> None:
    nodes = [NodeId(number) for number in range(1, 257)]
    plan = plan_dissemination(NodeId(0), nodes, 1)
    assert list(plan.assignments) == [0]
    assert plan.assignment(NodeId(0)).leaves == tuple(nodes)


def test_a_tree_of_many_nodes_is_shallow() -> None:
    random = Random(2)
    nodes = [NodeId(random.getrandbits(128)) for _ in range(16_384)]
    assert depth(plan_dissemination(nodes[0], nodes, 1)) <= 5


@pytest.mark.parametrize("fan_out", [0, 1, 3, 15])
def test_another_fan_out_is_refused(fan_out: int) -> None:
    with pytest.raises(ValueError, match=f"fan_out is {fan_out}"):
        plan_dissemination(NodeId(0), [], 1, fan_out=fan_out)
