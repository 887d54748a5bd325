"""A network of nodes from start to end: users, faults, and the record of what is observed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

import msgspec

from recado.overlay.command import (
    Action,
    CreateTopic,
    DeliveryMethod,
    GetField,
    Grant,
    Handle,
    Operation,
    Publish,
    Revoke,
    SetField,
    Subscribe,
    SubscriptionId,
    TopicMessage,
    Unsubscribe,
)
from recado.overlay.configuration import WHOLE_RING
from recado.overlay.effects import SendTo, TimerExpired
from recado.overlay.identifier import NodeId, node_id
from recado.overlay.membership import (
    Departed,
    Joined,
    JoinFailed,
    Membership,
    MembershipOptions,
    MessageReceived,
    Start,
    Superseded,
)
from recado.overlay.membership import Join as JoinMembership
from recado.overlay.membership import Leave as LeaveMembership
from recado.overlay.messages import Answers, Messages
from recado.overlay.node import (
    Answered,
    Deliver,
    LeaveCompleted,
    LeaveOverlay,
    MessagesReceived,
    OverlaySettings,
    StartNetwork,
    Submit,
)
from recado.overlay.packet import PROTOCOL_VERSION, Packet
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.peer_view import Departure, PeerAdded, PeerRemoved
from recado.overlay.range_map import RangeMap
from recado.overlay.replication import ReplicationSettings
from recado.simulator.network import SimulatedNetwork
from recado.simulator.schedule import Schedule

from . import history as facts
from .history import History
from .judge import judge
from .script import (
    CHECKED_AT_S,
    END_S,
    HEALED_AT_S,
    Crash,
    CrashAt,
    Fault,
    Join,
    Partition,
    Pause,
    Role,
    Script,
    Storm,
    draw,
)
from .script import (
    Leave as LeaveFault,
)
from .station import Effect, ObservedNode, Station, kind
from .verdict import Verdict

NETWORK: Final = NetworkId(7)
POLL_S: Final = 0.1
DETECTED_S: Final = (0.6, 1.2)
RETURNED_S: Final = 0.3
MOVES_S: Final = 4.0
"""A crash is counted as disturbing only what changes within this time."""
SELECTORS: Final = (
    None,
    None,
    "body LIKE '%carro%'",
    "headers.team = 'X' AND NOT body LIKE '%derrota%'",
)
WORDS: Final = ("carro", "derrota", "gol", "casa")
ROLES: Final = ("reader", "journalist")


def append(
    fields: Mapping[str, bytes], arguments: bytes
) -> tuple[Sequence[tuple[str, bytes | None]], bytes]:
    """A command of an upper layer: append a token to a list."""
    items = fields.get("list", b"") + b" " + arguments
    return [("list", items)], items


class Outcome(msgspec.Struct):
    seed: int
    trace: str
    verdict: Verdict
    faults: list[str]
    """Nodes that raised."""

    @property
    def problems(self) -> list[str]:
        return [*self.faults, *(str(violation) for violation in self.verdict.violations)]


class World:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.history = History()
        self.faults: list[str] = []
        self.schedule = Schedule()
        self.stations: dict[str, Station] = {}
        """By name; those that have stopped are not here."""
        self.network: SimulatedNetwork[Packet[Any]] = SimulatedNetwork(
            self.schedule,
            Random(f"network {script.seed}"),
            self._arrive,
            script.weather,
        )
        self._random = Random(f"world {script.seed}")
        self._incarnations: dict[str, int] = {}
        self._ids: dict[str, NodeId] = {}
        self._names: dict[NodeId, str] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._views: dict[
            tuple[str, str], tuple[PeerAddress | None, float, PeerAddress | None]
        ] = {}
        """What a node (full name) knows of another one, since when something else is true, and what."""
        self._departures: dict[PeerAddress, Departure] = {}
        self._next_request = 0
        self._changes = 0
        """Counts what makes ranges move."""
        self._request_stations: dict[int, Station] = {}
        self._traps: list[CrashAt] = []
        self._trap_counts: list[int] = []
        self._topics = [f"topic {number}" for number in range(script.topics)]

    # ── nodes ──────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        script, random = self.script, self._random
        self._start("n0", first=True)
        for number in range(1, script.nodes):
            self.schedule.call_at(random.uniform(0.1, 0.8), self._start, f"n{number}")
        for topic in self._topics:
            self.schedule.call_at(random.uniform(0.5, 2.0), self._create, topic)
        for _ in range(script.operations):
            at = random.uniform(1.5, CHECKED_AT_S - 1.0)
            self.schedule.call_at(at, self._operate, random.random())
        for at, fault in script.faults:
            self.schedule.call_at(at, self._befall, fault)
        self.schedule.call_at(HEALED_AT_S, self._heal)
        self.schedule.call_at(CHECKED_AT_S, self._check)
        self.schedule.call_at(0.0, self._poll)
        self.schedule.run(END_S)
        self.history.add(facts.Judged(self.schedule.now, tuple(self._inspect())))

    def _start(self, name: str, first: bool = False) -> None:
        if name in self.stations:
            return
        self._changes += 1
        host = f"{name}:4000"
        secret = f"secret {self.script.seed}".encode()
        if name not in self._ids:
            self._ids[name] = node_id(secret, host)
            self._names[self._ids[name]] = name
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        address = PeerAddress(self._ids[name], Incarnation(incarnation), NETWORK, host)
        rate = self._random.uniform(0.98, 1.02) if self.script.drift else 1.0
        station = Station(name, address, self.schedule, self._perform, rate)
        self.stations[name] = station
        if not self.script.detects:
            self._open(station, first)
            return
        draw_number = Random(f"{self.script.seed} {name} {incarnation}").random
        options = MembershipOptions(secret)
        station.membership = Membership(
            host, Incarnation(incarnation), draw_number, station.now, options
        )
        if first:
            station.handle_membership(Start(NETWORK))
        else:
            self._join(station)

    def _join(self, station: Station) -> None:
        contacts = [f"{name}:4000" for name in self.stations if name != station.name]
        self._handle(station.handle_membership, JoinMembership(tuple(contacts)))

    def _open(self, station: Station, first: bool) -> None:
        """The node is a member: it takes part."""
        settings = OverlaySettings(ReplicationSettings(replicas=self.script.replicas))
        node = ObservedNode(station.address, settings, {"append": append})
        node.on_answers = lambda peer, message: self._acknowledge(station, peer, message)
        station.node = node
        self.history.add(facts.Started(self.schedule.now, station.full_name))
        self._handle(station.handle, StartNetwork() if first else TimerExpired("start"))
        if station.membership is not None:  # those that it has met while it joined
            for peer in station.membership.view.peers():
                if peer != station.address:
                    self._handle(station.handle, PeerAdded(peer))

    def _handle(self, handle: Callable[[Any], None], event: object) -> None:
        try:
            handle(event)
        except Exception as error:
            self.faults.append(f"at {self.schedule.now:.3f} a node raised {error!r}")
            raise

    def _stop(self, station: Station, how: str) -> None:
        if not station.is_running:
            return
        self._changes += 1
        station.is_running = False
        del self.stations[station.name]
        if how == "left":
            self._departures[station.address] = Departure.LEFT
        self._record_stop(station, how)

    def _record_stop(self, station: Station, how: str) -> None:
        if not station.has_ended:
            station.has_ended = True
            self.history.add(facts.Stopped(self.schedule.now, station.full_name, how))

    @property
    def members(self) -> list[Station]:
        """The stations whose nodes take part."""
        return [each for each in self.stations.values() if each.node is not None]

    # ── the network ───────────────────────────────────────────────────────────────────────────────

    def _perform(self, station: Station, effect: Effect) -> None:
        match effect:
            case SendTo(to, body):
                target = self._names[to.node_id]
                if isinstance(body, Messages):
                    for message in body.messages:
                        self._spring_traps(kind(message), station.name, target)
                if station.is_running:
                    packet: Packet[Any] = Packet(
                        PROTOCOL_VERSION, station.own, to.node_id, to.incarnation, body
                    )
                    self.network.send(station.name, target, packet)
            case Answered(request, answer):
                self.history.add(facts.Answered(self.schedule.now, request, answer))
            case Deliver(subscription, notification):
                self.history.add(
                    facts.DeliveryRecord(
                        self.schedule.now,
                        station.full_name,
                        subscription,
                        notification.topic,
                        notification.position,
                        notification.message.body,
                    )
                )
            case Joined(own):
                first = not self.history.of(facts.Started)
                station.address = own
                self._open(station, first)
            case PeerAdded() | PeerRemoved():
                self._changes_view(station, effect)
            case JoinFailed():
                self.schedule.call_later(0.5, self._join_again, station)
            case LeaveCompleted():
                if station.membership is None:
                    self._stop(station, "left")
                elif not self._has_announced_leave(station):
                    station.node = None
                    self._record_stop(station, "left")
                    self._handle(station.handle_membership, LeaveMembership())
            case Departed():
                self._stop(station, "left")
            case Superseded():
                self._stop(station, "superseded")
            case _:
                pass

    def _changes_view(self, station: Station, change: PeerAdded | PeerRemoved) -> None:
        if isinstance(change, PeerRemoved) and change.departure is Departure.FAILED:
            name = self._names[change.peer.node_id]
            evicted = self.stations.get(name)
            if evicted is not None and evicted.address == change.peer and not self._is_disturbed:
                self.history.add(
                    facts.Evicted(self.schedule.now, station.full_name, evicted.full_name)
                )
        self._handle(station.handle, change)

    @property
    def _is_disturbed(self) -> bool:
        """Whether nodes may rightly be taken for dead in this world."""
        return any(isinstance(fault, Partition | Pause | Storm) for _, fault in self.script.faults)

    def _has_announced_leave(self, station: Station) -> bool:
        return station.node is None

    def _join_again(self, station: Station) -> None:
        if station.is_running and station.name in self.stations:
            self._stop(station, "crashed")
            self._start(station.name)

    def _arrive(self, source: str, target: str, packet: Packet[Any]) -> None:
        station = self.stations.get(target)
        if station is None or station.postpone(self._arrive, source, target, packet):
            return
        body = packet.body
        if not isinstance(body, Messages):
            self._handle(station.handle_membership, MessageReceived(packet))
        elif self._admits(station, packet):
            self._handle(station.handle, MessagesReceived(packet.source, body.messages))

    def _admits(self, station: Station, packet: Packet[Any]) -> bool:
        if station.membership is not None:
            return station.membership.admits(packet)
        if station.node is None or packet.target_incarnation != station.address.incarnation:
            return False
        known = station.node.view.get(packet.source.node_id)
        return known is None or known.incarnation <= packet.source.incarnation

    def _acknowledge(self, station: Station, peer: PeerAddress, message: Answers) -> None:
        assert message.configuration is not None
        origin = f"{self._names[peer.node_id]}.{peer.incarnation}"
        for each in message.answers:
            self.history.add(
                facts.Acknowledged(
                    self.schedule.now, station.full_name, origin, each.number, message.configuration
                )
            )

    # ── the view of each node ─────────────────────────────────────────────────────────────────────

    def _reaches(self, one: Station, other: Station) -> bool:
        """Whether both hear each other."""
        names = (one.name, other.name)
        return names not in self._cut and names[::-1] not in self._cut and not other.is_paused

    def _poll(self) -> None:
        """A failure detector that knows everything, and tells it late."""
        now = self.schedule.now
        if self.script.detects:
            return
        for observer in list(self.stations.values()):
            if observer.is_paused:
                continue
            for name in self._ids:
                if name != observer.name and observer.is_running:
                    self._observe(observer, name, now)
        self.schedule.call_later(POLL_S, self._poll)

    def _observe(self, observer: Station, name: str, now: float) -> None:
        subject = self.stations.get(name)
        is_reached = subject is not None and self._reaches(observer, subject)
        true = subject.address if subject is not None and is_reached else None
        key = (observer.full_name, name)
        told, since, pending = self._views.get(key, (None, now, None))
        if true == told:
            self._views[key] = (told, now, true)
            return
        if pending != true:
            since = now
        delay = RETURNED_S if true is not None else self._random.uniform(*DETECTED_S)
        if told is not None and self._departures.get(told) is Departure.LEFT:
            delay = 0.0
        if now < since + delay:
            self._views[key] = (told, since, true)
            return
        self._views[key] = (true, now, true)
        if told is not None:
            departure = self._departures.get(told, Departure.FAILED)
            if true is not None:
                departure = Departure.RESTARTED
            self._handle(observer.handle, PeerRemoved(told, departure))
        if true is not None:
            self._handle(observer.handle, PeerAdded(true))

    # ── faults ────────────────────────────────────────────────────────────────────────────────────

    def _befall(self, fault: Fault) -> None:
        random = self._random
        match fault:
            case Crash():
                self._crash_when_healthy(fault)
            case CrashAt():
                self._traps.append(fault)
                self._trap_counts.append(fault.skip)
            case Join():
                self._start(f"n{len(self._ids)}")
            case LeaveFault():
                station = self._choose()
                if station is not None and len(self.members) > self.script.replicas + 1:
                    station.is_leaving = True
                    self._changes += 1
                    self._handle(station.handle, LeaveOverlay())
            case Pause(duration):
                station = self._choose()
                if station is not None:
                    station.paused_until = self.schedule.now + duration
                    self._changes += 1
            case Partition(count, duration, direction):
                names = list(self.stations)
                inside = random.sample(names, min(count, len(names)))
                self._separate(inside, names, direction)
                self._changes += 1
                self.schedule.call_later(duration, self._reconnect)
            case Storm(loss_ratio, duration):
                self._changes += 1
                self.network.conditions = replace(self.script.weather, loss_ratio=loss_ratio)
                self.schedule.call_later(duration, self._calm)

    def _choose(self) -> Station | None:
        candidates = [each for each in self.members if not each.is_leaving and not each.is_paused]
        return self._random.choice(candidates) if candidates else None

    def _separate(self, inside: list[str], names: list[str], direction: str) -> None:
        for one in inside:
            for other in names:
                if other in inside:
                    continue
                if direction in ("both", "out"):
                    self._cut[one, other] = None
                    self.network.cut(one, other)
                if direction in ("both", "in"):
                    self._cut[other, one] = None
                    self.network.cut(other, one)

    def _reconnect(self) -> None:
        self._cut.clear()
        self.network.heal()

    def _calm(self) -> None:
        self.network.conditions = self.script.weather

    def _heal(self) -> None:
        self._reconnect()
        self._calm()
        self._traps.clear()
        self._trap_counts.clear()

    def _can_crash(self, count: int) -> bool:
        return (
            len(self.members) - count > self.script.replicas
            and self.schedule.now < HEALED_AT_S
            and not self._cut
            and not any(each.is_paused for each in self.stations.values())
            and self._is_healthy()
        )

    def _crash_when_healthy(self, fault: Crash) -> None:
        if self.schedule.now >= HEALED_AT_S:
            return
        if not self._can_crash(fault.count):
            self.schedule.call_later(0.1, self._crash_when_healthy, fault)
            return
        victims = self._random.sample(self.members, fault.count)
        if fault.name is not None:
            victims = [self.stations[fault.name]]
        for station in victims:
            self._crash(station, fault.restart_after)

    def _crash(self, station: Station, restart_after: float | None) -> None:
        before, nodes = self._current(), len(self.members)
        self._stop(station, "crashed")
        if restart_after is not None:
            self.schedule.call_later(restart_after, self._start, station.name)
        self.schedule.call_later(
            MOVES_S, self._compare, before, station.full_name, nodes, self._changes
        )

    def _spring_traps(self, message: str, source: str, target: str) -> None:
        for at, trap in enumerate(self._traps):
            if trap.message != message:
                continue
            if self._trap_counts[at] > 0:
                self._trap_counts[at] -= 1
                continue
            name = source if trap.role is Role.SENDER else target
            station = self.stations.get(name)
            if station is None or not self._can_crash(1):
                continue
            del self._traps[at], self._trap_counts[at]
            self._crash(station, trap.restart_after)
            return

    # ── inspection ────────────────────────────────────────────────────────────────────────────────

    def _current(self) -> RangeMap:
        """Return the newest configurations, from the nodes that run."""
        current = RangeMap()
        for station in self.members:
            assert station.node is not None
            for _, configuration in station.node.replication.known:
                current.learn(configuration)
        return current

    def _is_healthy(self) -> bool:
        """Whether every range has all its copies."""
        running = {each.address: each.node for each in self.members}
        staying = sum(not each.is_leaving for each in self.members)
        for _, configuration in self._current():
            if len(configuration.members) < min(self.script.replicas + 1, staying):
                return False
            for member in configuration.members:
                node = running.get(member)
                if node is None:
                    return False
                replica = node.replication.replicas.get(configuration.range_id)
                if replica is None or replica.state is None:
                    return False
        return True

    def _compare(self, before: RangeMap, node: str, nodes: int, changes: int) -> None:
        """Record how much of the key space has a new epoch, if nothing else has happened since the crash."""
        if self._changes != changes:
            return
        after = self._current()
        changed = 0
        for arc, configuration in after:
            for piece, earlier in before:
                first, last = max(arc.first, piece.first), min(arc.last, piece.last)
                if first <= last and earlier.epoch != configuration.epoch:
                    changed += last - first + 1
        ratio = changed / (WHOLE_RING.last + 1)
        fair = (self.script.replicas + 1) / nodes
        self.history.add(facts.Disturbed(self.schedule.now, node, ratio / fair))

    def _inspect(self) -> list[str]:
        """Return what is not as it should be at the end."""
        problems = []
        running = sorted(self.members, key=lambda each: each.address.node_id)
        nodes = {each.full_name: each.node for each in running if each.node is not None}
        some = next(iter(nodes.values())).replication
        for _, configuration in self._current():
            wanted = some.wanted(configuration)
            if wanted is None or len(wanted) != 1 or wanted[0].members != configuration.members:
                problems.append(f"{configuration} is not placed")
        ranges = [configuration for _, configuration in self._current()]
        for low, high in pairwise(ranges):
            if (low.owner, low.members) == (high.owner, high.members):
                problems.append(f"{low} and {high} are not merged")
        current = {configuration.range_id for configuration in ranges}
        for name, node in nodes.items():
            for replica in node.replication.replicas.values():
                if replica.range_id not in current:
                    problems.append(f"{name} still has {replica.configuration}")
            if len(node.buffer) or len(node._outstanding):
                problems.append(f"{name} has commands that wait")
        return problems

    # ── users ─────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self, station: Station, topic: str, operation: Operation, roles: tuple[str, ...]
    ) -> None:
        self._next_request += 1
        request = self._next_request
        self.history.add(
            facts.Submitted(self.schedule.now, request, station.full_name, topic, operation, roles)
        )
        self._handle(station.handle, Submit(request, topic, operation, roles, 6.0))

    def _create(self, topic: str) -> None:
        station = self._choose()
        if station is not None:
            restricted = self._random.random() < 0.3
            retained = self._random.choice((0, 0, 3))
            self.submit(station, topic, CreateTopic(retained, restricted), ("admin",))

    def _operate(self, draw: float) -> None:
        random = self._random
        station, topic = self._choose(), random.choice(self._topics)
        if station is None:
            return
        roles = ("admin",) if random.random() < 0.6 else (random.choice(ROLES),)
        for _ in range(random.choice((1, 1, 1, 3))):
            self.submit(station, topic, self._draw_operation(station, topic, draw), roles)

    def _draw_operation(self, station: Station, topic: str, draw: float) -> Operation:
        random = self._random
        if draw < 0.35:
            return Publish(self._draw_message(station))
        if draw < 0.5:
            number = len(station.subscribed) + 1
            station.subscribed[number] = topic
            return Subscribe(
                SubscriptionId(station.address, number),
                random.choice(SELECTORS),
                DeliveryMethod(),
            )
        numbers = [number for number, where in station.subscribed.items() if where == topic]
        if draw < 0.55 and numbers:
            number = random.choice(numbers)
            return Unsubscribe(SubscriptionId(station.address, number))
        if draw < 0.68:
            return SetField(random.choice("ab"), f"value {self._next_request}".encode())
        if draw < 0.78:
            return GetField(random.choice("ab"))
        if draw < 0.83:
            return Grant(random.choice(ROLES), (random.choice((Action.PUBLISH, Action.SUBSCRIBE)),))
        if draw < 0.88:
            return Revoke(
                random.choice(ROLES), (random.choice((Action.PUBLISH, Action.SUBSCRIBE)),)
            )
        return Handle("append", f"token{self._next_request}".encode())

    def _draw_message(self, station: Station) -> TopicMessage:
        word = self._random.choice(WORDS)
        body = f"{station.full_name} {self._next_request} {word}".encode()
        return TopicMessage(body=body, headers={"team": self._random.choice("XY")})

    def _check(self) -> None:
        """Ask for everything, from some node, when all faults are over."""
        for topic in self._topics:
            for operation in (
                GetField("a"),
                GetField("b"),
                GetField("list"),
                Publish(TopicMessage(body=b"final carro", headers={"team": "X"})),
            ):
                station = self._choose()
                assert station is not None
                self.submit(station, topic, operation, ("admin",))


def live_through(seed: int, script: Script | None = None) -> Outcome:
    world = World(script or draw(seed))
    try:
        world.run()
    except Exception as error:
        if not world.faults:
            raise
        _ = error
        return Outcome(seed, world.history.trace(), Verdict(), world.faults)
    return Outcome(seed, world.history.trace(), judge(world.history), world.faults)
