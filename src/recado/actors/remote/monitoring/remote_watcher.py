"""The remote watcher: heartbeats, failure detection, and signals between actors of two nodes.

relations.py holds the relations and decides, without I/O. This module calls it with events of links, timers and
peers, and applies the effects that it returns.

A node with which relations exist is pinged every `heartbeat_interval`. Any authentic frame counts as an answer.
After `failure_timeout` without one the node is unreachable, and the relations with it end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from recado.actors.address import Address
from recado.actors.ref import ActorRef
from recado.actors.remote.errors import (
    LinkLostError,
    MessageRefusedError,
    NodeReplacedError,
    RefusalReason,
    RemoteError,
)
from recado.actors.remote.events import NodeReachable, NodeReplaced, NodeUnreachable
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.outbound import Outbound
from recado.actors.remote.peer import Peer
from recado.actors.remote.peer_table import PeerTable
from recado.actors.remote.transport import PeerLink
from recado.actors.remote.wire.controls import (
    ActorIdentified,
    Control,
    Ping,
    RemoteSignal,
    encode_signal,
)
from recado.actors.remote.wire.frame import ALL_FRAMES_ID, encode_refusal
from recado.actors.supervision.signal_handler import absent_reply
from recado.actors.supervision.signals import CellSignal, Failed, Link, Stop, Tie, Unlink, Watch

from .relations import Effect, OrphanedChild, RelationTable, SignalDue, signal_undelivered

if TYPE_CHECKING:
    from recado.actors.runtime.clock import Timer
    from recado.actors.system import ActorSystem

RENAME_HINT: Final = "Give each node its own name."

log = logging.getLogger("recado.actors")


class RemoteWatcher:
    def __init__(
        self,
        system: ActorSystem,
        peer_table: PeerTable,
        outbound: Outbound,
        options: RemoteOptions,
    ) -> None:
        self._system = system
        self._peer_table = peer_table
        self._outbound = outbound
        self._options = options
        self._heartbeat_timer: Timer | None = None
        self.relations = RelationTable(options.max_remote_watches)

    def close(self) -> None:
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()

    # ── signals ───────────────────────────────────────────────────────────────────────────────────────────

    def send_signal(self, target: Address, address_text: str, signal: CellSignal) -> None:
        """Send a signal to a remote actor; `address_text` is its address as text."""
        try:
            peer = self._peer_table.peer(target.node)
            with self._monitoring(peer):
                state = self.relations.record_sent(self._system.ref(target), signal)
            # The sender of one of these has to learn if it is refused.
            if isinstance(signal, Watch | Link | Tie | Failed):
                peer.remember_signal(target, signal)
            message = encode_signal(signal, state.alias, state.token, state.uid)
            self._outbound.send_control(peer, message, address_text)
        except RemoteError as error:
            self.signal_undelivered(target, signal, str(error))

    def signal_undelivered(self, target: Address, signal: CellSignal, reason: str) -> None:
        """A signal certainly did not arrive. A relation stays until the node counts as unreachable: the node may return
        before."""
        if target.node not in self.relations.by_node:
            self.apply(signal_undelivered(self._system.ref(target), signal, reason))

    def signal_refused(self, target: Address, signal: CellSignal, error: Exception) -> None:
        """The node has refused a signal: the relation does not come into being."""
        remote = self._system.ref(target)
        self.relations.undo_sent(remote, signal)
        self.apply(signal_undelivered(remote, signal, str(error)))

    def add_supervised_child(self, child: ActorRef[Any], supervisor: ActorRef[Any]) -> None:
        """Record an actor that was started here for a remote supervisor. Raises LimitExceededError."""
        with self._monitoring(self._peer_table.peer(supervisor.address.node)):
            self.relations.add_supervised_child(child, supervisor)

    def signal_received(
        self,
        peer: Peer,
        local: ActorRef[Any],
        signal: CellSignal,
        target: Address,
        message: RemoteSignal,
    ) -> bool:
        """Record a signal for a local actor, which the peer addresses as `target`.

        Returns False if the signal must not be delivered. Raises LimitExceededError.
        """
        alias = "" if target.uid else str(target)
        with self._monitoring(peer):
            deliver = self.relations.record_received(local, signal, alias, message.token)
        if alias and not message.uid and isinstance(signal, Watch | Link | Tie):
            self._send_control(peer, ActorIdentified(str(local), message.token), message.ref)
        return deliver

    def answer_for_absent_actor(
        self, peer: Peer, target: Address, signal: CellSignal, message: RemoteSignal
    ) -> None:
        """Answer a signal for an actor that does not exist. The answer has the uid that was addressed, because another
        actor may have the name now."""
        system = self._system
        absent = Address(target.node, target.name, message.uid or target.uid)
        ref: ActorRef[Any] = ActorRef(target, system._dead_letter_office, system)
        answer = absent_reply(ref, signal, absent)
        if answer is not None:
            recipient, reply = answer
            self._send_control(peer, encode_signal(reply, token=message.token), str(recipient))

    def actor_identified(self, local: ActorRef[Any], remote: ActorRef[Any], token: int) -> None:
        """A peer reports the uid of an actor to which we created a relation by name."""
        address = remote.address
        named = self._system.ref(Address(address.node, address.name))
        self.relations.set_uid(local, named, address.uid, token)

    def _send_control(self, peer: Peer, control: Control, target: str) -> None:
        try:
            self._outbound.send_control(peer, control, target)
        except RemoteError as error:
            log.debug("cannot answer signal (node=%s): %s", peer.name, error)

    # ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _monitoring(self, peer: Peer) -> Iterator[None]:
        """If the first relation with this node is created within the block, start its failure detection."""
        was_monitored = peer.name in self.relations.by_node
        yield
        if not was_monitored and peer.name in self.relations.by_node:
            clock = self._system._clock
            peer.has_spoken, peer.last_heard = False, clock.time()
            if self._heartbeat_timer is None:
                self._heartbeat_timer = clock.call_later(
                    self._options.heartbeat_interval, self._send_heartbeats
                )

    def _send_heartbeats(self) -> None:
        self._heartbeat_timer = None
        now = self._system._clock.time()
        timeout = self._options.failure_timeout
        for name in list(self.relations.by_node):
            peer = self._peer_table.peer(name)
            if peer.has_spoken:
                peer.has_spoken, peer.last_heard = False, now
            if now - peer.last_heard >= timeout:
                self._mark_unreachable(peer, f"silent for {timeout:g} s (failure_timeout)")
            else:
                try:
                    self._outbound.send_control(peer, Ping())
                except RemoteError as error:
                    log.debug("cannot send heartbeat (node=%s): %s", name, error)
        if self.relations.by_node:
            self._heartbeat_timer = self._system._clock.call_later(
                self._options.heartbeat_interval, self._send_heartbeats
            )

    def _mark_unreachable(self, peer: Peer, reason: str) -> None:
        log.warning("node unreachable (node=%s): %s", peer.name, reason)
        peer.is_unreachable = True
        self._system._publish_event(NodeUnreachable(peer.name))
        self.apply(self.relations.node_unreachable(peer.name, reason))

    def update_peer(self, peer: Peer, link: PeerLink, incarnation: bytes) -> None:
        """Handle an authentic frame of a peer on another link, of another incarnation, or after unreachability.

        Raises NodeReplacedError.
        """
        if peer.incarnation not in (b"", incarnation) and not link.is_durable:
            self._supersede(peer, link)
        link_changed = peer.link is not None and peer.link is not link
        self._peer_table.adopt_link(peer, link)
        if peer.incarnation != incarnation:
            restarted = bool(peer.incarnation)
            self._peer_table.set_incarnation(peer, incarnation)
            self._renew_relations(peer, restarted=restarted)
        elif link_changed and peer.link is link:
            self._renew_relations(peer, restarted=False)
        if peer.is_unreachable:
            peer.is_unreachable = False
            self._system._publish_event(NodeReachable(peer.name))

    def _renew_relations(self, peer: Peer, *, restarted: bool) -> None:
        self.apply(self.relations.node_returned(peer.name, restarted=restarted))

    # ── links ─────────────────────────────────────────────────────────────────────────────────────────────

    def link_lost(self, link: PeerLink, reason: str) -> None:
        if not link.is_durable:
            for peer in self._peer_table.peers_on(link):
                self._fail_asks(peer, f"the link to {peer.name} was lost: {reason}")

    def link_restored(self, link: PeerLink) -> None:
        for peer in self._peer_table.peers_on(link):
            self._renew_relations(peer, restarted=False)

    def link_closed(self, link: PeerLink, reason: str) -> None:
        for peer in self._peer_table.peers_on(link):
            self._fail_asks(peer, f"the link to {peer.name} was closed: {reason}")
        self._peer_table.detach_link(link)

    def _fail_asks(self, peer: Peer, reason: str) -> None:
        self._outbound.pending_asks.fail_all(peer, lambda: LinkLostError(reason))

    # ── two nodes of one name ─────────────────────────────────────────────────────────────────────────────

    def is_superseded(self, peer: Peer, link: PeerLink) -> bool:
        """Whether frames of a past incarnation are refused on this link.

        They are accepted on a link that we opened: the node at the configured address is the right one, even if
        a stand-in with its name was there for a while.
        """
        return not link.is_durable and not (peer.connected_by_us and peer.link is link)

    def _supersede(self, peer: Peer, link: PeerLink) -> None:
        """Replace the known incarnation of a peer by another one that has connected.

        A broker ensures that there is one node of a name. Elsewhere the later one replaces the earlier one,
        unless that is at its configured address. Raises NodeReplacedError in that case.
        """
        known = peer.link
        if known is not None and known is not link:
            if peer.connected_by_us and known.is_up:
                raise NodeReplacedError(
                    f"{peer.name} is connected at its configured address. {RENAME_HINT}"
                )
            if not peer.connected_by_us:
                log.warning(
                    "node replaced: a later one of the same name has connected (node=%s). %s",
                    peer.name,
                    RENAME_HINT,
                )
                self._fail_asks(peer, f"{peer.name} was replaced by another node of that name")
                self._notify_replaced(known, peer.incarnation)
        peer.retire_incarnation()

    def _notify_replaced(self, link: PeerLink, incarnation: bytes) -> None:
        try:
            link.post(encode_refusal(incarnation, ALL_FRAMES_ID, RefusalReason.REPLACED))
        except RemoteError as error:
            log.debug("cannot notify replaced node (peer=%s): %s", link.peer or "unknown", error)

    def handle_own_replacement(self, peer: Peer) -> None:
        """A peer reports that another node with our name has replaced us."""
        log.error(
            "replaced by another node of the same name (name=%s at=%s): its frames to that node are refused "
            "until it is restarted. %s",
            self._system.name,
            peer.name,
            RENAME_HINT,
        )
        self._system._publish_event(NodeReplaced(peer.name))
        detail = f"another node named {self._system.name} has connected since. {RENAME_HINT}"
        self._outbound.pending_asks.fail_all(
            peer, lambda: MessageRefusedError(RefusalReason.REPLACED, detail)
        )
        if peer.link is not None:
            peer.link.close()  # as long as it is open, the peer accepts one-way messages on it

    # ── effects ───────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SignalDue(ref, signal):
                    ref._send_signal(signal)
                case OrphanedChild(child, supervisor, reason, supervisor_gone):
                    cell = self._system._find_cell(child.address)
                    if cell is not None and cell.is_suspended:
                        child._send_signal(Stop(reason))
                    elif supervisor_gone:
                        child._send_signal(Unlink(supervisor))
