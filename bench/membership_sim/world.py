"""A network of nodes, each around one `Membership`, from start to end."""

from __future__ import annotations

from collections import Counter
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Final

import msgspec

from recado.overlay.effects import SendTo, SetTimer, TimerExpired
from recado.overlay.identifier import NodeId, encode_identifier, node_id
from recado.overlay.membership import (
    Departed,
    Join,
    Joined,
    JoinFailed,
    Leave,
    Membership,
    MembershipEvent,
    MembershipOptions,
    MessageReceived,
    PeerReset,
    Start,
    Superseded,
)
from recado.overlay.membership_messages import (
    MESSAGE_BYTES_MAX,
    Alive,
    Gossip,
    MembershipMessage,
    Suspected,
)
from recado.overlay.packet import Packet
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.peer_view import PeerAdded, PeerRemoved
from recado.simulator.network import NetworkConditions, SimulatedNetwork
from recado.simulator.schedule import Schedule

from . import script as s
from .judge import Judge, Verdict

SECRET: Final = b"secret of the network"
NETWORK: Final = NetworkId(7)
FOREIGN_NETWORK: Final = NetworkId(8)
JOINING_S: Final = 3.0
SAMPLE_S: Final = 0.25
ENCODED_EVERY: Final = 5
"""Every so many packets one is encoded, to check its size."""
REFUSED_S: Final = 0.002
"""From sending to a dead process until its system has refused that."""

MembershipPacket = Packet[MembershipMessage]
_encoder = msgspec.msgpack.Encoder(enc_hook=encode_identifier)


def address_of(number: int) -> str:
    return f"n{number}:4000"


class Node:
    """One start of a program."""

    def __init__(
        self, world: World, number: int, incarnation: int, network_id: NetworkId = NETWORK
    ) -> None:
        self.number = number
        self.address = address_of(number)
        self.network_id = network_id
        self.is_running = True
        self.is_member = False
        self.stalled_until = 0.0
        self.clock_offset = 0.0
        self._world = world
        self._rate = world.script.rates[number]
        self._timers: dict[str, int] = {}
        self._inbox: list[MembershipEvent] = []
        self.core = Membership(
            self.address,
            Incarnation(incarnation),
            Random(f"{world.script.seed} {number} {incarnation}").random,
            self._clock(),
            MembershipOptions(SECRET),
        )

    @property
    def node_id(self) -> NodeId:
        return self.core.own.node_id

    def _clock(self) -> float:
        return self._world.schedule.now * self._rate + self.clock_offset

    def receive(self, event: MembershipEvent) -> None:
        """Handle an event, or keep it in the socket while the loop is stalled."""
        if not self.is_running:
            return
        if self._world.schedule.now < self.stalled_until:
            self._inbox.append(event)
            return
        for effect in self.core.handle(event, self._clock()):
            match effect:
                case SendTo():
                    self._world.transmit(self, effect.to, self.core.wrap(effect))
                case SetTimer(name, delay):
                    number = self._timers[name] = self._timers.get(name, 0) + 1
                    self._world.schedule.call_later(delay / self._rate, self._expire, name, number)
                case PeerAdded() | PeerRemoved():
                    self._world.note(self, effect)
                case Joined():
                    self.is_member = True
                    self._world.note(self, effect)
                case Departed() | Superseded() | JoinFailed():
                    self.is_running = False
                    self._world.note(self, effect)

    def _expire(self, name: str, number: int) -> None:
        if self._timers[name] == number:
            self.receive(TimerExpired(name))

    def stall(self, until: float) -> None:
        self.stalled_until = max(self.stalled_until, until)
        self._world.schedule.call_at(until, self._resume)

    def _resume(self) -> None:
        """Handle what has waited: timers before messages, as an event loop may do."""
        waiting, self._inbox = self._inbox, []
        waiting.sort(key=lambda event: not isinstance(event, TimerExpired))
        for event in waiting:
            self.receive(event)


