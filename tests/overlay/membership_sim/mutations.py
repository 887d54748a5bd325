"""Mechanisms that are left out of the failure detector and the membership, to see whether the judge notices.

They are replaced from here alone; the code has no switch for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import Struct

from bench.membership_sim import script
from bench.membership_sim.judge import Rule
from bench.membership_sim.script import Plot
from recado.overlay.failure_detector import NEVER, PeerProbe, Suspicion, SwimDetector
from recado.overlay.gossip_queue import GossipQueue
from recado.overlay.identifier import NodeId
from recado.overlay.local_health import LocalHealth
from recado.overlay.membership import Membership
from recado.overlay.membership_messages import Alive, Gossip, Suspected, Update
from recado.overlay.own_time import OwnTime
from recado.overlay.packet import Admission, Packet
from recado.overlay.peer_address import PeerAddress
from recado.overlay.peer_table import MemberTable


class Mutation(Struct, frozen=True):
    what: str
    owner: Any
    name: str
    """Of the attribute that is replaced."""
    instead: Any
    breaks: frozenset[Rule]
    """One of these rules must be found broken."""
    plot: Plot
    size: int
    """Number of nodes."""
    seeds: range = range(1, 13)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.name, self.instead)
            yield


def ask_nobody(self: SwimDetector, number: int, count: int) -> None:
    self._probes[number].ask_at = NEVER


def convict_at_once(self: SwimDetector, node: NodeId, suspicion: Suspicion, time: float) -> bool:
    return True


def convict_alone(self: SwimDetector, node: NodeId, suspicion: Suspicion, time: float) -> bool:
    return time - suspicion.since >= self._options.suspicion


def advance_fully(self: OwnTime, now: float) -> bool:
    self.time += max(now - self._last, 0.0)
    self._last = now
    return False


def ignore(self: object, *arguments: object, **options: object) -> None:
    return None


def refuse(self: object, *arguments: object) -> bool:
    return False


def accept(self: object, *arguments: object) -> bool:
    return True


def accuse_nobody(self: SwimDetector, peer: PeerAddress) -> Update | None:
    return None


def is_newer_by_refutation(self: MemberTable, peer: PeerAddress, refutation: int) -> bool:
    known = self.view.get(peer.node_id)
    return known is None or refutation > self.refutation_of(peer.node_id)


def revive_whatever_is_said(self: MemberTable, peer: PeerAddress, refutation: int) -> bool:
    known = self.view.get(peer.node_id)
    if known is not None:
        number = (known.incarnation, self.refutation_of(peer.node_id))
        return (peer.incarnation, refutation) > number
    return True


def admit_any_network(self: Admission, packet: Packet[Any], own: PeerAddress) -> bool:
    return packet.target == own.node_id and self.is_genuine(packet.source)


def take_forever(
    self: GossipQueue, nodes_count: int, first: Update | None = None
) -> tuple[Update, ...]:
    updates = [update for level in self._levels for update in level.values()][:4]
    return tuple(updates if first is None else [first, *updates])


def show_all_evidence(self: SwimDetector, update: Suspected, source: NodeId | None) -> None:
    departed = self._table.departed.get(update.node_id)
    if departed is not None and source is not None:
        self._send(source, Gossip((departed.evidence,)))


def probe_one_forever(self: SwimDetector, time: float) -> None:
    others = [node for node in self._table.view if node != self._table.own.node_id]
    if others:
        peer = self._table.view.get(others[0])
        assert peer is not None
        self._start(PeerProbe(peer, time + 0.2, time + 0.5, is_routine=True))


def add_whatever_is_said(self: MemberTable, update: Alive) -> object:
    if update.peer.node_id == self.own.node_id:
        return None
    if not self._is_newer(update.peer, update.refutation):
        return None
    self.departed.pop(update.peer.node_id, None)
    self._refutations[update.peer.node_id] = update.refutation
    return self.view.add(update.peer)


MUTATIONS = (
    Mutation(
        "no helpers are asked",
        SwimDetector,
        "_ask_helpers",
        ask_nobody,
        frozenset({Rule.DOUBT, Rule.NOISE}),
        script.lossy_link,
        8,
    ),
    Mutation(
        "a suspicion is a conviction",
        SwimDetector,
        "_is_convicted",
        convict_at_once,
        frozenset({Rule.ACCURACY}),
        script.lossy_node,
        8,
    ),
    Mutation(
        "one vote suffices",
        SwimDetector,
        "_is_convicted",
        convict_alone,
        frozenset({Rule.ACCURACY}),
        script.slow_node,
        5,
    ),
    Mutation(
        "nodes do not doubt themselves",
        LocalHealth,
        "worsen",
        ignore,
        frozenset({Rule.NOISE}),
        script.slow_node,
        5,
    ),
    Mutation(
        "time passes while the loop is stalled",
        OwnTime,
        "advance",
        advance_fully,
        frozenset({Rule.ACCURACY, Rule.NOISE}),
        script.stuttering_node,
        2,
    ),
    Mutation(
        "suspicions are not refuted",
        MemberTable,
        "refute",
        refuse,
        frozenset({Rule.ACCURACY, Rule.DOUBT, Rule.CONVERGENCE}),
        script.stalled_nodes,
        8,
    ),
    Mutation(
        "suspected nodes are not told",
        SwimDetector,
        "_accusation",
        accuse_nobody,
        frozenset({Rule.CONVERGENCE, Rule.DOUBT}),
        script.partition,
        8,
    ),
    Mutation(
        "incarnations are ignored",
        MemberTable,
        "_is_newer",
        is_newer_by_refutation,
        frozenset({Rule.CONVERGENCE, Rule.INCARNATION, Rule.DETECTION, Rule.JOIN}),
        script.restarts,
        8,
        range(1, 41),
    ),
    Mutation(
        "departed nodes are revived by old news",
        MemberTable,
        "_is_newer",
        revive_whatever_is_said,
        frozenset({Rule.CONVERGENCE, Rule.DETECTION, Rule.LEAVE}),
        script.joins_and_leaves,
        13,
    ),
    Mutation(
        "evicted nodes are not looked for",
        SwimDetector,
        "_look_for_departed",
        ignore,
        frozenset({Rule.CONVERGENCE}),
        script.partition,
        8,
    ),
    Mutation(
        "reset connections are ignored",
        SwimDetector,
        "reset",
        ignore,
        frozenset({Rule.DETECTION}),
        script.reset_crashes,
        13,
    ),
    Mutation(
        "one peer only is probed",
        SwimDetector,
        "_probe_next",
        probe_one_forever,
        frozenset({Rule.DETECTION}),
        script.silent_crashes,
        13,
    ),
    Mutation(
        "ids are not verified",
        Admission,
        "is_genuine",
        accept,
        frozenset({Rule.FOREIGN, Rule.ACCURACY, Rule.CONVERGENCE}),
        script.strangers,
        5,
    ),
    Mutation(
        "the network of a packet is ignored",
        Admission,
        "admits",
        admit_any_network,
        frozenset({Rule.FOREIGN, Rule.NOISE, Rule.ACCURACY}),
        script.strangers,
        5,
    ),
    Mutation(
        "the network of a peer that gossip names is ignored",
        MemberTable,
        "hear_alive",
        add_whatever_is_said,
        frozenset({Rule.FOREIGN}),
        script.strangers,
        5,
    ),
    Mutation(
        "leaving is not announced",
        Membership,
        "_leave",
        lambda self: setattr(self, "_leaving_until", self._time.time + 0.5),
        frozenset({Rule.LEAVE}),
        script.joins_and_leaves,
        8,
    ),
    Mutation(
        "views are not compared",
        Membership,
        "_send_state",
        ignore,
        frozenset({Rule.JOIN, Rule.CONVERGENCE, Rule.LEAVE}),
        script.joins_and_leaves,
        13,
        range(1, 31),
    ),
    Mutation(
        "a joining node takes any incarnation",
        MemberTable,
        "incarnation_of",
        lambda self, node: None,
        frozenset({Rule.JOIN, Rule.CONVERGENCE, Rule.INCARNATION}),
        script.restarts,
        8,
    ),
    Mutation(
        "gossip is passed on forever",
        GossipQueue,
        "take",
        take_forever,
        frozenset({Rule.TRAFFIC, Rule.SIZE}),
        script.partition,
        8,
    ),
    Mutation(
        "evidence is answered with evidence",
        SwimDetector,
        "_show_evidence",
        show_all_evidence,
        frozenset({Rule.TRAFFIC}),
        script.stalled_nodes,
        8,
    ),
)
