"""An era: a broker on one machine that is started and loses power several times; then everything is drained.

incarnation    recover, perhaps with a power loss · survey · turns of the loop · the end end     recover · drain ·
power loss · recover · drain again, which must find nothing

A turn corresponds to one turn of a server's event loop: some clients act, then the records of the broker are
written, then its output is read. An fsync starts from time to time, clients act while it is in progress, and it
may end turns later. Everything is determined by the seed.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Final

import msgspec

from bench.crash import history as h
from bench.crash.verdict import Verdict

from . import history as p
from .drain import drain
from .flips import Folder, Result
from .history import History
from .judge import judge
from .landlord import Fleet, Landlord, Surveyor
from .machine import Machine, PowerLost
from .node import Node, NodeFailedError, Shape
from .people import Consumer, NoteTaker, Person, Publisher, Purger, StreamReader
from .topology import DISTRICTS, District

SEGMENTS: Final = (500, 500, 1500, 1500, 6000, 1 << 16)
ROOMS: Final = (0, 300, 300, 3000, 1 << 30)


class Script(msgspec.Struct, frozen=True):
    """Overrides of random choices."""

    districts: tuple[District, ...] = ()
    shape: Shape | None = None
    incarnations: int | None = None
    turns: int | None = None
    moment: int | None = None
    """The power fails after so many operations of the first incarnation, and otherwise only at the end."""
    flips: int = 0
    """How many bits are tried before the end."""


class Outcome(msgspec.Struct):
    seed: int
    verdict: Verdict
    faults: list[str]
    """Faults of the broker besides those with messages."""
    trace: str
    """The same for all runs with this seed."""
    moments: int
    """Operations of the first incarnation."""
    flipped: Counter[Result]

    @property
    def problems(self) -> list[str]:
        return [*map(str, self.verdict.violations), *self.faults]


class NodeStoppedError(Exception):
    """The node is broken: there is a fault to examine."""


def live_through(seed: int, script: Script | None = None) -> Outcome:
    era = Era(seed, script or Script())
    try:
        era.run()
        verdict = judge(era.history.events)
    except NodeStoppedError:
        # The queues were not drained: all messages in them would seem to be lost.
        verdict = Verdict()
    return Outcome(seed, verdict, era.history.faults, era.trace(), era.moments, era.flipped)


class Era:
    def __init__(self, seed: int, script: Script) -> None:
        self.rng = rng = Random(seed)
        self.script = script
        self.history = history = History()
        self.machine = Machine(seed)
        self.moments = 0
        self.now = 1_000_000
        self.shape = script.shape or Shape(
            *(rng.choice(SEGMENTS), rng.choice(ROOMS)),
            *(rng.choice((200, 1000)), rng.choice((0, 0, 4))),
        )
        self.districts = script.districts or tuple(rng.sample(DISTRICTS, 3))
        self.surveyor = Surveyor(self.districts, history)
        self.landlord = Landlord(history, rng)
        self.fleet = Fleet(history, rng)
        self.people: list[Person] = [self.landlord, self.fleet, NoteTaker(history, rng)]
        for district in self.districts:
            self.people += [Publisher(habit, history, rng) for habit in district.habits]
            self.people += [Consumer(temper, history, rng) for temper in district.tempers]
            self.people += [StreamReader(stream, history, rng) for stream in district.streams]
            self.people += [Purger(queue, history, rng) for queue in district.purged]
        self.flipped: Counter[Result] = Counter()
        self._incarnation = 0
        self._known: dict[int, int] = {}  # positions that are used for sure, by queue
        self._under_way = False  # a sync

    def run(self) -> None:
        script = self.script
        self.machine.limit = script.moment
        for _ in range(script.incarnations or self.rng.randint(1, 3)):
            self._live()
        self._flip_some()
        for _ in range(2):
            node = self._start()
            self._end(node, self._guarded(node, self._drain) or "power")

    def populate(self) -> Folder:
        """Run one incarnation that ends in order; return the content of the disks."""
        node = self._start()
        self._end(node, self._guarded(node, self._turns) or "stop")
        return self.folder()

    def trace(self) -> str:
        digest = blake2b(digest_size=12)
        encode = msgspec.msgpack.Encoder().encode
        for event in self.history.events:
            digest.update(encode(event))
        digest.update(encode([self.machine.operations, self.history.faults]))
        return digest.hexdigest()

    # ── an incarnation ────────────────────────────────────────────────────────────────────────────────────

    def _live(self) -> None:
        rng = self.rng
        node = self._start()
        how = rng.choice(("power", "power", "power", "kill", "kill", "stop"))
        if self.script.moment is None:
            if rng.random() < 0.6:
                self.machine.limit = self.machine.operations + rng.randint(1, 250)
            if rng.random() < 0.1:
                self.machine.journal.fail_sync(rng.randrange(30))
        self._end(node, self._guarded(node, self._turns) or how)

    def _start(self) -> Node:
        """Return a node after recovery, during which the power may fail several times."""
        while True:
            machine = self.machine
            if self.script.moment is None and self.rng.random() < 0.25:
                machine.limit = machine.operations + self.rng.randint(0, 12)
            try:
                node = Node(machine, self.shape, self.now)
                node.check()
            except PowerLost:
                self._lose_power()
                continue
            except Exception as error:
                raise self._fault(error) from error
            if self.script.moment is None:
                machine.limit = None
            self._incarnation += 1
            self.history.add(h.Began(self._incarnation))
            self._check_places(node)
            return node

    def _guarded(self, node: Node, work: Callable[[Node], None]) -> str | None:
        """Return what ended the node, if it did not end by itself."""
        try:
            work(node)
        except PowerLost:
            return "power"
        except NodeFailedError:
            return self.rng.choice(("power", "kill"))
        except Exception as error:
            raise self._fault(error) from error
        return None

    def _fault(self, error: Exception) -> NodeStoppedError:
        where = "".join(traceback.format_exception(error))
        self.history.faults.append(f"in incarnation {self._incarnation}: {where}")
        return NodeStoppedError()

    def _end(self, node: Node, how: str) -> None:
        if how == "stop":
            how = self._guarded(node, self._stop) or "stop"
        for client in node.clients:
            client.hear()
            client.overhear()
        self.history.add(h.Died(self._incarnation))
        self.fleet.died()
        self.now = node.now
        self.moments = self.moments or self.machine.operations
        if how == "power":
            self._lose_power()
        else:
            self.machine = self.machine.after_kill()

    def _stop(self, node: Node) -> None:
        """Stop the node as a server that is asked to stop."""
        self.machine.fill(None)
        if node.is_syncing:
            node.end_sync()
        for client in list(node.clients):
            client.leave()
        try:
            node.store.close()
        except OSError as error:
            raise NodeFailedError(str(error)) from error
        self.history.add(p.Synced(len(self.history.events)))

    def _lose_power(self) -> None:
        self.machine = self.machine.after_power_loss()

    def _drain(self, node: Node) -> None:
        self.landlord.survey(node.broker)
        self.surveyor.survey(node)
        labels = {self.landlord.QUEUE: self.landlord.label}
        drain(node, self._incarnation, self.history, labels)
        node.check()
        self.history.add(p.Synced(len(self.history.events)))

    def folder(self) -> Folder:
        """Return the content of the disks."""
        sent = {event.message for event in self.history.events if isinstance(event, h.Sent)}
        try:
            return Folder(self.machine, self.shape, self.now, sent)
        except Exception as error:
            raise self._fault(error) from error

    def _flip_some(self) -> None:
        """Flip some bits; the machine itself is not affected."""
        if not self.script.flips:
            return
        folder = self.folder()
        for _ in range(self.script.flips if any(folder.sizes().values()) else 0):
            file, bit = folder.any_bit(self.rng)
            result = folder.flip(file, bit)
            self.flipped[result] += 1
            if result is Result.SILENT:
                self.history.faults.append(f"bit {bit} of {file} is wrong, and was not detected")

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────

    def _turns(self, node: Node) -> None:
        rng = self.rng
        self.surveyor.survey(node)
        self._present = [each for each in self.people if rng.random() < 0.85]
        for person in self._present:
            person.join(node, self._incarnation)
        for _ in range(self.script.turns or rng.randint(4, 36)):
            self._turn(node)
        node.check()

    def _turn(self, node: Node) -> None:
        rng = self.rng
        node.pass_time(rng.choice((0, 0, 1, 5, 30, 100)))
        for person in rng.sample(self._present, min(rng.randint(1, 4), len(self._present))):
            person.act()
        if node.is_full:
            if rng.random() < 0.3:
                self.machine.fill(None)
        elif rng.random() < 0.02:
            self.machine.fill(rng.randrange(4000))
        if rng.random() < 0.85:
            self._commit_some(node)

    def _commit_some(self, node: Node) -> None:
        rng = self.rng
        written = node.write()
        if written and not self._under_way and not node.is_syncing:
            wanted = 0.7 if node.store.needs_sync else 0.1
            if rng.random() < wanted:
                self._sync(node)
        elif node.is_full and not self._under_way and not node.is_syncing:
            node.free()
        self._hear(node)
        if self._under_way:
            return
        if node.is_syncing and rng.random() < 0.6:
            node.end_sync()
            self._hear(node)
        if rng.random() < 0.4:
            node.clean()

    def _hear(self, node: Node) -> None:
        for client in list(node.clients):
            client.read()

    def _sync(self, node: Node) -> None:
        covered = len(self.history.events)
        places = {
            each.queue_id: each.stored_end
            for each in node.store.queue_indexes.values()
            if each.durable
        }
        node.sync(partial(self._meanwhile, node) if self.rng.random() < 0.4 else None)
        self.history.add(p.Synced(covered))
        self._known.update(places)

    def _meanwhile(self, node: Node) -> None:
        self._under_way = True
        try:
            self._turn(node)
        finally:
            self._under_way = False

    def _check_places(self, node: Node) -> None:
        """Check that no queue number and no position in a queue is reused."""
        indexes = node.store.queue_indexes
        for number, stored in self._known.items():
            index = indexes.get(number)
            if index is not None and index.stored_end < stored:
                told = f"queue {number} goes on at {index.stored_end}, and had {stored} before"
                self.history.faults.append(f"in incarnation {self._incarnation}: {told}")
        last = max(self._known, default=0)
        if node.store.next_queue_id <= last:
            told = f"the next queue is {node.store.next_queue_id}, and {last} was there before"
            self.history.faults.append(f"in incarnation {self._incarnation}: {told}")
