"""One siege: the processes are started, faults are injected by the schedule, all recover, the judge decides.

start     the broker, the archives, the subscribers, the publishers
faults    as scheduled; several programs may be away at a time
recovery  publishers are killed for good, all other faults end; done when every subscriber and archive has all
          messages that it is owed, or when the time for that is up
"""

from __future__ import annotations

import heapq
import signal
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from bench.feeds_siege import diary
from bench.feeds_siege.diary import (
    FOREVER,
    UNKNOWN,
    Diary,
    Got,
    Interval,
    Published,
    Sequences,
    stamped,
)
from bench.feeds_siege.judge import (
    Archived,
    Classes,
    Evidence,
    Kind,
    Recovery,
    Subscriber,
    Verdict,
    judge,
)
from bench.feeds_siege.partition import cut_file
from bench.feeds_siege.processes import Broker, Program, Target
from bench.feeds_siege.proxy import Proxy
from bench.feeds_siege.schedule import FULL, Fault, FaultKind, Intensity, make_schedule
from recado.feeds.archive.archive import Archive
from recado.feeds.views import ViewRecord
from workshop import peers

TRANSPORTS: Final = ("recado", "rabbitmq", "udp")
BROKER: Final = "broker"
ARCHIVE: Final = "archive"
PUBLISHER: Final = "publish"
PLANTED: Final = "discard"
"""The role of a subscriber with a planted fault, for controls: it never gets all messages that it is owed."""
PROGRAMS: Final = {
    "archive-1": ARCHIVE,
    "archive-2": ARCHIVE,
    "archive-3": ARCHIVE,
    "sub-none": "none",
    "sub-pessimistic": "pessimistic",
    "sub-by-archive": "by-archive",
    "sub-saved": "saved-vector",
    "sub-committed": "committed-vector",
    "publisher-1": PUBLISHER,
    "publisher-2": PUBLISHER,
}
"""Name to role."""
RECOVERY: Final = {
    "none": Recovery.NONE,
    "pessimistic": Recovery.ARCHIVES,
    "discard": Recovery.ARCHIVES,
    "by-archive": Recovery.ARCHIVES,
    "saved-vector": Recovery.SAVED,
    "committed-vector": Recovery.COMMITTED,
}
WEIGHTS: Final = {ARCHIVE: 2, PUBLISHER: 2, BROKER: 1}
"""How often a target is chosen; a subscriber is 3."""
SUBSCRIBER_WEIGHT: Final = 3
JOIN_S: Final = 90.0
RECOVERY_S: Final = 180.0
LOOK_S: Final = 1.0
TICK_S: Final = 0.5
FAULTS_FILE: Final = "siege.diary"

Report = Callable[[float, str], None]
"""Called with the completed share of the siege, and the phase."""


@dataclass
class Outcome:
    transport: str
    seed: int
    verdict: Verdict
    faults: list[str]
    """Of programs that ended by themselves."""
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def problems(self) -> list[str]:
        return [*map(str, self.verdict.violations), *self.faults]


def besiege(
    transport: str,
    folder: Path,
    seed: int,
    seconds: float,
    *,
    intensity: Intensity = FULL,
    programs: Mapping[str, str] = PROGRAMS,
    schedule: list[Fault] | None = None,
    report: Report = lambda share, phase: None,
) -> Outcome:
    """Run one siege in an empty folder, which then has the diaries, logs and archives.

    The seed decides the schedule of faults unless one is given.
    """
    rng = Random(seed)
    injected: Counter[str] = Counter()
    with ExitStack() as stack:
        report(0, "starting")
        site = stack.enter_context(Site(transport, folder, programs, rng))
        if schedule is None:
            archives = [name for name, role in programs.items() if role == ARCHIVE]
            schedule = make_schedule(seed, seconds, site.weights(), archives, intensity)
        with Diary(folder / FAULTS_FILE) as noted:
            inject(site, schedule, noted, injected, seconds, report)
        report(1, "recovering")
        site.until_recovered()
    evidence = read_evidence(folder, programs, is_udp=site.is_udp)
    counts = Counter({f"{kind}s": count for kind, count in injected.items()})
    counts["confirmed"] = sum(evidence.published.confirmed.values())
    counts["tried"] = sum(evidence.published.tried.values())
    counts["views"] = len({view.id for each in evidence.archives for view in each.views})
    for subscriber in evidence.subscribers:
        for incarnation in subscriber.incarnations:
            counts["failed subscriptions"] += (
                incarnation.ended != FOREVER and not incarnation.is_killed
            )
            for got in incarnation.got:
                counts[got_text(got)] += got.last - got.first + 1
    faults = [fault for program in site.programs for fault in program.faults]
    return Outcome(transport, seed, judge(evidence), faults, counts)


