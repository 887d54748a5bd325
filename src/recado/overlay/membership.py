"""Full membership: every node knows every other one. Joining, leaving, and keeping the views equal.

A joining node knows the address of any member. That member answers with the network id and with the lowest incarnation
that is new to the network; the joining node adopts both, asks for the state, and gossip announces it to the others.

Views are compared now and then: a node sends the digest of its view to a random peer; if the peer's differs, both
send their state to each other. So a node learns what gossip did not bring to it, and views that were apart merge.

The core has one timer. `handle` takes an event and the time, and returns effects and changes of the view, in the order
in which they happened. The code that runs it wraps each message in a `Packet` with the addresses of both nodes.

OMB1  Nothing that another network, an earlier incarnation or a node with a wrong id says has an effect; it is counted.
OMB2  A node is in the views of others only after it has said itself that it is alive, in its present incarnation.
MB3  A node that leaves is out of all views without a suspicion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct, structs

from .effects import SendTo, SetTimer, TimerExpired
from .failure_detector import DetectorOptions, SwimDetector
from .gossip_queue import GossipQueue
from .identifier import NodeId, node_id
from .membership_messages import (
    UPDATES_BYTES_MAX,
    UPDATES_MAX,
    Ack,
    Alive,
    DetectorPing,
    Gossip,
    JoinReply,
    JoinRequest,
    Left,
    MemberMessage,
    MembershipMessage,
    Nack,
    PingRequest,
    RelayedAck,
    Suspected,
    SyncRequest,
    SyncState,
    Update,
    size_bytes,
)
from .own_time import OwnTime
from .packet import ANY_INCARNATION, ANY_NETWORK, PROTOCOL_VERSION, Admission, Packet, Refusal
from .peer_address import Incarnation, NetworkId, PeerAddress
from .peer_table import MemberTable
from .peer_view import PeerView, ViewChange

Body = TypeVar("Body")
TIMER: Final = "membership"
JOIN_INTERVAL_S: Final = 0.5
"""Between requests of a joining node, to one contact after the other."""
SYNC_INTERVAL_S: Final = 5.0
"""Between comparisons of the view with that of a random peer."""
SYNC_SOON_S: Final = 0.5
"""From joining to the first comparison: until all knew this node, news has passed it by."""
LEAVE_S: Final = 0.5
"""From the announcement of leaving to the end, for gossip to pass it on."""
LEAVE_COPIES_MAX: Final = 16
SYNC_PARTS_MAX: Final = 4_096


class MembershipOptions(Struct, frozen=True):
    secret: bytes = b""
    join_timeout: float = 10.0
    """Seconds to look for a contact before `JoinFailed`."""
    detector: DetectorOptions = DetectorOptions()


# ── events ────────────────────────────────────────────────────────────────────────────────────────


class Start(Struct, frozen=True):
    """Start a network with this node as its first."""

    network_id: NetworkId


class Join(Struct, frozen=True):
    """Join the network of one of the nodes at these addresses."""

    contacts: tuple[str, ...]


class Leave(Struct, frozen=True):
    """Announce that this node leaves; `Departed` follows."""


class MessageReceived(Struct, frozen=True):
    packet: Packet[MembershipMessage]


class PeerReset(Struct, frozen=True):
    """A connection to the peer was reset, or a new one refused."""

    peer: PeerAddress


MembershipEvent = Start | Join | Leave | MessageReceived | PeerReset | TimerExpired


# ── effects ───────────────────────────────────────────────────────────────────────────────────────


class Joined(Struct, frozen=True):
    """The node is a member and knows the state of the contact that it joined through."""

    own: PeerAddress


class JoinFailed(Struct, frozen=True):
    """No contact has answered within `join_timeout`."""

    contacts: tuple[str, ...]


class Departed(Struct, frozen=True):
    """The node has left, and may stop."""


class Superseded(Struct, frozen=True):
    """A later incarnation of this node is in the network; this one is ignored by all, and must stop."""

    incarnation: Incarnation


MembershipEffect = (
    SendTo[MembershipMessage] | SetTimer | ViewChange | Joined | JoinFailed | Departed | Superseded
)


class Joining(Struct):
    contacts: tuple[str, ...]
    give_up_at: float
    ask_at: float
    asked: int = 0
    contact: PeerAddress | None = None
    """The member whose state this node waits for."""
    missing: set[int] | None = None
    """Parts of that state; None before the first arrives."""


class Membership:
    def __init__(
        self,
        address: str,
        incarnation: Incarnation,
        draw: Callable[[], float],
        now: float,
        options: MembershipOptions | None = None,
    ) -> None:
        """`draw` returns random numbers from 0 to 1. Raises InvalidAddressError."""
        self.options = options or MembershipOptions()
        self.admission = Admission(self.options.secret)
        own = PeerAddress(node_id(self.options.secret, address), incarnation, ANY_NETWORK, address)
        self._draw = draw
        self._time = OwnTime(now)
        self._joining: Joining | None = None
        self._leaving_until: float | None = None
        self._is_ended = False
        self._sync_at = SYNC_INTERVAL_S
        self._effects: list[MembershipEffect] = []
        self._assemble(own)

    def _assemble(self, own: PeerAddress) -> None:
        self._table = MemberTable(own, self.admission)
        self._gossip = GossipQueue()
        self._detector = SwimDetector(
            self._table, self._gossip, self.admission, self.options.detector, self._draw
        )

    # ── what the upper layers ask ─────────────────────────────────────────────────────────────────

    @property
    def own(self) -> PeerAddress:
        return self._table.own

    @property
    def view(self) -> PeerView:
        """The peers believed to be alive, suspected ones included. Only this core changes it."""
        return self._table.view

    @property
    def suspects(self) -> Sequence[NodeId]:
        """The peers that are suspected at present."""
        return list(self._detector.suspicions)

    @property
    def refutation(self) -> int:
        """How many suspicions against itself this node has refuted."""
        return self._table.refutation

    @property
    def health_score(self) -> int:
        """0 if this node trusts its own observations, up to 8."""
        return self._detector.health.score

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: MembershipEvent, now: float) -> list[MembershipEffect]:
        if self._time.advance(now):
            self._detector.stall()
        if not self._is_ended:
            match event:
                case Start(network_id):
                    self._adopt(network_id, self.own.incarnation)
                    self._effects.append(Joined(self.own))
                    self._set_timer()
                case Join(contacts):
                    self._join(contacts)
                    self._set_timer()
                case Leave():
                    self._leave()
                case MessageReceived(packet):
                    self._receive(packet)
                case PeerReset(peer):
                    if self.view.get(peer.node_id) == peer:
                        self._detector.reset(peer.node_id, self._time.time)
                case TimerExpired(name):
                    if name == TIMER:
                        self._tick()
        self._collect()
        effects, self._effects = self._effects, []
        return effects

    def _collect(self) -> None:
        """Append what the detector has done."""
        self._effects += self._detector.take_changes()
        self._effects += self._detector.take_effects()

    def _set_timer(self) -> None:
        self._effects.append(SetTimer(TIMER, self.options.detector.tick))

    def _tick(self) -> None:
        time = self._time.time
        if self._leaving_until is not None and time >= self._leaving_until:
            self._is_ended = True
            self._effects.append(Departed())
            return
        if self._joining is not None:
            self._continue_joining(self._joining)
            if self._is_ended:
                return
        if self.own.network_id != ANY_NETWORK:
            self._detector.tick(time)
            if time >= self._sync_at:
                self._sync_at = time + SYNC_INTERVAL_S
                self._table.forget_departed(time)
                self._sync_with_random_peer()
        self._set_timer()

    # ── joining and leaving ───────────────────────────────────────────────────────────────────────

    def _adopt(self, network_id: NetworkId, incarnation: Incarnation) -> None:
        """Become a member of a network."""
        own = structs.replace(self.own, network_id=network_id, incarnation=incarnation)
        self._assemble(own)

    def _join(self, contacts: tuple[str, ...]) -> None:
        time = self._time.time
        self._joining = Joining(contacts, time + self.options.join_timeout, time)
        self._continue_joining(self._joining)

    def _continue_joining(self, joining: Joining) -> None:
        time = self._time.time
        if joining.contact is None and time >= joining.give_up_at:
            self._is_ended = True
            self._effects.append(JoinFailed(joining.contacts))
        elif time >= joining.ask_at:
            joining.ask_at = time + JOIN_INTERVAL_S
            if joining.contact is None:
                address = joining.contacts[joining.asked % len(joining.contacts)]
                joining.asked += 1
                contact = PeerAddress(
                    node_id(self.options.secret, address), ANY_INCARNATION, ANY_NETWORK, address
                )
                self._effects.append(SendTo(contact, JoinRequest()))
            else:
                # The state is not complete yet; the contact may have failed meanwhile.
                contacts = [peer for peer in self.view.peers() if peer != self.own]
                if contacts:
                    chosen = contacts[int(self._draw() * len(contacts))]
                    joining.missing = None
                    joining.contact = chosen
                    self._effects.append(SendTo(chosen, SyncRequest(self._table.digest())))

    def _accept_join_reply(self, contact: PeerAddress, reply: JoinReply) -> None:
        joining = self._joining
        if joining is None or joining.contact is not None:
            return
        incarnation = max(self.own.incarnation, reply.incarnation)
        self._adopt(contact.network_id, Incarnation(incarnation))
        joining.contact = contact
        joining.ask_at = self._time.time + JOIN_INTERVAL_S
        self._detector.hear_alive(Alive(contact))
        self._gossip.add(self._table.own_update())
        self._effects.append(SendTo(contact, SyncRequest(self._table.digest())))

    def _leave(self) -> None:
        """Announce it to some peers at once; gossip passes it on."""
        if self._leaving_until is None:
            self._leaving_until = self._time.time + LEAVE_S
            self._gossip.add(Left(self.own.node_id, self.own.incarnation))
            self._detector.spread(LEAVE_COPIES_MAX)

    # ── messages ──────────────────────────────────────────────────────────────────────────────────

    def admits(self, packet: Packet[Any]) -> bool:
        """Whether a present member of this network has sent a packet, of any layer, to this node as it is now."""
        if not self.admission.admits(packet, self.own):
            return False
        if ANY_NETWORK in (packet.source.network_id, self.own.network_id):
            return self.admission.refuse(Refusal.UNEXPECTED)
        return self._is_present(packet.source)

    def wrap(self, effect: SendTo[Body]) -> Packet[Body]:
        """Return the packet for a message that is to be sent."""
        to = effect.to
        return Packet(PROTOCOL_VERSION, self.own, to.node_id, to.incarnation, effect.message)

    def _receive(self, packet: Packet[MembershipMessage]) -> None:
        source, message = packet.source, packet.body
        if not isinstance(message, JoinRequest | JoinReply):
            if self.admits(packet):
                self._receive_from_member(source, message)
        elif self.admission.admits(packet, self.own):
            if isinstance(message, JoinRequest):
                self._admit_newcomer(source)
            elif source.network_id != ANY_NETWORK:
                self._accept_join_reply(source, message)

    def _receive_from_member(self, source: PeerAddress, message: MemberMessage) -> None:
        time, detector = self._time.time, self._detector
        match message:
            case DetectorPing(number, updates):
                self._hear(updates, source)
                detector.acknowledge(source, number)
            case Ack(number, refutation, updates):
                was_known = source.node_id in self.view
                detector.answered(number, source, refutation)
                self._hear(updates, source)
                if not was_known and source.node_id in self.view:
                    # A partition has healed.
                    self._effects.append(SendTo(source, SyncRequest(self._table.digest())))
            case PingRequest(_, target, updates):
                self._hear(updates, source)
                if target.network_id == self.own.network_id and self.admission.is_genuine(target):
                    detector.serve(source, message, time)
            case RelayedAck(number, refutation):
                detector.answered_to_helper(number, refutation)
            case Nack(number):
                detector.missed(number)
            case Gossip(updates):
                self._hear(updates, source)
            case SyncRequest(digest):
                if digest == self._table.digest():
                    # One empty part: nothing is missing.
                    self._effects.append(SendTo(source, SyncState(0, 1, (), is_answer=True)))
                else:
                    self._send_state(source, is_answer=False)
            case SyncState(part, parts, updates, is_answer):
                self._hear(updates, source)
                if not is_answer and part == 0:
                    self._send_state(source, is_answer=True)
                self._count_part(source, part, parts)

    def _admit_newcomer(self, source: PeerAddress) -> None:
        if self.own.network_id == ANY_NETWORK or self._leaving_until is not None:
            return
        known = self._table.incarnation_of(source.node_id)
        lowest = source.incarnation if known is None else max(source.incarnation, known + 1)
        self._effects.append(SendTo(source, JoinReply(Incarnation(lowest))))

    def _is_present(self, source: PeerAddress) -> bool:
        """Whether the source is not a former incarnation; enter it into the view if it is new."""
        known = self._table.incarnation_of(source.node_id)
        if known is not None and source.incarnation < known:
            return self.admission.refuse(Refusal.STALE_SOURCE)
        if known is None or source.incarnation > known:
            self._detector.hear_alive(Alive(source))
        return True

    def _hear(self, updates: tuple[Update, ...], source: PeerAddress) -> None:
        for update in updates:
            match update:
                case Alive(peer):
                    if peer.node_id == self.own.node_id and peer.incarnation > self.own.incarnation:
                        self._is_ended = True
                        self._effects.append(Superseded(peer.incarnation))
                    else:
                        self._detector.hear_alive(update)
                case Suspected():
                    self._detector.hear_suspected(update, source.node_id, self._time.time)
                case Left(node):
                    if node == self.own.node_id:
                        continue
                    self._detector.hear_left(update, self._time.time)

    # ── comparing views ───────────────────────────────────────────────────────────────────────────

    def _sync_with_random_peer(self) -> None:
        others = [peer for peer in self.view.peers() if peer != self.own]
        if others:
            chosen = others[int(self._draw() * len(others))]
            self._effects.append(SendTo(chosen, SyncRequest(self._table.digest())))

    def _send_state(self, to: PeerAddress, *, is_answer: bool) -> None:
        parts = split(list(self._table.state()))
        for part, updates in enumerate(parts):
            self._effects.append(SendTo(to, SyncState(part, len(parts), updates, is_answer)))

    def _count_part(self, source: PeerAddress, part: int, parts: int) -> None:
        """Finish joining when all parts of the contact's state have arrived."""
        joining = self._joining
        if joining is None or source != joining.contact or parts > SYNC_PARTS_MAX:
            return
        if joining.missing is None:
            joining.missing = set(range(parts))
        joining.missing.discard(part)
        if not joining.missing:
            self._joining = None
            self._sync_at = self._time.time + SYNC_SOON_S
            self._collect()
            self._effects.append(Joined(self.own))


def split(updates: Sequence[Update]) -> list[tuple[Update, ...]]:
    """Split updates into as few messages as possible, at least one."""
    parts: list[list[Update]] = [[]]
    room = UPDATES_BYTES_MAX
    for update in updates:
        size = size_bytes(update)
        if size > room or len(parts[-1]) == UPDATES_MAX:
            parts.append([])
            room = UPDATES_BYTES_MAX
        room -= size
        parts[-1].append(update)
    return [tuple(part) for part in parts]
