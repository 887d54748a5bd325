"""Checks what nodes report about their peers against what has really happened, without knowledge of the protocol.

A node is *sound* at a time if it runs, and neither it nor all of its network has a fault, nor had one within the last
`GRACE_S`. Two nodes are *connected* if no fault separates them; one bad link does not, since others can help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct, field

from recado.overlay.identifier import NodeId
from recado.overlay.membership import Departed, Joined, JoinFailed, Membership
from recado.overlay.membership_messages import MembershipMessage
from recado.overlay.packet import Packet
from recado.overlay.peer_address import PeerAddress
from recado.overlay.peer_view import Departure, PeerAdded, PeerRemoved

from . import script as s

GRACE_S: Final = 2.5
SILENT_LIMIT_S: Final = 3.0
RESET_LIMIT_S: Final = 1.0
LATEST_FACTOR: Final = 1.5
"""No detection at all takes longer than so many times the limit of 99 %."""
SUSPECTED_MAX_S: Final = 2.5
"""A sound node does not remain suspected by a sound one for longer."""
LEAVE_LIMIT_S: Final = 2.0
JOIN_LIMIT_S: Final = 3.0
SENT_PER_SECOND: Final = 120
SENT_PER_SECOND_AND_NODE: Final = 12
"""The largest number of packets that a node sends in a second: a constant, and a part for each node of the network,
which is that of syncs, failures of many nodes at once, and merging partitions."""
SENT_AT_REST: Final = 35
"""The same when nothing has happened for long, `REST_S` before the end: pings, looking for failed nodes, a sync."""
REST_S: Final = 3.0
REFUTATIONS_MAX: Final = 3
"""Of a sound node, in one world: a node in trouble must not harass others. One more for three that lose packets."""
FEW_REFUTATIONS_MAX: Final = 8
"""The same in networks of two or three nodes that lose packets: there is one helper at most."""


class Rule(Enum):
    ACCURACY = "accuracy"
    """No sound node is evicted by a node that is connected with it, even if that node loses packets or stalls."""
    DETECTION = "detection"
    """Every sound node evicts a failed node, within one and a half times the limits."""
    CONVERGENCE = "convergence"
    """In the end all views are equal to the set of running nodes, in their present incarnations."""
    DOUBT = "doubt"
    """A sound node does not remain suspected by a sound node."""
    NOISE = "noise"
    """A node in trouble does not make sound ones refute suspicions again and again."""
    INCARNATION = "incarnation"
    """No view goes back to an earlier incarnation."""
    FOREIGN = "foreign"
    """No node of another network, and none with a wrong id, is ever in a view; such claims are counted."""
    LEAVE = "leave"
    """A node that leaves is out of all views soon, without being held for failed."""
    JOIN = "join"
    """A node that joins is in all views soon."""
    TRAFFIC = "traffic"
    """No node sends more packets in a second than the limit."""
    SIZE = "size"
    """Every packet fits a datagram."""


class Violation(Struct, frozen=True):
    rule: Rule
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.rule.value}: at {self.at:.3f} s {self.what}"


class Verdict(Struct):
    violations: list[Violation] = field(default_factory=list)
    silent: list[float] = field(default_factory=list)
    """Seconds from each silent crash to its detection, by each node."""
    reset: list[float] = field(default_factory=list)
    sent_max: int = 0
    """Packets of one node in one second."""
    counts: Counter[str] = field(default_factory=Counter)


class Judge:
    def __init__(self, script: s.Script) -> None:
        self.verdict = Verdict()
        self._script = script
        self._ids: dict[NodeId, int] = {}
        self._views: dict[int, dict[int, PeerAddress]] = {}
        """What each node has reported, by number of the peer."""
        self._highest: dict[tuple[int, int], int] = {}
        self._suspected_since: dict[tuple[int, int], float] = {}
        self._blamed: set[tuple[int, int]] = set()
        self._joined: dict[int, float] = {}
        self._evicted: dict[tuple[int, int], float] = {}
        """When an observer last removed a peer."""

    def _violated(self, rule: Rule, at: float, what: str) -> None:
        self.verdict.violations.append(Violation(rule, at, what))

    # ── the truth ─────────────────────────────────────────────────────────────────────────────────

    def _is_sound(self, node: int, at: float) -> bool:
        for fault in self._script.faults:
            match fault:
                case s.Kill(at=start, node=struck) | s.Leave(at=start, node=struck):
                    until = _revival(self._script, struck, start) + GRACE_S
                case (
                    s.Stall(at=start, node=struck, until=end)
                    | s.Lossy(at=start, node=struck, until=end)
                    | s.Slow(at=start, node=struck, until=end)
                    | s.Isolate(at=start, node=struck, until=end)
                ):
                    until = end + GRACE_S
                case s.Jump(at=start, node=struck):
                    until = start + GRACE_S
                case _:
                    continue
            if struck == node and start <= at <= until:
                return False
        return True

    def _is_connected(self, one: int, other: int, at: float) -> bool:
        for fault in self._script.faults:
            match fault:
                case s.Partition(at=start, nodes=side, until=until):
                    is_apart = (one in side) != (other in side)
                case s.Isolate(at=start, node=node, until=until):
                    is_apart = node in (one, other)
                case s.LossyLink(at=start, nodes=nodes, until=until, ratio=1.0):
                    # Without a third node nobody can help; a partition may separate both from all others.
                    is_alone = self._script.size == 2 or any(
                        isinstance(other_fault, s.Partition | s.Isolate)
                        for other_fault in self._script.faults
                    )
                    is_apart = is_alone and {one, other} == set(nodes)
                case _:
                    continue
            if is_apart and start <= at <= until + GRACE_S:
                return False
        return True

    # ── what nodes report ─────────────────────────────────────────────────────────────────────────

    def observe(self, now: float, observer: int, own: PeerAddress, effect: object) -> None:
        match effect:
            case Joined():
                self._joined[observer] = now
                self._views.setdefault(observer, {})
            case JoinFailed():
                self._violated(Rule.JOIN, now, f"n{observer} has found no contact")
            case Departed():
                self._views.pop(observer, None)
            case PeerAdded(peer):
                self._check_origin(now, observer, own, peer)
                number = _number(peer)
                pair = (observer, number)
                if peer.incarnation < self._highest.get(pair, 0):
                    what = f"n{observer} has gone back to {peer.incarnation} of n{number}"
                    self._violated(Rule.INCARNATION, now, what)
                self._highest[pair] = peer.incarnation
                self._views.setdefault(observer, {})[number] = peer
            case PeerRemoved(peer, departure):
                number = _number(peer)
                self._views.setdefault(observer, {}).pop(number, None)
                self._judge_removal(now, observer, number, departure)
            case _:
                pass

    def _check_origin(self, now: float, observer: int, own: PeerAddress, peer: PeerAddress) -> None:
        is_member = _number(peer) < len(self._script.rates)
        if peer.network_id != own.network_id or not is_member:
            self._violated(Rule.FOREIGN, now, f"n{observer} has let {peer} in")

    def _judge_removal(self, now: float, observer: int, node: int, departure: Departure) -> None:
        self._evicted[observer, node] = now
        self.verdict.counts[departure.value] += 1
        if departure is not Departure.FAILED:
            return
        if any(isinstance(each, s.Leave) and each.node == node for each in self._script.faults):
            self._violated(Rule.LEAVE, now, f"n{observer} holds n{node} for failed, which left")
        elif self._is_sound(node, now) and self._is_connected(observer, node, now):
            self._violated(Rule.ACCURACY, now, f"n{observer} evicted n{node}, which is sound")
        for fault in self._script.faults:
            if isinstance(fault, s.Kill) and fault.node == node and fault.at <= now:
                self._take_latency(fault, observer, now)

    def _take_latency(self, kill: s.Kill, observer: int, now: float) -> None:
        if self._script.is_calm and self._is_sound(observer, now):
            samples = self.verdict.reset if kill.is_reset else self.verdict.silent
            samples.append(now - kill.at)

    def sample_suspects(self, now: float, observer: int, core: Membership) -> None:
        suspects = {self._number_of(core, node) for node in core.suspects}
        for pair in [pair for pair in self._suspected_since if pair[0] == observer]:
            if pair[1] not in suspects:
                del self._suspected_since[pair]
        for node in suspects:
            pair = (observer, node)
            is_peaceful = self._is_sound(node, now) and self._is_sound(observer, now)
            if not is_peaceful or not self._is_connected(observer, node, now):
                self._suspected_since.pop(pair, None)
                continue
            since = self._suspected_since.setdefault(pair, now)
            if now - since > SUSPECTED_MAX_S and pair not in self._blamed:
                self._blamed.add(pair)
                what = f"n{observer} suspects n{node}, which is sound, since {since:.2f}"
                self._violated(Rule.DOUBT, now, what)

    def _number_of(self, core: Membership, node: NodeId) -> int:
        peer = core.view.get(node)
        assert peer is not None, "only members of the view are suspected"
        return _number(peer)

    def found_oversized(self, now: float, packet: Packet[MembershipMessage], size: int) -> None:
        self._violated(Rule.SIZE, now, f"{type(packet.body).__name__} of {size} bytes")

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def finish(
        self, now: float, running: Mapping[int, Membership], sent: Counter[tuple[int, int]]
    ) -> None:
        self._judge_convergence(now, running)
        self._judge_crashes(now, running)
        self._judge_leaving(now)
        self._judge_joining(now)
        self._judge_noise(now, running)
        self._judge_refusals(now, running)
        self.verdict.sent_max = max(sent.values(), default=0)
        most = SENT_PER_SECOND + SENT_PER_SECOND_AND_NODE * self._script.size
        for (second, node), count in sorted(sent.items()):
            is_at_rest = second >= self._script.end - REST_S
            if count > (SENT_AT_REST if is_at_rest else most):
                self._violated(Rule.TRAFFIC, second, f"n{node} sent {count} packets in a second")

    def _judge_convergence(self, now: float, running: Mapping[int, Membership]) -> None:
        expected = sorted((core.own for core in running.values()), key=lambda peer: peer.node_id)
        for number, core in sorted(running.items()):
            if core.view.peers() != expected:
                differ = set(core.view.peers()) ^ set(expected)
                texts = sorted(f"{peer.address}#{peer.incarnation}" for peer in differ)
                what = f"the view of n{number} differs in {', '.join(texts)}"
                self._violated(Rule.CONVERGENCE, now, what)
            if core.suspects:
                self._violated(Rule.CONVERGENCE, now, f"n{number} still suspects a peer")

    def _judge_crashes(self, now: float, running: Mapping[int, Membership]) -> None:
        for kill in self._script.faults:
            if not isinstance(kill, s.Kill):
                continue
            limit = LATEST_FACTOR * (RESET_LIMIT_S if kill.is_reset else SILENT_LIMIT_S)
            if (
                now < kill.at + limit
                or _revival(self._script, kill.node, kill.at) < kill.at + limit
            ):
                continue
            for observer in running:
                if not self._was_at_peace(observer, kill.at, kill.at + limit):
                    continue
                gone = self._evicted.get((observer, kill.node))
                if gone is None or gone > kill.at + limit:
                    when = "not" if gone is None else f"after {gone - kill.at:.2f} s"
                    what = f"n{observer} has noticed the end of n{kill.node} {when}"
                    self._violated(Rule.DETECTION, now, what)

    def _was_at_peace(self, node: int, start: float, end: float) -> bool:
        """Whether no other fault than a crash may have delayed what a node knows."""
        joined = self._joined.get(node, end)
        return joined < start and not any(
            not isinstance(fault, s.Kill | s.Restart | s.Reuse | s.Forge)
            and fault.at < end
            and getattr(fault, "until", fault.at) + GRACE_S > start
            for fault in self._script.faults
        )

    def _judge_leaving(self, now: float) -> None:
        for leave in self._script.faults:
            if not isinstance(leave, s.Leave):
                continue
            for observer in sorted(self._views):
                gone = self._evicted.get((observer, leave.node))
                if gone is not None and gone > leave.at + LEAVE_LIMIT_S:
                    what = f"n{observer} has noticed after {gone - leave.at:.2f} s that n{leave.node} left"
                    self._violated(Rule.LEAVE, now, what)

    def _judge_joining(self, now: float) -> None:
        for join in self._script.faults:
            match join:
                case s.JoinLate(at=at, node=node) | s.Restart(at=at, node=node):
                    joined = self._joined.get(node)
                    if joined is None or joined > at + JOIN_LIMIT_S:
                        self._violated(Rule.JOIN, now, f"n{node} has not joined in time")
                case _:
                    pass

    def _judge_noise(self, now: float, running: Mapping[int, Membership]) -> None:
        faults = self._script.faults
        # Of two nodes that lose packets, or need long for them, it cannot be said which one is in trouble.
        is_clear = all(
            isinstance(fault, s.Stall) or (isinstance(fault, s.Slow) and fault.delay <= 0.2)
            for fault in faults
        )
        for number, core in sorted(running.items()):
            is_troubled = any(
                number == getattr(fault, "node", None) and not isinstance(fault, s.Forge)
                for fault in faults
            )
            most = REFUTATIONS_MAX if self._script.size > 3 or is_clear else FEW_REFUTATIONS_MAX
            most += sum(isinstance(fault, s.Lossy) for fault in faults) // 3
            is_judged = self._script.size > 2 or is_clear
            if is_judged and not is_troubled and core.refutation > most:
                what = f"n{number} had to refute {core.refutation} suspicions"
                self._violated(Rule.NOISE, now, what)
            self.verdict.counts["refutations"] += core.refutation

    def _judge_refusals(self, now: float, running: Mapping[int, Membership]) -> None:
        for fault in self._script.faults:
            if isinstance(fault, s.Forge) and fault.node in running:
                core = running[fault.node]
                if core.admission.refused.total() < 5:
                    self._violated(Rule.FOREIGN, now, f"n{fault.node} has not counted forgeries")

    def check_stranger(self, now: float, core: Membership) -> None:
        if len(core.view) != 1:
            self._violated(Rule.FOREIGN, now, "a node of another network has let members in")


def percentile(samples: list[float], percent: int) -> float:
    """Return the value that so many percent of the samples do not exceed; 0 without samples."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0.0


def _number(peer: PeerAddress) -> int:
    return int(peer.address[1:].partition(":")[0])


def _revival(script: s.Script, node: int, since: float) -> float:
    """Return when a node is started again; infinity if never."""
    starts = [
        fault.at
        for fault in script.faults
        if isinstance(fault, s.Restart) and fault.node == node and fault.at > since
    ]
    return min(starts, default=float("inf"))
