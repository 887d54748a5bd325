"""A network of nodes in one process, for tests that watch each step. Messages arrive in order; a test may lose some."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from recado.overlay.command import Answer, Operation
from recado.overlay.effects import SendTo, SetTimer, TimerExpired
from recado.overlay.identifier import NodeId
from recado.overlay.messages import RangeMessage
from recado.overlay.node import (
    Answered,
    Deliver,
    LeaveCompleted,
    LeaveOverlay,
    MessagesReceived,
    NodeEvent,
    OverlayNode,
    OverlaySettings,
    StartNetwork,
    Submit,
    SubscriptionEnded,
)
from recado.overlay.owner import Function
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.peer_view import Departure, PeerAdded, PeerRemoved

STEP_S = 0.1


def address(number: int, incarnation: int = 1) -> PeerAddress:
    """Return the address of a node at `number` sixteenths of the ring."""
    return PeerAddress(
        NodeId(number << 124), Incarnation(incarnation), NetworkId(1), f"n{number}:1"
    )


class Envelope(NamedTuple):
    sender: PeerAddress
    target: PeerAddress
    messages: tuple[RangeMessage, ...]


class TestNetwork:
    __test__ = False

    def __init__(
        self,
        settings: OverlaySettings | None = None,
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        self.now = 0.0
        self.nodes: dict[PeerAddress, OverlayNode] = {}
        self.answers: dict[int, Answer] = {}
        self.delivered: list[tuple[PeerAddress, Deliver]] = []
        self.left: list[PeerAddress] = []
        self.ended: list[int] = []
        """The numbers of subscriptions that were too slow."""
        self.sent: list[Envelope] = []
        """All envelopes, also those that were lost."""
        self.is_lost: Callable[[Envelope], bool] = lambda _: False
        self._settings = settings
        self._functions = functions
        self._post: deque[Envelope] = deque()
        self._timers: dict[tuple[PeerAddress, str], float] = {}
        self._requests = 0

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────

    def start(self, *numbers: int) -> list[PeerAddress]:
        """Start nodes; the first one of all starts the network. All get to know each other at once."""
        return [self._start(address(number)) for number in numbers]

    def _start(self, own: PeerAddress) -> PeerAddress:
        node = OverlayNode(own, self._settings, self._functions)
        is_first = not self.nodes
        self.nodes[own] = node
        self.handle(own, StartNetwork() if is_first else TimerExpired("start"))
        for peer in list(self.nodes):
            if peer != own:
                self.handle(own, PeerAdded(peer))
                self.handle(peer, PeerAdded(own))
        return own

    def restart(self, peer: PeerAddress) -> PeerAddress:
        self.crash(peer)
        return self._start(address(peer.node_id >> 124, peer.incarnation + 1))

    def crash(self, peer: PeerAddress, is_noticed: bool = True) -> None:
        del self.nodes[peer]
        if is_noticed:
            self.notice(peer)

    def notice(self, peer: PeerAddress, departure: Departure = Departure.FAILED) -> None:
        for other in list(self.nodes):
            self.handle(other, PeerRemoved(peer, departure))

    def lose_sight(self, observer: PeerAddress, of: PeerAddress) -> None:
        """Let one node take another one for dead."""
        self.handle(observer, PeerRemoved(of, Departure.FAILED))

    def leave(self, peer: PeerAddress) -> None:
        self.handle(peer, LeaveOverlay())

    # ── time and messages ─────────────────────────────────────────────────────────────────────────

    def handle(self, peer: PeerAddress, event: NodeEvent) -> None:
        for effect in self.nodes[peer].handle(event, self.now):
            match effect:
                case SendTo(to, body):
                    envelope = Envelope(peer, to, body.messages)
                    self.sent.append(envelope)
                    if not self.is_lost(envelope):
                        self._post.append(envelope)
                case SetTimer(name, delay):
                    self._timers[peer, name] = self.now + delay
                case Answered(request, answer):
                    self.answers[request] = answer
                case Deliver():
                    self.delivered.append((peer, effect))
                case LeaveCompleted():
                    self.left.append(peer)
                case SubscriptionEnded(subscription):
                    self.ended.append(subscription.number)

    def deliver(self) -> None:
        """Deliver all messages, and those that these cause."""
        while self._post:
            envelope = self._post.popleft()
            if envelope.target in self.nodes:
                self.handle(envelope.target, MessagesReceived(envelope.sender, envelope.messages))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / STEP_S)):
            self.deliver()
            self.now += STEP_S
            for (peer, name), due in list(self._timers.items()):
                if due <= self.now + STEP_S / 2:
                    del self._timers[peer, name]
                    if peer in self.nodes:
                        self.handle(peer, TimerExpired(name))
        self.deliver()

    # ── users ─────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        peer: PeerAddress,
        topic: str,
        operation: Operation,
        roles: tuple[str, ...] = (),
        timeout: float = 10.0,
    ) -> int:
        """Submit a command and return its request number, without waiting."""
        self._requests += 1
        self.handle(peer, Submit(self._requests, topic, operation, roles, timeout))
        return self._requests

    def ask(
        self,
        peer: PeerAddress,
        topic: str,
        operation: Operation,
        roles: tuple[str, ...] = (),
        seconds: float = 3.0,
    ) -> Answer:
        """Submit a command and let time pass until it is answered."""
        request = self.submit(peer, topic, operation, roles)
        self.deliver()
        for _ in range(round(seconds / STEP_S)):
            if request in self.answers:
                break
            self.run(STEP_S)
        return self.answers[request]

    def owners(self, topic_key: int) -> list[PeerAddress]:
        """Return the nodes that take commands for a key as its owner."""
        return [
            peer
            for peer, node in self.nodes.items()
            if node.replication.owner_of(topic_key) is not None
        ]
