"""Finds out which peers have failed: SWIM, with votes, and with Lifeguard's local health.

Probes. Each node pings its peers one after the other, in a random order. If no answer comes in time, it asks some
helpers to ping the peer as well. If no helper gets an answer either, the node suspects the peer, votes against it
and spreads that vote. A helper reports a missing answer with a nack; a node that misses nacks doubts its own
connection (`local_health`).

Votes. A single node never evicts a peer on its own observation while others could confirm it. When a suspicion
spreads, the peer's nearest neighbours on the ring probe it at once, and vote against it if they fail too. Each node
counts the votes for itself, and only those of nodes that it believes to be alive and does not suspect. There is no
message that says that a node is dead.

Refutation. Each ping to a suspected node carries the suspicion. A node that learns of a suspicion against itself raises
its refutation number; `Alive` with the higher number ends the suspicion everywhere, and revives the node where it has
already been evicted.

OFD1  A peer is evicted only after a suspicion of `suspicion` seconds (of `reset_suspicion`, if its connections were
      reset), with the votes of `votes_needed` nodes, or of all other nodes if there are fewer.
OFD2  If all other possible voters are suspected as well, the votes of the rest suffice after `lone_suspicion` seconds,
      times the node's own local health. So the last node of a network notices that it is alone.
FD3  A vote counts only while its voter is in the view and not suspected.
FD4  Time in which this node's own loop was stalled does not count (`own_time`).
FD5  A node that was evicted is pinged now and then, so that a healed partition merges.
FD6  A node sends at most a bounded number of messages per second, and each of bounded size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from .effects import SendTo
from .gossip_queue import GossipQueue
from .identifier import NodeId
from .local_health import LocalHealth
from .membership_messages import (
    VOTES_MAX,
    Ack,
    Alive,
    DetectorPing,
    Gossip,
    Left,
    MembershipMessage,
    Nack,
    PingRequest,
    RelayedAck,
    Suspected,
    Update,
)
from .packet import Admission, Refusal
from .peer_address import PeerAddress
from .peer_table import MemberTable
from .peer_view import Departure, ViewChange

Effect = SendTo[MembershipMessage]


class DetectorOptions(Struct, frozen=True):
    """Durations in seconds. With the defaults all nodes notice a silent crash within 3 s, a reset within 1 s."""

    tick: float = 0.05
    probe_interval: float = 0.2
    ack_timeout: float = 0.2
    """Time for a direct answer; helpers are asked then."""
    probe_timeout: float = 0.5
    """Time for any answer."""
    verify_timeout: float = 0.3
    """Time for any answer to a probe because of a suspicion, which asks the helpers at once."""
    reset_timeout: float = 0.15
    """Time for any answer after connections to the peer were reset."""
    recheck_interval: float = 0.15
    """Between pings of a peer by those that vote against it."""
    review_interval: float = 0.3
    """Between examinations of a suspicion by those that do not vote."""
    review_age: float = 1.5
    """A suspicion of this age is verified by every node that has not voted: it may have missed the refutation."""
    suspicion: float = 0.6
    reset_suspicion: float = 0.3
    lone_suspicion: float = 1.6
    lone_reset_suspicion: float = 0.4
    gossip_interval: float = 0.05
    departed_interval: float = 0.5
    """Between pings of peers that were evicted."""
    fan_out: int = 3
    """Peers that gossip is sent to at once."""
    helpers: int = 3
    verifiers: int = 6
    votes_needed: int = 3


PROBES_MAX: Final = 256
"""Probes under way, so that resets and suspicions of many peers at once have bounded costs."""
SERVED_PROBES_MAX: Final = 256
"""Ping requests of others under way."""


class PeerProbe(Struct):
    """A ping that waits for its answer."""

    target: PeerAddress
    ask_at: float
    """When to ask helpers; infinite if they were asked."""
    fail_at: float
    asked: int = 0
    nacks: int = 0
    is_routine: bool = False
    is_reset: bool = False


class Service(Struct, frozen=True):
    """A ping on behalf of another node."""

    client: PeerAddress
    number: int
    target: PeerAddress
    until: float


class Suspicion(Struct):
    refutation: int
    since: float
    votes: tuple[NodeId, ...]
    is_reset: bool
    check_at: float
    spread_at: float = 0.0
    """When to spread the votes again: gossip about them may have been lost in a partition."""


NEVER: Final = float("inf")


class SwimDetector:
    """The detector as a part of `Membership`, which hands it messages and ticks in own time."""

    def __init__(
        self,
        table: MemberTable,
        gossip: GossipQueue,
        admission: Admission,
        options: DetectorOptions,
        draw: Callable[[], float],
    ) -> None:
        """`draw` returns random numbers from 0 to 1."""
        self.health = LocalHealth()
        self.suspicions: dict[NodeId, Suspicion] = {}
        self._table = table
        self._gossip = gossip
        self._admission = admission
        self._options = options
        self._draw = draw
        self._probes: dict[int, PeerProbe] = {}
        self._served: dict[int, Service] = {}
        self._number = 0
        self._round: deque[NodeId] = deque()
        self._lost_round: deque[NodeId] = deque()
        self._probe_at = 0.0
        self._gossip_at = 0.0
        self._look_at = 0.0
        self._effects: list[Effect] = []
        self._changes: list[ViewChange] = []

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def take_changes(self) -> list[ViewChange]:
        changes, self._changes = self._changes, []
        return changes

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def tick(self, time: float) -> None:
        """Do everything that is due."""
        self._advance_probes(time)
        for node in list(self.suspicions):
            self._review(node, time)
        if time >= self._probe_at:
            self._probe_at = time + self._options.probe_interval * self.health.multiplier
            self._probe_next(time)
        if time >= self._look_at:
            self._look_at = time + self._options.departed_interval
            self._look_for_departed()
        if self._gossip and time >= self._gossip_at:
            self._gossip_at = time + self._options.gossip_interval
            self.spread(self._options.fan_out)

    def stall(self) -> None:
        """The loop of this node was stalled, or its clock has jumped."""
        self.health.worsen()

    def spread(self, count: int) -> None:
        """Pass updates on to some random peers."""
        for node in self._choose(count, frozenset()):
            updates = self._gossip.take(len(self._table.view))
            if updates:
                self._send(node, Gossip(updates))

    # ── probes ────────────────────────────────────────────────────────────────────────────────────

    def _probe_next(self, time: float) -> None:
        """Probe the next peer of a random order of all."""
        while True:
            if not self._round:
                others = [node for node in self._table.view if node != self._table.own.node_id]
                if not others:
                    return
                self._round.extend(self._shuffle(others))
            peer = self._table.view.get(self._round.popleft())
            if peer is not None and peer != self._table.own:
                break
        patience = self.health.multiplier
        probe = PeerProbe(
            peer,
            time + self._options.ack_timeout * patience,
            time + self._options.probe_timeout * patience,
            is_routine=True,
        )
        self._start(probe)

    def _verify(self, node: NodeId, time: float, timeout: float, is_reset: bool = False) -> None:
        """Probe a peer at once, directly and through helpers."""
        peer = self._table.view.get(node)
        if peer is not None and not any(
            probe.target == peer and not probe.is_routine for probe in self._probes.values()
        ):
            fail_at = time + timeout * self.health.multiplier
            number = self._start(PeerProbe(peer, NEVER, fail_at, is_reset=is_reset))
            if number is not None:
                self._ask_helpers(number, self._options.helpers)

    def _start(self, probe: PeerProbe) -> int | None:
        if len(self._probes) >= PROBES_MAX:
            return None
        number = self._next_number()
        self._probes[number] = probe
        self._ping(probe.target, number)
        return number

    def _ask_helpers(self, number: int, count: int) -> None:
        probe = self._probes[number]
        probe.ask_at = NEVER
        for helper in self._choose(count, frozenset([probe.target.node_id])):
            probe.asked += 1
            updates = self._updates_for(helper)
            self._send(helper, PingRequest(number, probe.target, updates))

    def _advance_probes(self, time: float) -> None:
        for number, probe in list(self._probes.items()):
            if time >= probe.ask_at:
                # Again directly too: one packet may have been lost.
                self._ping(probe.target, number)
                self._ask_helpers(number, self._options.helpers)
            if time >= probe.fail_at:
                del self._probes[number]
                self._probe_failed(probe, time)
        for number, service in list(self._served.items()):
            if time >= service.until:
                del self._served[number]
                self._effects.append(SendTo(service.client, Nack(service.number)))

    def _probe_failed(self, probe: PeerProbe, time: float) -> None:
        if probe.is_routine:
            self.health.worsen(probe.asked - probe.nacks)
        peer = probe.target
        if self._table.view.get(peer.node_id) != peer:
            return
        suspicion = self.suspicions.get(peer.node_id)
        if suspicion is None:
            number = self._table.refutation_of(peer.node_id)
            suspicion = self._suspect(peer.node_id, number, time)
        is_new = self._table.own.node_id not in suspicion.votes
        is_new |= probe.is_reset and not suspicion.is_reset
        suspicion.is_reset |= probe.is_reset
        if is_new:
            self._add_votes(peer.node_id, suspicion, (self._table.own.node_id,))
            suspicion.check_at = time
            self._announce(peer, suspicion)

    def answered(self, number: int, source: PeerAddress, refutation: int) -> None:
        """Handle the answer of a peer to a ping."""
        service = self._served.get(number)
        if service is not None and service.target == source:
            del self._served[number]
            self._effects.append(SendTo(service.client, RelayedAck(service.number, refutation)))
        probe = self._probes.get(number)
        if probe is not None and probe.target == source:
            self._succeed(number, probe)
        self.hear_alive(Alive(source, refutation))

    def answered_to_helper(self, number: int, refutation: int) -> None:
        """Handle the answer of a probed peer that a helper has relayed."""
        probe = self._probes.get(number)
        if probe is not None:
            self._succeed(number, probe)
            self.hear_alive(Alive(probe.target, refutation))

    def _succeed(self, number: int, probe: PeerProbe) -> None:
        del self._probes[number]
        if probe.is_routine:
            self.health.improve()

    def missed(self, number: int) -> None:
        """Handle a nack."""
        probe = self._probes.get(number)
        if probe is not None:
            probe.nacks += 1

    def serve(self, client: PeerAddress, request: PingRequest, time: float) -> None:
        """Ping a peer on behalf of another node."""
        if len(self._served) >= SERVED_PROBES_MAX:
            self._admission.refuse(Refusal.EXCESS)
            return
        number = self._next_number()
        self._served[number] = Service(
            client, request.number, request.target, time + self._options.ack_timeout
        )
        self._ping(request.target, number)

    def reset(self, node: NodeId, time: float) -> None:
        """Connections to the peer were reset or refused: a strong hint that its process has ended."""
        self._verify(node, time, self._options.reset_timeout, is_reset=True)

    def _look_for_departed(self) -> None:
        """Ping one of the peers that were evicted."""
        if not self._lost_round:
            self._lost_round.extend(
                self._shuffle(
                    [
                        node
                        for node, departed in self._table.departed.items()
                        if departed.departure is Departure.FAILED
                    ]
                )
            )
        if self._lost_round:
            departed = self._table.departed.get(self._lost_round.popleft())
            if departed is not None and departed.departure is Departure.FAILED:
                # Not a probe: silence is expected.
                self._ping(departed.peer, 0)

    # ── suspicions ────────────────────────────────────────────────────────────────────────────────

    def _suspect(self, node: NodeId, refutation: int, time: float) -> Suspicion:
        suspicion = Suspicion(refutation, time, (), is_reset=False, check_at=time)
        self.suspicions[node] = suspicion
        return suspicion

    def hear_suspected(self, update: Suspected, source: NodeId | None, time: float) -> None:
        """Handle the votes of others; `source` is the node that passed them on."""
        if update.node_id == self._table.own.node_id:
            self._refute(update)
            return
        if not self._table.is_current(update):
            self._show_evidence(update, source)
            return
        suspicion = self.suspicions.get(update.node_id)
        if suspicion is None:
            suspicion = self._suspect(update.node_id, update.refutation, time)
        elif update.refutation < suspicion.refutation:
            return
        elif update.refutation > suspicion.refutation:
            # What was said against the node has been refuted in between.
            suspicion.refutation, suspicion.votes = update.refutation, ()
        is_news = update.is_reset and not suspicion.is_reset
        suspicion.is_reset |= update.is_reset
        is_news |= self._add_votes(update.node_id, suspicion, update.votes)
        peer = self._table.view.get(update.node_id)
        if is_news and peer is not None:
            self._announce(peer, suspicion)
            self._consider_verifying(update.node_id, suspicion, time)

    def _refute(self, update: Suspected) -> None:
        if self._table.refute(update):
            self.health.worsen()
            self._gossip.add(self._table.own_update())

    def _show_evidence(self, update: Suspected, source: NodeId | None) -> None:
        """Tell a node that suspects a peer why that is no longer in the view."""
        departed = self._table.departed.get(update.node_id)
        if departed is None or source is None:
            return
        evidence = departed.evidence
        if departed.peer.incarnation != update.incarnation:
            return
        if isinstance(evidence, Suspected):
            # Only for more votes, so that two nodes with different evidence do not answer each other forever.
            enough = min(len(evidence.votes), self._options.votes_needed)
            if evidence.refutation != update.refutation or len(update.votes) >= enough:
                return
        self._send(source, Gossip((evidence,)))

    def _add_votes(self, node: NodeId, suspicion: Suspicion, votes: tuple[NodeId, ...]) -> bool:
        """Add votes, those that count first; return whether any is new and counts."""
        before = set(self._counted(node, suspicion.votes))
        merged = dict.fromkeys((*suspicion.votes, *votes))
        merged.pop(node, None)
        counted = self._counted(node, tuple(merged))
        rest = [voter for voter in merged if voter not in counted]
        suspicion.votes = (*counted, *rest)[:VOTES_MAX]
        return len(before) < self._options.votes_needed and not before.issuperset(counted)

    def _counted(self, node: NodeId, votes: tuple[NodeId, ...]) -> list[NodeId]:
        """Return the votes that count. FD3"""
        view, suspicions = self._table.view, self.suspicions
        return [
            voter for voter in votes if voter != node and voter in view and voter not in suspicions
        ]

    def _announce(self, peer: PeerAddress, suspicion: Suspicion) -> None:
        self._gossip.add(self._evidence(peer, suspicion))

    @staticmethod
    def _evidence(peer: PeerAddress, suspicion: Suspicion) -> Suspected:
        return Suspected(
            peer.node_id,
            peer.incarnation,
            suspicion.refutation,
            suspicion.votes,
            suspicion.is_reset,
        )

    def _consider_verifying(self, node: NodeId, suspicion: Suspicion, time: float) -> None:
        """Probe a suspected peer if this node is one of its nearest neighbours, or if the suspicion is old."""
        own = self._table.own.node_id
        if own in suspicion.votes:
            return
        is_old = time - suspicion.since >= self._options.review_age
        if is_old or own in self._verifiers(node):
            suspicion.check_at = time + self._options.review_interval
            timeout = self._options.verify_timeout
            if suspicion.is_reset:
                timeout = self._options.reset_timeout
            self._verify(node, time, timeout, suspicion.is_reset)

    def _verifiers(self, node: NodeId) -> list[NodeId]:
        count = self._options.verifiers
        nearest = self._table.view.neighbours(node, count + len(self.suspicions))
        return [each for each in nearest if each not in self.suspicions][:count]

    def _review(self, node: NodeId, time: float) -> None:
        """Evict a suspected peer if the votes suffice; check it again otherwise."""
        suspicion = self.suspicions[node]
        peer = self._table.view.get(node)
        if peer is None:
            del self.suspicions[node]
            return
        if self._is_convicted(node, suspicion, time):
            evidence = self._evidence(peer, suspicion)
            del self.suspicions[node]
            self._changes += self._table.evict(evidence, time)
            self._gossip.add(evidence)
        elif time >= suspicion.check_at:
            suspicion.check_at = time + self._options.review_interval
            if self._table.own.node_id in suspicion.votes:
                suspicion.check_at = time + self._options.recheck_interval
                if time >= max(suspicion.spread_at, suspicion.since + self._options.review_age):
                    suspicion.spread_at = time + self._options.review_age
                    self._announce(peer, suspicion)
                fail_at = time + self._options.probe_timeout * self.health.multiplier
                number = self._start(PeerProbe(peer, NEVER, fail_at))
                if number is not None:
                    self._ask_helpers(number, 1)
            else:
                self._consider_verifying(node, suspicion, time)

    def _is_convicted(self, node: NodeId, suspicion: Suspicion, time: float) -> bool:
        options, view = self._options, self._table.view
        age = time - suspicion.since
        votes = self._counted(node, suspicion.votes)
        needed = min(options.votes_needed, len(view) - 1)
        if needed > 1 and len(votes) >= needed:  # OFD1
            return age >= (options.reset_suspicion if suspicion.is_reset else options.suspicion)
        possible = len(view) - len(self.suspicions)
        if self._table.own.node_id in votes and len(votes) >= possible:  # OFD2
            if suspicion.is_reset:
                return age >= options.lone_reset_suspicion
            return age >= options.lone_suspicion * self.health.multiplier
        return False

    # ── news ──────────────────────────────────────────────────────────────────────────────────────

    def hear_alive(self, update: Alive) -> bool:
        """Handle that a node is alive; return whether it is news."""
        changes = self._table.hear_alive(update)
        if changes is None:
            return False
        self.suspicions.pop(update.peer.node_id, None)
        # What was asked before is answered herewith.
        for number, probe in list(self._probes.items()):
            if probe.target.node_id == update.peer.node_id:
                del self._probes[number]
        self._changes += changes
        self._gossip.add(update)
        return True

    def hear_left(self, update: Left, time: float) -> None:
        changes = self._table.hear_left(update, time)
        if changes is not None:
            self.suspicions.pop(update.node_id, None)
            self._changes += changes
            self._gossip.add(update)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def _ping(self, peer: PeerAddress, number: int) -> None:
        first = self._accusation(peer)
        updates = self._gossip.take(len(self._table.view), first)
        self._effects.append(SendTo(peer, DetectorPing(number, updates)))

    def _accusation(self, peer: PeerAddress) -> Update | None:
        """Return what is said against a peer, so that it can refute that."""
        suspicion = self.suspicions.get(peer.node_id)
        if suspicion is not None:
            return self._evidence(peer, suspicion)
        departed = self._table.departed.get(peer.node_id)
        if departed is not None and departed.peer == peer:
            return departed.evidence
        return None

    def acknowledge(self, peer: PeerAddress, number: int) -> None:
        """Answer a ping."""
        first = self._accusation(peer)
        updates = self._gossip.take(len(self._table.view), first)
        self._effects.append(SendTo(peer, Ack(number, self._table.refutation, updates)))

    def _updates_for(self, node: NodeId) -> tuple[Update, ...]:
        peer = self._table.view.get(node)
        first = self._accusation(peer) if peer else None
        return self._gossip.take(len(self._table.view), first)

    def _send(self, node: NodeId, message: MembershipMessage) -> None:
        peer = self._table.view.get(node)
        if peer is not None:
            self._effects.append(SendTo(peer, message))

    # ── choices ───────────────────────────────────────────────────────────────────────────────────

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _shuffle(self, nodes: list[NodeId]) -> list[NodeId]:
        for last in range(len(nodes) - 1, 0, -1):
            at = int(self._draw() * (last + 1))
            nodes[last], nodes[at] = nodes[at], nodes[last]
        return nodes

    def _choose(self, count: int, excluded: frozenset[NodeId]) -> list[NodeId]:
        """Choose random peers, those that are not suspected first."""
        peers = [
            node
            for node in self._table.view
            if node != self._table.own.node_id and node not in excluded
        ]
        trusted = [node for node in peers if node not in self.suspicions]
        pool = trusted if len(trusted) >= count else peers
        chosen: list[NodeId] = []
        while pool and len(chosen) < count:
            chosen.append(pool.pop(int(self._draw() * len(pool))))
        return chosen
