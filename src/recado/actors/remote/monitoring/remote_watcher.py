"""Who is there: signs of life, links that are lost and come back, and signals between actors of two nodes.

The rules are those of watch.py; here are the clock, the links, and the actors that are told.
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
from recado.actors.supervision.signals import CellSignal, Failed, Stop, Tie, Unlink, Watch
from recado.actors.supervision.signals import Link as LinkSignal

from .relations import Effect, OrphanedChild, RelationTable, SignalDue, signal_undelivered

if TYPE_CHECKING:
    from recado.actors.runtime.clock import Timer
    from recado.actors.system import ActorSystem

RENAME_HINT: Final = "Give each node a name of its own."

log = logging.getLogger("recado.actors")


class RemoteWatcher:
    def __init__(
        self, system: ActorSystem, peer_table: PeerTable, outbound: Outbound, options: RemoteOptions
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

    # ── signals to other nodes ────────────────────────────────────────────────────────────────────────────

    def send_signal(self, target: Address, address_text: str, signal: CellSignal) -> None:
        try:
            peer = self._peer_table.peer(target.node)
            with self._monitoring(peer):
                state = self.relations.record_sent(self._system.ref(target), signal)
            # Of these somebody has to hear if they are refused.
            if isinstance(signal, Watch | LinkSignal | Tie | Failed):
                peer.remember_signal(target, signal)
            message = encode_signal(signal, state.alias, state.token, state.uid)
            self._outbound.send_control(peer, message, address_text)
        except RemoteError as error:
            self.signal_undelivered(target, signal, str(error))

    def signal_undelivered(self, target: Address, signal: CellSignal, reason: str) -> None:
        """It certainly did not arrive. What it bound stays bound until the node is given up: it may come
        back."""
        if target.node not in self.relations.by_node:
            self.apply(signal_undelivered(self._system.ref(target), signal, reason))

    def signal_refused(self, target: Address, signal: CellSignal, error: Exception) -> None:
        """The node is there, and does not want it: what was to be bound is not."""
        remote = self._system.ref(target)
        self.relations.undo_sent(remote, signal)
        self.apply(signal_undelivered(remote, signal, str(error)))

    def add_supervised_child(self, child: ActorRef[Any], supervisor: ActorRef[Any]) -> None:
        """An actor was started here for a supervisor there. Raises Full."""
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
        """A signal came for an actor of ours, which they call by `target`. False: it must not hear of it.
        Raises Full."""
        alias = "" if target.uid else str(target)
        with self._monitoring(peer):
            deliver = self.relations.record_received(local, signal, alias, message.token)
        if alias and not message.uid and isinstance(signal, Watch | LinkSignal | Tie):
            self._send_control(peer, ActorIdentified(str(local), message.token), message.ref)
        return deliver

    def answer_for_absent_actor(
        self, peer: Peer, target: Address, signal: CellSignal, message: RemoteSignal
    ) -> None:
        """A signal came for an actor that is not there; if it names a uid, perhaps another has its name."""
        system = self._system
        gone = Address(target.node, target.name, message.uid or target.uid)
        answer = absent_reply(ActorRef(target, system._dead_letter_office, system), signal, gone)
        if answer is not None:
            to, reply = answer
            self._send_control(peer, encode_signal(reply, token=message.token), str(to))

    def actor_identified(self, local: ActorRef[Any], remote: ActorRef[Any], token: int) -> None:
        """The node of an actor that we bound by its name says which one that is."""
        address = remote.address
        named = self._system.ref(Address(address.node, address.name))
        self.relations.set_uid(local, named, address.uid, token)

    def _send_control(self, peer: Peer, control: Control, target: str) -> None:
        try:
            self._outbound.send_control(peer, control, target)
        except RemoteError as error:
            log.debug("%s cannot be answered: %s", peer.name, error)

    # ── signs of life ─────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _monitoring(self, peer: Peer) -> Iterator[None]:
        """Within it, bonds with this node may come about: then its silence counts from now on."""
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
        for name in list(self.relations.by_node):
            peer = self._peer_table.peer(name)
            if peer.has_spoken:
                peer.has_spoken, peer.last_heard = False, now
            if now - peer.last_heard >= self._options.failure_timeout:
                self._mark_unreachable(peer, f"silent for {self._options.failure_timeout:g} s")
            else:
                try:
                    self._outbound.send_control(peer, Ping())
                except RemoteError as error:
                    log.debug("%s cannot be asked for a sign of life: %s", name, error)
        if self.relations.by_node:
            self._heartbeat_timer = self._system._clock.call_later(
                self._options.heartbeat_interval, self._send_heartbeats
            )

    def _mark_unreachable(self, peer: Peer, reason: str) -> None:
        log.warning("node %s is unreachable: %s", peer.name, reason)
        peer.is_unreachable = True
        self._system._publish_event(NodeUnreachable(peer.name))
        self.apply(self.relations.node_unreachable(peer.name, reason))

    def update_peer(self, peer: Peer, link: PeerLink, incarnation: bytes) -> None:
        """An authentic frame of it came, and it is not as we know it: on another link, of another life. Raises
        Replaced."""
        if peer.incarnation not in (b"", incarnation) and not link.is_durable:
            self._supersede(peer, link)
        moved = peer.link is not None and peer.link is not link
        self._peer_table.adopt_link(peer, link)
        if peer.incarnation != incarnation:
            restarted = bool(peer.incarnation)
            self._peer_table.set_incarnation(peer, incarnation)
            self._restore_relations(peer, restarted=restarted)
        elif moved and peer.link is link:
            self._restore_relations(peer, restarted=False)
        if peer.is_unreachable:
            peer.is_unreachable = False
            self._system._publish_event(NodeReachable(peer.name))

    def _restore_relations(self, peer: Peer, *, restarted: bool) -> None:
        self.apply(self.relations.node_returned(peer.name, restarted=restarted))

    # ── links ─────────────────────────────────────────────────────────────────────────────────────────────

    def link_lost(self, link: PeerLink, reason: str) -> None:
        if not link.is_durable:
            for peer in self._peer_table.peers_on(link):
                self._fail_asks(peer, f"the link to {peer.name} was cut: {reason}")

    def link_restored(self, link: PeerLink) -> None:
        for peer in self._peer_table.peers_on(link):
            self._restore_relations(peer, restarted=False)

    def link_closed(self, link: PeerLink, reason: str) -> None:
        for peer in self._peer_table.peers_on(link):
            self._fail_asks(peer, f"the link to {peer.name} is gone: {reason}")
        self._peer_table.detach_link(link)

    def _fail_asks(self, peer: Peer, reason: str) -> None:
        self._outbound.pending_asks.fail_all(peer, lambda: LinkLostError(reason))

    # ── two nodes of one name ─────────────────────────────────────────────────────────────────────────────

    def is_superseded(self, peer: Peer, link: PeerLink) -> bool:
        """Whether an earlier incarnation is not heard on this link. It is on one that we made: the node at the
        known address is the right one, though it may be a stand-in and later the first one again."""
        return not link.is_durable and not (peer.connected_by_us and peer.link is link)

    def _supersede(self, peer: Peer, link: PeerLink) -> None:
        """Another incarnation of it speaks. Where no broker sees to it that there is one node of a name, the
        later one replaces the earlier. Raises Replaced if it must not."""
        known = peer.link
        if known is not None and known is not link:
            if peer.connected_by_us and known.is_up:
                raise NodeReplacedError(
                    f"{peer.name} is connected at its own address. {RENAME_HINT}"
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
            log.debug("a node cannot be told that it was replaced: %s", error)

    def handle_own_replacement(self, peer: Peer) -> None:
        """That node says that another one of our name has replaced us."""
        log.error(
            "replaced by another node of the same name (name=%s at=%s): what this one sends there is refused "
            "until it is restarted. %s",
            self._system.name,
            peer.name,
            RENAME_HINT,
        )
        self._system._publish_event(NodeReplaced(peer.name))
        why = f"another node named {self._system.name} has connected since. {RENAME_HINT}"
        self._outbound.pending_asks.fail_all(
            peer, lambda: MessageRefusedError(RefusalReason.REPLACED, why)
        )
        if peer.link is not None:  # the peer still takes what is told on this connection
            peer.link.close()

    # ── what follows ──────────────────────────────────────────────────────────────────────────────────────

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SignalDue(ref, signal):
                    ref._send_signal(signal)
                case OrphanedChild(child, supervisor, reason, parted):
                    cell = self._system._find_cell(child.address)
                    if cell is not None and cell.is_suspended:
                        child._send_signal(Stop(reason))
                    elif parted:
                        child._send_signal(Unlink(supervisor))