def got_text(got: Got) -> str:
    return "committed" if got.certainty == UNKNOWN else f"got {got.certainty}"


class Site:
    """The processes of a siege and the network between them."""

    def __init__(
        self, transport: str, folder: Path, programs: Mapping[str, str], rng: Random
    ) -> None:
        self.is_udp = transport == "udp"
        self._folder = folder
        self._stack = ExitStack()
        self._broker = None if self.is_udp else Broker(transport, folder / BROKER)
        self._proxy = None if self._broker is None else Proxy(self._broker.port)
        self._roles = programs
        self._rng = rng
        self.programs: list[Program] = []
        self.targets: dict[str, Target] = {}

    def __enter__(self) -> Site:
        with ExitStack() as stack:
            group = free_group()
            if self._broker is not None and self._proxy is not None:
                stack.callback(self._broker.close)
                self.targets[BROKER] = self._broker
                self._broker.start()
                self._broker.until_started()
                stack.enter_context(self._proxy)
            for name, role in self._roles.items():
                url = group if self._proxy is None else amqp_url(self._proxy.listen(name))
                program = Program(name, role, url, self._folder, self._rng)
                stack.callback(program.kill)
                self.programs.append(program)
                self.targets[name] = program
            members = [each for each in self.programs if each.role != PUBLISHER]
            for program in members:
                program.start()
            for program in members:
                self._until_ready(program)
            publishers = [each for each in self.programs if each.role == PUBLISHER]
            for program in publishers:
                program.start()
            for program in publishers:
                self._until_ready(program)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _until_ready(self, program: Program) -> None:
        """Wait until an archive or subscriber has joined, so that it misses nothing, or a publisher
        publishes."""
        deadline = time.monotonic() + JOIN_S
        ready = self._folder / f"{program.name}.ready"
        while not ready.exists():
            if time.monotonic() > deadline:
                raise peers.PeerStartError(
                    f"{program.name} was not ready in {JOIN_S:.0f} s:\n{peers.tail(program.log)}"
                )
            time.sleep(0.02)

    def weights(self) -> dict[str, float]:
        roles = {**dict.fromkeys(self.targets, BROKER), **self._roles}
        return {name: WEIGHTS.get(roles[name], SUBSCRIBER_WEIGHT) for name in self.targets}

    def begin(self, fault: Fault) -> bool:
        """False if the target is not running, such as a broker that still starts."""
        target = self.targets[fault.target]
        if not target.is_running:
            return False
        match fault.kind:
            case FaultKind.KILL:
                target.kill()
            case FaultKind.STOP:
                target.signal(signal.SIGSTOP)
            case FaultKind.CUT:
                for name in self._connections(fault):
                    self._cut(name)
        return True

    def end(self, fault: Fault) -> None:
        target = self.targets[fault.target]
        match fault.kind:
            case FaultKind.KILL:
                target.start()
            case FaultKind.STOP:
                target.signal(signal.SIGCONT)
            case FaultKind.CUT:
                for name in self._connections(fault):
                    self._mend(name)

    def _cut(self, name: str) -> None:
        if self._proxy is not None:
            self._proxy.cut(name)
        else:
            cut_file(self._folder, name).touch()

    def _mend(self, name: str) -> None:
        if self._proxy is not None:
            self._proxy.mend(name)
        else:
            cut_file(self._folder, name).unlink(missing_ok=True)

    def _connections(self, fault: Fault) -> list[str]:
        return list(self._roles) if fault.target == BROKER else [fault.target]

    def until_recovered(self) -> None:
        """Wait until every subscriber and archive has the messages that it is owed; after a timeout the judge
        decides."""
        sound = {name: role for name, role in self._roles.items() if role != PLANTED}
        if self._broker is not None:
            self._broker.until_started()
        deadline = time.monotonic() + RECOVERY_S
        while time.monotonic() < deadline and not is_complete(
            self._folder, sound, is_udp=self.is_udp
        ):
            time.sleep(LOOK_S)
        for program in self.programs:
            program.kill()


