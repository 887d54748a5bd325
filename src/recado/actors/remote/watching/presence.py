"""Who is there: signs of life, links that are lost and come back, and signals between actors of two nodes.

The rules are those of watch.py; here are the clock, the links, and the actors that are told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from recado.actors.address import Address
from recado.actors.failing.hearing import answer_for_absent
from recado.actors.failing.signals import CellSignal, Failed, Stop, Tie, Unlink, Watch
from recado.actors.failing.signals import Link as LinkSignal
from recado.actors.ref import ActorRef
from recado.actors.remote.faults import Cut, Refusal, Refused, RemoteFault, Replaced
from recado.actors.remote.occurrences import NodeReachable, NodeReplaced, NodeUnreachable
from recado.actors.remote.options import Options
from recado.actors.remote.outbound import Outbound
from recado.actors.remote.peer import Peer
from recado.actors.remote.sealed.controls import (
    Control,
    Identified,
    Ping,
    Signalled,
    write_signal,
)
from recado.actors.remote.sealed.frame import ALL_FRAMES, refuse
from recado.actors.remote.transport import Link
from recado.actors.remote.ways import Ways

from .watch import Effect, Orphan, Told, Vigil, undelivered

if TYPE_CHECKING:
    from recado.actors.running.clock import Timer
    from recado.actors.system import ActorSystem

RENAME_HINT: Final = "Give each node a name of its own."

log = logging.getLogger("recado.actors")


class Presence:
    def __init__(
        self, system: ActorSystem, ways: Ways, outbound: Outbound, options: Options
    ) -> None:
        self._system = system
        self._ways = ways
        self._outbound = outbound
        self._options = options
        self._beating: Timer | None = None
        self.vigil = Vigil(options.watches_limit)

    def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()

    # ── signals to other nodes ────────────────────────────────────────────────────────────────────────────

    def send(self, target: Address, text: str, signal: CellSignal) -> None:
        try:
            peer = self._ways.peer(target.node)
            with self._watching_over(peer):
                marks = self.vigil.sent(self._system.ref(target), signal)
            # Of these somebody has to hear if they are refused.
            if isinstance(signal, Watch | LinkSignal | Tie | Failed):
                peer.note_signal(target, signal)
            said = write_signal(signal, marks.called, marks.token, marks.uid)
            self._outbound.say(peer, said, text)
        except RemoteFault as error:
            self.undelivered(target, signal, str(error))

    def undelivered(self, target: Address, signal: CellSignal, why: str) -> None:
        """It certainly did not arrive. What it bound stays bound until the node is given up: it may come
        back."""
        if target.node not in self.vigil.bonds:
            self.do(undelivered(self._system.ref(target), signal, why))

    def refused(self, target: Address, signal: CellSignal, error: Exception) -> None:
        """The node is there, and does not want it: what was to be bound is not."""
        there = self._system.ref(target)
        self.vigil.unsent(there, signal)
        self.do(undelivered(there, signal, str(error)))

    def supervised(self, child: ActorRef[Any], supervisor: ActorRef[Any]) -> None:
        """An actor was started here for a supervisor there. Raises Full."""
        with self._watching_over(self._ways.peer(supervisor.address.node)):
            self.vigil.supervised(child, supervisor)

    def heard(
        self, peer: Peer, here: ActorRef[Any], signal: CellSignal, target: Address, said: Signalled
    ) -> bool:
        """A signal came for an actor of ours, which they call by `target`. False: it must not hear of it.
        Raises Full."""
        called = "" if target.uid else str(target)
        with self._watching_over(peer):
            wanted = self.vigil.heard(here, signal, called, said.token)
        if called and not said.uid and isinstance(signal, Watch | LinkSignal | Tie):
            self._say(peer, Identified(str(here), said.token), said.ref)
        return wanted

    def absent(self, peer: Peer, target: Address, signal: CellSignal, said: Signalled) -> None:
        """A signal came for an actor that is not there; if it names a uid, perhaps another has its name."""
        system = self._system
        gone = Address(target.node, target.name, said.uid or target.uid)
        answer = answer_for_absent(ActorRef(target, system.undertaker, system), signal, gone)
        if answer is not None:
            to, reply = answer
            self._say(peer, write_signal(reply, token=said.token), str(to))

    def identified(self, here: ActorRef[Any], there: ActorRef[Any], token: int) -> None:
        """The node of an actor that we bound by its name says which one that is."""
        address = there.address
        named = self._system.ref(Address(address.node, address.name))
        self.vigil.identified(here, named, address.uid, token)

    def _say(self, peer: Peer, control: Control, target: str) -> None:
        try:
            self._outbound.say(peer, control, target)
        except RemoteFault as error:
            log.debug("%s cannot be answered: %s", peer.name, error)

    # ── signs of life ─────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _watching_over(self, peer: Peer) -> Iterator[None]:
        """Within it, bonds with this node may come about: then its silence counts from now on."""
        bound = peer.name in self.vigil.bonds
        yield
        if not bound and peer.name in self.vigil.bonds:
            clock = self._system.clock
            peer.spoke, peer.heard = False, clock.time()
            if self._beating is None:
                self._beating = clock.call_later(self._options.heartbeat, self._beat)

    def _beat(self) -> None:
        self._beating = None
        now = self._system.clock.time()
        for name in list(self.vigil.bonds):
            peer = self._ways.peer(name)
            if peer.spoke:
                peer.spoke, peer.heard = False, now
            if now - peer.heard >= self._options.silence:
                self._give_up(peer, f"silent for {self._options.silence:g} s")
            else:
                try:
                    self._outbound.say(peer, Ping())
                except RemoteFault as error:
                    log.debug("%s cannot be asked for a sign of life: %s", name, error)
        if self.vigil.bonds:
            self._beating = self._system.clock.call_later(self._options.heartbeat, self._beat)

    def _give_up(self, peer: Peer, why: str) -> None:
        log.warning("node %s is unreachable: %s", peer.name, why)
        peer.unreachable = True
        self._system.publish(NodeUnreachable(peer.name))
        self.do(self.vigil.silent(peer.name, why))

    def met(self, peer: Peer, link: Link, life: bytes) -> None:
        """An authentic frame of it came, and it is not as we know it: on another link, of another life. Raises
        Replaced."""
        if peer.life not in (b"", life) and not link.lasting:
            self._replace(peer, link)
        moved = peer.link is not None and peer.link is not link
        self._ways.spoke(peer, link)
        if peer.life != life:
            reborn = bool(peer.life)
            self._ways.begins(peer, life)
            self._back(peer, reborn=reborn)
        elif moved and peer.link is link:
            self._back(peer, reborn=False)
        if peer.unreachable:
            peer.unreachable = False
            self._system.publish(NodeReachable(peer.name))

    def _back(self, peer: Peer, *, reborn: bool) -> None:
        self.do(self.vigil.back(peer.name, reborn=reborn))

    # ── links ─────────────────────────────────────────────────────────────────────────────────────────────

    def lost(self, link: Link, why: str) -> None:
        if not link.lasting:
            for peer in self._ways.of_link(link):
                self._fail_asks(peer, f"the link to {peer.name} was cut: {why}")

    def healed(self, link: Link) -> None:
        for peer in self._ways.of_link(link):
            self._back(peer, reborn=False)

    def gone(self, link: Link, why: str) -> None:
        for peer in self._ways.of_link(link):
            self._fail_asks(peer, f"the link to {peer.name} is gone: {why}")
        self._ways.ended(link)

    def _fail_asks(self, peer: Peer, why: str) -> None:
        self._outbound.pending.fail(peer, lambda: Cut(why))

    # ── two nodes of one name ─────────────────────────────────────────────────────────────────────────────

    def is_late(self, peer: Peer, link: Link) -> bool:
        """Whether an earlier incarnation is not heard on this link. It is on one that we made: the node at the
        known address is the right one, though it may be a stand-in and later the first one again."""
        return not link.lasting and not (peer.made and peer.link is link)

    def _replace(self, peer: Peer, link: Link) -> None:
        """Another incarnation of it speaks. Where no broker sees to it that there is one node of a name, the
        later one replaces the earlier. Raises Replaced if it must not."""
        known = peer.link
        if known is not None and known is not link:
            if peer.made and known.is_up:
                raise Replaced(f"{peer.name} is connected at its own address. {RENAME_HINT}")
            if not peer.made:
                log.warning(
                    "node replaced: a later one of the same name has connected (node=%s). %s",
                    peer.name,
                    RENAME_HINT,
                )
                self._fail_asks(peer, f"{peer.name} was replaced by another node of that name")
                self._tell_replaced(known, peer.life)
        peer.retire()

    def _tell_replaced(self, link: Link, life: bytes) -> None:
        try:
            link.post(refuse(life, ALL_FRAMES, Refusal.REPLACED))
        except RemoteFault as error:
            log.debug("a node cannot be told that it was replaced: %s", error)

    def replaced(self, peer: Peer) -> None:
        """That node says that another one of our name has replaced us."""
        log.error(
            "replaced by another node of the same name (name=%s at=%s): what this one sends there is refused "
            "until it is restarted. %s",
            self._system.name,
            peer.name,
            RENAME_HINT,
        )
        self._system.publish(NodeReplaced(peer.name))
        why = f"another node named {self._system.name} has connected since. {RENAME_HINT}"
        self._outbound.pending.fail(peer, lambda: Refused(Refusal.REPLACED, why))
        if peer.link is not None:  # the peer still takes what is told on this connection
            peer.link.close()

    # ── what follows ──────────────────────────────────────────────────────────────────────────────────────

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Told(ref, signal):
                    ref.signal(signal)
                case Orphan(child, supervisor, reason, parted):
                    cell = self._system.cell(child.address)
                    if cell is not None and cell.suspended:
                        child.signal(Stop(reason))
                    elif parted:
                        child.signal(Unlink(supervisor))