class World:
    def __init__(self, script: s.Script) -> None:
        self.script = script
        self.schedule = Schedule()
        self.random = Random(f"{script.seed} world")
        conditions = NetworkConditions(duplicate_ratio=0.01, reorder_ratio=0.05, reorder_delay=0.05)
        self._network = SimulatedNetwork[MembershipPacket](
            self.schedule, self.random, self._arrive, conditions
        )
        self.nodes: dict[int, Node] = {}
        """The present start of each."""
        self.strangers: list[Node] = []
        self.judge = Judge(script)
        self.sent: Counter[tuple[int, int]] = Counter()
        """By second and node."""
        self._sent_count = 0
        self._loss: dict[int, float] = {}
        self._delay: dict[int, float] = {}
        self._link_loss: dict[tuple[int, int], float] = {}
        self._is_dead_silent: set[int] = set()
        self._trace = blake2b(digest_size=12)

    # ── the network ───────────────────────────────────────────────────────────────────────────────

    def transmit(self, source: Node, to: PeerAddress, packet: MembershipPacket) -> None:
        now = self.schedule.now
        self._sent_count += 1
        self.sent[int(now), source.number] += 1
        if self._sent_count % ENCODED_EVERY == 0:
            size = len(_encoder.encode(packet))
            if size > MESSAGE_BYTES_MAX:
                self.judge.found_oversized(now, packet, size)
        number = int(to.address[1:].partition(":")[0])
        ratios = (
            self._loss.get(source.number, 0.0),
            self._loss.get(number, 0.0),
            self._link_loss.get((source.number, number), 0.0),
        )
        if any(self.random.random() < ratio for ratio in ratios if ratio):
            return
        target = self.nodes.get(number)
        if target is None or not target.is_running:
            # The system of a dead process refuses connections; a dead machine is silent.
            if number not in self._is_dead_silent:
                event = PeerReset(to)
                self.schedule.call_later(REFUSED_S, source.receive, event)
            return
        self._network.send(source.address, to.address, packet)

    def _arrive(self, source: str, target: str, packet: MembershipPacket) -> None:
        number = int(target[1:].partition(":")[0])
        delay = self._delay.get(number)
        if delay is None:
            self._hand_over(number, packet)
        else:
            self.schedule.call_later(delay, self._hand_over, number, packet)

    def _hand_over(self, number: int, packet: MembershipPacket) -> None:
        node = self.nodes.get(number)
        if node is not None:
            node.receive(MessageReceived(packet))

    def note(self, node: Node, effect: object) -> None:
        now = self.schedule.now
        self._trace.update(f"{now:.9f} {node.number} {effect}\n".encode())
        self.judge.observe(now, node.number, node.core.own, effect)

    # ── the story ─────────────────────────────────────────────────────────────────────────────────

    def run(self) -> Verdict:
        for number in range(self.script.size):
            at = 0.0 if number == 0 else 0.2 + JOINING_S * self.random.random()
            self.schedule.call_at(at, self._start, number, 1_000)
        for fault in self.script.faults:
            self.schedule.call_at(fault.at, self._inflict, fault)
        at = 0.0
        while at < self.script.end:
            at += SAMPLE_S
            self.schedule.run(at)
            self._sample()
        running = {
            number: node.core for number, node in self.nodes.items() if node.network_id == NETWORK
        }
        alive = {n: core for n, core in running.items() if self.nodes[n].is_running}
        self.judge.finish(self.schedule.now, alive, self.sent)
        for stranger in self.strangers:
            self.judge.check_stranger(self.schedule.now, stranger.core)
        return self.judge.verdict

    def trace(self) -> str:
        """Return a hash of all that nodes have reported, and of how many packets they sent."""
        copy = self._trace.copy()
        copy.update(str(self._sent_count).encode())
        return copy.hexdigest()

    def _start(self, number: int, incarnation: int) -> None:
        node = Node(self, number, incarnation)
        self.nodes[number] = node
        self._is_dead_silent.discard(number)
        others = [each for each in self.nodes.values() if each is not node and each.is_member]
        if not others and number == 0 and incarnation == 1_000:
            node.receive(Start(NETWORK))
            return
        pool = [each.address for each in others if each.is_running] or [address_of(0)]
        contacts = self.random.sample(pool, min(3, len(pool)))
        node.receive(Join(tuple(contacts)))

    def _sample(self) -> None:
        for number, node in self.nodes.items():
            if node.is_running and node.network_id == NETWORK and node.is_member:
                self.judge.sample_suspects(self.schedule.now, number, node.core)

    def _inflict(self, fault: s.Fault) -> None:
        match fault:
            case s.Kill(node=number, is_reset=is_reset):
                self._kill(number, is_reset)
            case s.Restart(node=number, incarnation=incarnation):
                self._start(number, incarnation)
            case s.Stall(node=number, until=until):
                self.nodes[number].stall(until)
            case s.Lossy(node=number, until=until, ratio=ratio):
                self._loss[number] = ratio
                self.schedule.call_at(until, partial(self._loss.pop, number, None))
            case s.Slow(node=number, until=until, delay=delay):
                self._delay[number] = delay
                self.schedule.call_at(until, partial(self._delay.pop, number, None))
            case s.LossyLink(nodes=(one, other), until=until, ratio=ratio, is_one_way=is_one_way):
                links = [(one, other)] if is_one_way else [(one, other), (other, one)]
                self._cut(links, ratio, until)
            case s.Isolate(node=number, until=until, sends=sends, receives=receives):
                others = [each for each in range(len(self.script.rates)) if each != number]
                links = [(number, each) for each in others if sends]
                links += [(each, number) for each in others if receives]
                self._cut(links, 1.0, until)
            case s.Partition(nodes=side, until=until):
                numbers = range(len(self.script.rates))
                links = [
                    (one, other)
                    for one in numbers
                    for other in numbers
                    if (one in side) != (other in side)
                ]
                self._cut(links, 1.0, until)
            case s.Jump(node=number, by=by):
                self.nodes[number].clock_offset += by
            case s.Leave(node=number):
                self.nodes[number].receive(Leave())
            case s.JoinLate(node=number):
                self._start(number, 1_000)
            case s.Reuse(node=number):
                self._reuse(number)
            case s.Forge(node=number):
                self._forge(number)

    def _cut(self, links: list[tuple[int, int]], ratio: float, until: float) -> None:
        for link in links:
            self._link_loss[link] = max(ratio, self._link_loss.get(link, 0.0))
        self.schedule.call_at(until, self._mend, links)

    def _mend(self, links: list[tuple[int, int]]) -> None:
        for link in links:
            self._link_loss.pop(link, None)

    def _kill(self, number: int, is_reset: bool) -> None:
        node = self.nodes[number]
        node.is_running = False
        if not is_reset:
            self._is_dead_silent.add(number)
            return
        for other in self.nodes.values():
            # Not every pair of nodes has a connection.
            if other is not node and self.random.random() < 0.7:
                event = PeerReset(node.core.own)
                self.schedule.call_later(REFUSED_S, other.receive, event)

    # ── strangers ─────────────────────────────────────────────────────────────────────────────────

    def _reuse(self, number: int) -> None:
        """Start a node of another network at an address, and let it greet its neighbours as if it knew them."""
        stranger = Node(self, number, 5_000, FOREIGN_NETWORK)
        self.nodes[number] = stranger
        self.strangers.append(stranger)
        self._is_dead_silent.discard(number)
        stranger.receive(Start(FOREIGN_NETWORK))
        for other in list(self.nodes.values()):
            if other is not stranger:
                message = Gossip((Alive(stranger.core.own),))
                to = other.core.own
                self.transmit(
                    stranger, to, stranger.core.wrap(SendTo[MembershipMessage](to, message))
                )
                # And the other way round.
                greeting = stranger.core.wrap(SendTo[MembershipMessage](to, message))
                other.receive(MessageReceived(greeting))
                answer = other.core.wrap(
                    SendTo[MembershipMessage](stranger.core.own, Gossip((Alive(to),)))
                )
                stranger.receive(MessageReceived(answer))

    def _forge(self, number: int) -> None:
        """Hand packets to a node that must be without effect."""
        victim = self.nodes[number]
        members = [
            node
            for node in self.nodes.values()
            if node is not victim and node.network_id == NETWORK and node.is_running
        ]
        if victim.network_id != NETWORK or not members:
            return
        own, member = victim.core.own, members[0]
        other = member.core.own
        chosen = PeerAddress(NodeId(own.node_id ^ 1), Incarnation(9_000), NETWORK, "n9000:4000")
        guessed = node_id(b"a wrong secret", "n9001:4000")
        stranger = PeerAddress(guessed, Incarnation(9_000), NETWORK, "n9001:4000")
        # The id of another node with the address of the attacker.
        thief = PeerAddress(other.node_id, Incarnation(9_000), NETWORK, "n9002:4000")
        foreign = PeerAddress(
            node_id(SECRET, "n9003:4000"), Incarnation(9_000), FOREIGN_NETWORK, "n9003:4000"
        )
        late = msgspec.structs.replace(other, incarnation=Incarnation(1))
        voters = tuple(node.node_id for node in members[1:4])
        evidence = Suspected(other.node_id, other.incarnation, 5, voters, is_reset=True)
        for source in (chosen, stranger, thief, foreign, late):
            message = Gossip((Alive(source), evidence))
            packet = Packet[MembershipMessage](1, source, own.node_id, own.incarnation, message)
            victim.receive(MessageReceived(packet))
        # A member that has been deceived passes the claims on.
        claims = Gossip((Alive(chosen), Alive(stranger), Alive(thief), Alive(foreign), Alive(late)))
        victim.receive(MessageReceived(member.core.wrap(SendTo[MembershipMessage](own, claims))))
