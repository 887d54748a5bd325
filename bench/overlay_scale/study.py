"""One size of network: it grows, routes, owns topics, spreads a notification, and loses a tenth of its nodes."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from math import log
from random import Random
from statistics import mean
from typing import Final

from msgspec import Struct

from recado.overlay.dissemination import plan_dissemination
from recado.overlay.identifier import NodeId, closeness, node_id, topic_key
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.prefix_routing import (
    CompareLeaves,
    JoinNetwork,
    PeerFailed,
    Peers,
    PrefixRouting,
    RoutingEffect,
    RoutingMessage,
    RoutingMessageReceived,
    Welcome,
)
from recado.simulator.schedule import Schedule

SECRET: Final = b"scale"
LOOKUPS: Final = 10_000
TOPICS: Final = 100_000
SUBSCRIBERS: Final = 100_000
FAILED_RATIO: Final = 0.1
LEAF_NOTICED_S: Final = (0.9, 2.3)
"""After how long a node notices that a leaf has failed: from the fastest to the 99th percentile of `membership-sim`."""
ENTRY_NOTICED_S: Final = (0.9, 7.3)
"""The same for an entry of the table, which is probed in intervals of 5 s."""
COMPARE_INTERVAL_S: Final = 5.0
DELAY_S: Final = (0.001, 0.010)
SAMPLE_S: Final = 0.25
LONGEST_S: Final = 60.0


class Figures(Struct):
    """The results for one size."""

    size: int
    hops_mean: float = 0.0
    hops_max: int = 0
    misrouted: int = 0
    join_messages: float = 0.0
    """Of the last tenth of the joins."""
    state_mean: float = 0.0
    """Nodes that a node knows."""
    state_max: int = 0
    topics_max_to_mean: float = 0.0
    copies_max: int = 0
    """Sent by the busiest node for one notification to all subscribers."""
    evaluations_max: int = 0
    """Selectors evaluated by the busiest node for one notification."""
    depth: int = 0
    repair_s: float = 0.0
    """Until all leaf sets are right again."""
    tables_s: float = 0.0
    """Until no table has a failed node."""
    repair_messages: float = 0.0
    """Per failed node, comparisons of leaves included."""
    hops_unrepaired: float = 0.0
    """Mean hops of lookups, around failed nodes, before any repair."""
    hops_repaired: float = 0.0
    misrouted_repaired: int = 0

    @property
    def hops_excess(self) -> float:
        return self.hops_mean - log(self.size, 16)


def examine(size: int, seed: int = 1) -> Figures:
    return Study(size, seed).run()


class Study:
    def __init__(self, size: int, seed: int) -> None:
        self._random = Random(f"{seed} {size}")
        self._nodes: dict[NodeId, PrefixRouting] = {}
        self._figures = Figures(size)

    def run(self) -> Figures:
        self._grow()
        self._measure_state()
        self._route()
        self._own_topics()
        self._spread_notification()
        self._fail()
        return self._figures

    # ── growth ────────────────────────────────────────────────────────────────────────────────────

    def _grow(self) -> None:
        size = self._figures.size
        joined: list[PeerAddress] = []
        counts: list[int] = []
        for number in range(size):
            address = f"n{number}:4000"
            peer = PeerAddress(node_id(SECRET, address), Incarnation(1), NetworkId(1), address)
            node = self._nodes[peer.node_id] = PrefixRouting(peer)
            if joined:
                contact = self._random.choice(joined)
                counts.append(self._exchange(peer, node.handle(JoinNetwork(contact), 0.0)))
            joined.append(peer)
        self._figures.join_messages = mean(counts[-max(1, size // 10) :])

    def _exchange(self, source: PeerAddress, effects: Iterable[RoutingEffect]) -> int:
        """Deliver messages until none is left; return how many there were."""
        count = 0
        waiting = deque((source, effect) for effect in effects)
        while waiting:
            sender, effect = waiting.popleft()
            count += 1
            event = RoutingMessageReceived(sender, effect.message)
            receiver = self._nodes[effect.to.node_id]
            waiting.extend((effect.to, answer) for answer in receiver.handle(event, 0.0))
        return count

    def _measure_state(self) -> None:
        counts = [len(node.known()) for node in self._nodes.values()]
        self._figures.state_mean, self._figures.state_max = mean(counts), max(counts)

    # ── routes ────────────────────────────────────────────────────────────────────────────────────

    def _route(self) -> None:
        hops, misrouted = self._look_up(LOOKUPS)
        self._figures.hops_mean, self._figures.hops_max = mean(hops), max(hops)
        self._figures.misrouted = misrouted

    def _look_up(self, count: int) -> tuple[list[int], int]:
        """Route to random keys; return the hops, and how many did not end at the owner."""
        ids = sorted(self._nodes)
        hops: list[int] = []
        misrouted = 0
        for _ in range(count):
            key, at = self._random.getrandbits(128), self._random.choice(ids)
            steps = 0
            while True:
                step = self._live_hop(at, key)
                if step is None:
                    break
                at = step
                steps += 1
            hops.append(steps)
            misrouted += at != _owner(ids, key)
        return hops, misrouted

    def _live_hop(self, at: NodeId, key: int) -> NodeId | None:
        """Return the next hop; a failed one is noticed when it does not answer, and passed by."""
        node = self._nodes[at]
        while True:
            step = node.next_hop(key)
            if step is None or step in self._nodes:
                return step
            node.handle(PeerFailed(step), 0.0)

    # ── topics ────────────────────────────────────────────────────────────────────────────────────

    def _own_topics(self) -> None:
        ids = sorted(self._nodes)
        counts = dict.fromkeys(ids, 0)
        for number in range(TOPICS):
            counts[_owner(ids, topic_key(f"topic {number}"))] += 1
        self._figures.topics_max_to_mean = max(counts.values()) * len(ids) / TOPICS

    def _spread_notification(self) -> None:
        ids = sorted(self._nodes)
        subscriptions = dict.fromkeys(ids, 0)
        for _ in range(SUBSCRIBERS):
            subscriptions[self._random.choice(ids)] += 1
        subscribed = [node for node in ids if subscriptions[node]]
        owner = _owner(ids, topic_key("topic 0"))
        plan = plan_dissemination(owner, subscribed, version=1)
        self._figures.copies_max = max(each.copies_max for each in plan.assignments.values())
        self._figures.evaluations_max = max(
            sum(subscriptions[node] for node in plan.evaluates(relay)) for relay in plan.assignments
        )
        depth, level = 0, [owner]
        while level:
            level = [node for relay in level for node in plan.assignment(relay).relays]
            depth += 1
        self._figures.depth = depth

    # ── failures ──────────────────────────────────────────────────────────────────────────────────

    def _fail(self) -> None:
        count = max(1, int(len(self._nodes) * FAILED_RATIO))
        failed = self._random.sample(sorted(self._nodes), count)
        for node in failed:
            del self._nodes[node]
        Repair(self._nodes, dict.fromkeys(failed), self._random, self._figures).run()
        hops, misrouted = self._look_up(LOOKUPS)
        self._figures.hops_repaired, self._figures.misrouted_repaired = mean(hops), misrouted


class Repair:
    """The time after many nodes have failed at once."""

    def __init__(
        self,
        nodes: dict[NodeId, PrefixRouting],
        failed: dict[NodeId, None],
        random: Random,
        figures: Figures,
    ) -> None:
        self._nodes = nodes
        self._failed = failed
        self._random = random
        self._figures = figures
        self._schedule = Schedule()
        self._noticing: set[tuple[NodeId, NodeId]] = set()
        self._message_count = 0

    def run(self) -> None:
        for node in self._nodes.values():
            self._watch(node, node.known())
            phase = COMPARE_INTERVAL_S * self._random.random()
            self._schedule.call_at(phase, self._compare, node)
        self._figures.hops_unrepaired = self._detour()
        at, is_right = 0.0, False
        while at < LONGEST_S:
            at += SAMPLE_S
            self._schedule.run(at)
            if not is_right and self._has_right_leaves():
                is_right, self._figures.repair_s = True, at
            if is_right and not self._has_failed_entries():
                self._figures.tables_s = at
                break
        else:
            self._figures.repair_s = self._figures.repair_s or LONGEST_S
            self._figures.tables_s = LONGEST_S
        self._figures.repair_messages = self._message_count / len(self._failed)
        # For the lookups after it: vacant places of tables are filled in the rounds of comparison.
        self._schedule.run(at + 2 * COMPARE_INTERVAL_S)

    def _detour(self) -> float:
        """Return the mean hops of lookups that find other ways around failed nodes, without changing any state."""
        ids = sorted(self._nodes)
        hops: list[int] = []
        for _ in range(LOOKUPS // 10):
            key, at = self._random.getrandbits(128), self._random.choice(ids)
            steps = 0
            while True:
                node = self._nodes[at]
                near = [
                    each.node_id
                    for each in node.known()
                    if each.node_id not in self._failed
                    and closeness(key, each.node_id) < closeness(key, at)
                ]
                if not near:
                    break
                step = node.next_hop(key)
                if step is None or step in self._failed:
                    step = min(near, key=lambda each: closeness(key, each))
                at = step
                steps += 1
            hops.append(steps)
        return mean(hops)

    def _watch(self, node: PrefixRouting, peers: Iterable[PeerAddress]) -> None:
        """Let a node notice later which of these peers have failed."""
        for peer in peers:
            pair = (node.own.node_id, peer.node_id)
            if peer.node_id in self._failed and pair not in self._noticing:
                self._noticing.add(pair)
                span = LEAF_NOTICED_S if peer.node_id in node.leaf_set else ENTRY_NOTICED_S
                self._schedule.call_later(self._random.uniform(*span), self._notice, node, pair)

    def _notice(self, node: PrefixRouting, pair: tuple[NodeId, NodeId]) -> None:
        self._noticing.discard(pair)
        self._send(node, node.handle(PeerFailed(pair[1]), self._schedule.now))

    def _compare(self, node: PrefixRouting) -> None:
        self._schedule.call_later(COMPARE_INTERVAL_S, self._compare, node)
        self._send(node, node.handle(CompareLeaves(), self._schedule.now))

    def _send(self, source: PrefixRouting, effects: Iterable[RoutingEffect]) -> None:
        for effect in effects:
            self._message_count += 1
            target = self._nodes.get(effect.to.node_id)
            if target is not None:
                delay = self._random.uniform(*DELAY_S)
                self._schedule.call_later(delay, self._arrive, source.own, target, effect.message)

    def _arrive(self, source: PeerAddress, node: PrefixRouting, message: RoutingMessage) -> None:
        self._send(node, node.handle(RoutingMessageReceived(source, message), self._schedule.now))
        if isinstance(message, Peers | Welcome):
            known = [peer for peer in message.peers if peer.node_id in self._failed]
            if known:
                held = {peer.node_id for peer in node.known()}
                self._watch(node, [peer for peer in known if peer.node_id in held])

    def _has_right_leaves(self) -> bool:
        ids = sorted(self._nodes)
        size = len(ids)
        for at, own in enumerate(ids):
            leaf_set = self._nodes[own].leaf_set
            after, before = leaf_set.after(), leaf_set.before()
            side = min(8, size - 1)
            if after[:side] != [ids[(at + step) % size] for step in range(1, side + 1)]:
                return False
            if before[:side] != [ids[(at - step) % size] for step in range(1, side + 1)]:
                return False
        return True

    def _has_failed_entries(self) -> bool:
        return any(entry in self._failed for node in self._nodes.values() for entry in node.table)


def _owner(ids: list[NodeId], key: int) -> NodeId:
    """Return the node nearest to a key, by the definition."""
    at = bisect_left(ids, key)
    return min(ids[at - 1], ids[at % len(ids)], key=lambda node: closeness(key, node))