def free_group() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((peers.HOST, 0))
        port: int = free.getsockname()[1]
    return f"udp://239.255.42.1:{port}?interface={peers.HOST}"


def amqp_url(port: int) -> str:
    return f"amqp://guest:guest@{peers.HOST}:{port}/%2F"


def inject(
    site: Site,
    schedule: list[Fault],
    noted: Diary,
    injected: Counter[str],
    seconds: float,
    report: Report,
) -> None:
    """Start and end each fault at its time. At the end publishers are killed, and all other faults end."""
    begun = time.monotonic()
    timeline = [(fault.at, number, fault, True) for number, fault in enumerate(schedule)]
    heapq.heapify(timeline)
    pending: list[Fault] = []
    while timeline and timeline[0][0] < seconds:
        at, number, fault, is_begin = heapq.heappop(timeline)
        while (left := begun + at - time.monotonic()) > 0:
            report((time.monotonic() - begun) / seconds, phase(pending))
            time.sleep(min(left, TICK_S))
        if is_begin:
            at_begin = stamped(f"{fault.kind.value} {fault.target}")
            if site.begin(fault):
                noted.note(at_begin)
                injected[fault.kind.value] += 1
                pending.append(fault)
                heapq.heappush(timeline, (fault.end, number, fault, False))
        else:
            finish(site, fault, noted, pending)
    while (left := begun + seconds - time.monotonic()) > 0:
        report(1 - left / seconds, phase(pending))
        time.sleep(min(left, TICK_S))
    for program in site.programs:
        if program.role == PUBLISHER:
            program.kill()
    for fault in list(pending):
        if not (
            isinstance(found := site.targets[fault.target], Program) and found.role == PUBLISHER
        ):
            finish(site, fault, noted, pending)


def finish(site: Site, fault: Fault, noted: Diary, pending: list[Fault]) -> None:
    site.end(fault)
    noted.note(stamped(f"{fault.kind.value}-ended {fault.target}"))
    pending.remove(fault)


def phase(pending: list[Fault]) -> str:
    return ", ".join(f"{fault.target} {fault.kind.value}" for fault in pending)


# --- the evidence


def read_evidence(
    folder: Path, programs: Mapping[str, str], *, is_udp: bool, with_classes: bool = True
) -> Evidence:
    faults = diary.read_faults(folder / FAULTS_FILE)
    published = read_published(folder, programs)
    subscribers = [
        read_subscriber(folder, name, role, faults[name])
        for name, role in programs.items()
        if role in RECOVERY
    ]
    names = [each.name for each in subscribers]
    archives = [
        read_archive(folder / name, names if with_classes else [])
        for name, role in programs.items()
        if role == ARCHIVE
    ]
    interruptions = {
        name: [*(each for each in faults[name] if not is_kill(each)), *faults[BROKER]]
        for name in names
    }
    owed = owed_messages(published, [each.stored for each in archives], is_udp=is_udp)
    return Evidence(
        published, owed, subscribers, archives, interruptions, confirmed_is_stored=not is_udp
    )


