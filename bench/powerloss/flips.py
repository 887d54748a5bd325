"""A data folder with one wrong bit: it is detected, or makes no difference.

Wrong data is never served, and missing data is always reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple

from bench.crash import history as h
from bench.crash.history import Message
from recado.journal.record import CorruptJournalError

from . import history as p
from .drain import drain
from .history import AnyEvent, History
from .machine import Machine
from .node import Node, Shape, UnreadableDataError


class Result(Enum):
    REFUSED = "refused"
    """The node does not start, or reports that it cannot read, and where."""
    CUT = "cut"
    """The node reports how many bytes of its journal were incomplete."""
    HARMLESS = "harmless"
    SILENT = "silent"
    """Data is wrong or missing without a report, or it was noticed by accident only."""


class Served(NamedTuple):
    """Everything that a node serves."""

    topology: list[str]
    events: list[AnyEvent]
    cut: tuple[int, int]
    """Bytes that were not whole, of the node's own journal and of those of all streams."""

    @property
    def messages(self) -> set[Message]:
        given = (h.Delivered, p.Shown)
        return {event.message for event in self.events if isinstance(event, given)}


class Folder:
    """The files of a machine, and what a node serves of them without errors."""

    def __init__(self, machine: Machine, shape: Shape, now: int, sent: set[Message]) -> None:
        """`sent` are all messages that there ever were."""
        self._machine = machine
        self._shape = shape
        self._now = now
        self._sent = sent
        self._expected = self._serve(machine.copy())

    def sizes(self) -> dict[str, int]:
        """Of all files, each named by its disk and its name: bytes up to the last that is no zero."""
        found = {}
        for folder, disk in self._machine.named_disks():
            for name in disk.names():
                file = disk.open(name)
                found[f"{folder}/{name}"] = len(file.read(0, file.size()).rstrip(b"\0"))
        return found

    def bits(self) -> Iterator[tuple[str, int]]:
        """All of them."""
        for file, size in self.sizes().items():
            for bit in range(size * 8):
                yield file, bit

    def any_bit(self, rng: Random) -> tuple[str, int]:
        sizes = {file: size for file, size in self.sizes().items() if size}
        (file,) = rng.choices(list(sizes), list(sizes.values()))
        return file, rng.randrange(sizes[file] * 8)

    def flip(self, file: str, bit: int) -> Result:
        machine = self._machine.copy()
        folder, _, name = file.partition("/")
        dict(machine.named_disks())[folder].flip_bit(name, bit)
        try:
            served = self._serve(machine)
        except (CorruptJournalError, UnreadableDataError):
            return Result.REFUSED
        except Exception:  # noqa: BLE001 - whatever it stumbled over, it did not say that the disk is wrong
            return Result.SILENT
        expected = self._expected
        if (served.topology, served.events) == (expected.topology, expected.events):
            return Result.HARMLESS
        damaged = any(isinstance(event, h.Damaged) for event in served.events)
        # Separately: streams that are not referenced are not truncated.
        told = any(now > before for now, before in zip(served.cut, expected.cut, strict=True))
        if told and not damaged and served.messages <= self._sent:
            return Result.CUT
        return Result.SILENT

    def _serve(self, machine: Machine) -> Served:
        node = Node(machine, self._shape, self._now)
        vhost = node.broker.vhosts["/"]
        topology = [
            *vhost.exchanges,
            *vhost.queues,
            *map(repr, sorted(node.store.metadata.items())),
        ]
        for queue in vhost.queues.values():
            bindings = vhost.bindings_to(queue)
            topology += [f"{each.source} {queue.name} {each.routing_key}" for each in bindings]
        history = History()
        drain(node, 1, history, {})
        store = node.store
        own = store.journal.truncated_bytes
        return Served(topology, history.events, (own, store.truncated_bytes - own))