def read_published(folder: Path, programs: Mapping[str, str]) -> Published:
    published = Published()
    for name, role in programs.items():
        if role == PUBLISHER:
            diary.read_publisher(folder / f"{name}.diary", published)
    return published


def owed_messages(published: Published, stored: list[Sequences], *, is_udp: bool) -> Sequences:
    """On a broker each confirmed message; on UDP each that an archive has."""
    owed: Sequences = defaultdict(set)
    if not is_udp:
        for publisher, last in published.confirmed.items():
            owed[publisher] = set(range(1, last + 1))
    else:
        for content in stored:
            for publisher, sequences in content.items():
                owed[publisher] |= sequences
    return owed


def read_subscriber(folder: Path, name: str, role: str, faults: list[Interval]) -> Subscriber:
    incarnations = diary.read_subscriber(folder / f"{name}.diary")
    diary.add_output(incarnations, diary.read_output(folder / f"{name}.sqlite"))
    kills = [each.start for each in faults if is_kill(each)]
    for incarnation, until in zip(
        incarnations,
        [*(each.born for each in incarnations[1:]), FOREVER][: len(incarnations)],
        strict=True,
    ):
        incarnation.ended = min(
            [incarnation.ended, *(each for each in kills if incarnation.born < each < until)]
        )
        incarnation.is_killed = incarnation.ended in kills
    return Subscriber(name, RECOVERY[role], incarnations)


def is_kill(fault: Interval) -> bool:
    return fault.kind == FaultKind.KILL.value


def read_archive(folder: Path, subscribers: list[str]) -> Archived:
    """An archive, which may be running, and how it classifies messages for these subscribers."""
    with Archive.open(folder) as archive:
        views = [
            view_seen(each.record)
            for each in archive.records()
            if isinstance(each.record, ViewRecord) and not each.record.provisional
        ]
        stored: Sequences = defaultdict(set)
        for publisher, sequence, _ in rows(archive, None):
            stored[publisher].add(sequence)
        classes = {name: read_classes(archive, name) for name in subscribers}
    return Archived(folder.name, stored, views, classes)


def view_seen(record: ViewRecord) -> diary.ViewSeen:
    view = record.view
    members = frozenset(map(str, view.members()))
    return diary.ViewSeen(
        (view.id.number, view.id.coordinator.hex()), members, frozenset(record.cut.items())
    )


def rows(archive: Archive, subscriber: str | None) -> Iterator[tuple[bytes, int, str]]:
    for batch in archive.batches(columns=["publisher", "sequence"], subscriber=subscriber):
        publishers = [bytes.fromhex(each) for each in batch.column("publisher").to_pylist()]
        sequences = batch.column("sequence").to_pylist()
        certainties = [""] * len(sequences)
        if subscriber is not None:
            certainties = batch.column("certainty").to_pylist()
        yield from zip(publishers, sequences, certainties, strict=True)


def read_classes(archive: Archive, subscriber: str) -> Classes:
    """Rows of one publisher are in order, so equal neighbours make a range."""
    ranges: dict[bytes, list[tuple[int, int, str]]] = defaultdict(list)
    for publisher, sequence, certainty in rows(archive, subscriber):
        known = ranges[publisher]
        if known and known[-1][1] + 1 == sequence and known[-1][2] == certainty:
            known[-1] = (known[-1][0], sequence, certainty)
        else:
            known.append((sequence, sequence, certainty))
    return Classes(ranges)


def is_complete(folder: Path, programs: Mapping[str, str], *, is_udp: bool) -> bool:
    """Whether every subscriber and every archive has the messages that it is owed."""
    verdict = judge(read_evidence(folder, programs, is_udp=is_udp, with_classes=False))
    return not any(verdict.count(kind) for kind in (Kind.LOST, Kind.GAP, Kind.HOLE))
