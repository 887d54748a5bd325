"""Durable mailboxes: what was taken is handled, in this life of the process or in the next.

    async with ActorSystem("exchange") as system:
        lasting = DurableMailboxes(system, "/var/lib/exchange/mail")
        book = await system.spawn(Book, name="book.A1", mailbox=lasting.mailbox("book.A1"))
        await book.tell_wait(Place(order))      # on disk

DU1  When `tell_wait` returns the message is on disk. It is handled at least once, unless it becomes a dead
     letter. A plain `tell` gets there as well, but nobody knows when.
DU2  A message is acknowledged after its handler has ended. What was not, comes again: after a failure of the
     actor before all others, after the end of the process in the order in which it was sent.
DU3  It is attempted so many times, counted over all lives of the process; then it is a dead letter. So a
     message that kills the process does so a bounded number of times.
DU4  A message from another node is taken once, however often it comes: it is known by the sender's incarnation
     and sequence.
DU5  What cannot be read in this life, since its class is not known, waits for another.

Who asked has gone with the process: a message that comes again is handled as one that was asked, and its answer
is dropped. Messages have to be of classes that can be written down: see recado.actors.remote.serialisers.
"""

from __future__ import annotations

import asyncio
import logging
import typing
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from recado.journal.disk import Disk, FolderDisk

from .address import Address
from .errors import NameTaken, SystemClosed
from .mailroom import SEGMENT_SIZE, Entered, Entry, Mailroom
from .ref import ActorRef, Reply
from .remote.faults import BadEnvelope, CannotSerialise
from .remote.options import Options
from .remote.serialisers import Serialisers

if TYPE_CHECKING:
    from .mailbox import Envelope, Origin, Then
    from .system import ActorSystem

ATTEMPTS: Final = 5

log = logging.getLogger("recado.actors")


class DurableMailboxes:
    """All durable mailboxes of a system, in one folder. They are closed with the system."""

    def __init__(
        self,
        system: ActorSystem,
        folder: Path | str | Disk,
        *,
        pickle: bool = False,
        segment_size: int = SEGMENT_SIZE,
    ) -> None:
        """Raises InUse if another process has the folder, Corrupt if it is damaged."""
        disk = FolderDisk(folder) if isinstance(folder, Path | str) else folder
        self.system = system
        self.room = Mailroom(disk, segment_size)
        self.serialisers = Serialisers(Options(pickle=pickle), _write_ref, self._read_ref)
        self.open: dict[str, DurableMailbox] = {}
        system.at_close(self.close)

    def mailbox(self, name: str, *, attempts: int = ATTEMPTS) -> Callable[[], DurableMailbox]:
        """For `spawn`: the mailbox of this name, with what is left in it. The actor's own is a good one."""
        if attempts < 1:
            raise ValueError("a message that is never attempted is never handled")
        return lambda: DurableMailbox(self, name, attempts)

    def left(self) -> dict[str, int]:
        """The mailboxes that have something, also those that nobody has opened, and how much."""
        return self.room.boxes()

    async def close(self) -> None:
        await asyncio.to_thread(self.room.close)

    def _read_ref(self, wanted: type, value: object) -> object:
        if issubclass(typing.get_origin(wanted) or wanted, ActorRef) and isinstance(value, str):
            return self.system.ref(value)
        raise NotImplementedError(f"{wanted} cannot be kept")  # how msgspec wants to be told


def _write_ref(value: object) -> object:
    if isinstance(value, ActorRef):
        return str(value.address)
    raise CannotSerialise(f"{type(value).__qualname__} has no serialiser")


class Nobody:
    """Who asked in an earlier life of the process: there, and not to be reached."""

    def complete(self, value: object) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


NOBODY: Final = Nobody()


class DurableMailbox:
    """A LastingMailbox. Use `DurableMailboxes.mailbox`."""

    def __init__(self, boxes: DurableMailboxes, name: str, attempts: int) -> None:
        if name in boxes.open:
            raise NameTaken(f"the mailbox {name!r} is another actor's")
        self._boxes = boxes
        self._room = boxes.room
        self._name = name
        self._attempts = attempts
        self._ready: deque[tuple[Entry, Envelope]] = deque()
        # Handed out and not settled, by the identity of the envelope: stashed ones, too.
        self._out: dict[int, tuple[Entry, Envelope]] = {}
        self._refusal: CannotSerialise | SystemClosed | None = None
        for entry, record in self._room.left(name):
            if (envelope := self._envelope(record)) is not None:
                self._ready.append((entry, envelope))
        boxes.open[name] = self

    def _envelope(self, record: Entered) -> Envelope | None:
        """What was written down; None if nobody can read it now (DU5)."""
        boxes = self._boxes
        try:
            message = boxes.serialisers.read(record.serialisation, record.manifest, record.body)
        except BadEnvelope as error:
            log.error("a message in the mailbox %s is left there: %s", self._name, error)
            return None
        sender: ActorRef[Any] | None = boxes.system.ref(record.sender) if record.sender else None
        reply: Reply | None = NOBODY if record.asked else None
        return message, sender, reply

    # ── putting, in any thread ────────────────────────────────────────────────────────────────────────────

    def put(self, envelope: Envelope) -> None:
        self._enter(envelope, None)

    def put_from(self, envelope: Envelope, origin: Origin, then: Then | None) -> None:
        self._enter(envelope, origin)
        if then is not None:
            self.stored(then)

    def _enter(self, envelope: Envelope, origin: Origin | None) -> None:
        message, sender, reply = envelope
        try:
            serialisation, manifest, body = self._boxes.serialisers.write(message)
        except CannotSerialise as error:
            self._refuse(envelope, error)
            return
        address = "" if sender is None else str(sender.address)
        try:
            entry = self._room.enter(
                lambda number: Entered(
                    number=number,
                    box=self._name,
                    origin=origin,
                    attempts=0,
                    sender=address,
                    asked=reply is not None,
                    serialisation=serialisation,
                    manifest=manifest,
                    body=body,
                )
            )
        except SystemClosed as error:
            self._refuse(envelope, error)
            return
        if entry is not None:
            # If the actor has stopped, another one may have the mailbox by now.
            self._boxes.open.get(self._name, self)._ready.append((entry, envelope))

    def _refuse(self, envelope: Envelope, error: CannotSerialise | SystemClosed) -> None:
        """The sender does not fail (RE2); but whoever wants to know is told."""
        message, sender, reply = envelope
        log.error("the mailbox %s cannot keep a message: %s", self._name, error)
        self._refusal = error
        if reply is not None:
            reply.fail(error)
        self._bury((message, sender, None))

    def stored(self, then: Then) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            then(refusal)
        else:
            self._room.when_safe(then)

    # ── getting, by who runs the actor ────────────────────────────────────────────────────────────────────

    def get_nowait(self) -> Envelope:
        while self._ready:
            entry, envelope = self._ready.popleft()
            if entry.attempts < self._attempts:
                self._room.attempt(entry)
                self._out[id(envelope)] = entry, envelope
                return envelope
            self._give_up(entry, envelope)  # the last attempt ended the process (DU3)
        raise Empty

    def qsize(self) -> int:
        return len(self._ready)

    def settle(self, envelope: Envelope, failure: BaseException | None) -> bool:
        entry, _ = self._out.pop(id(envelope), (None, None))
        if entry is None:  # a signal, or it was stashed
            return True
        if failure is None:
            self._room.handled(entry, more=bool(self._ready))
        elif entry.attempts < self._attempts:
            self._ready.appendleft((entry, envelope))
            return False
        else:
            self._give_up(entry, envelope)
        return True

    def _give_up(self, entry: Entry, envelope: Envelope) -> None:
        self._room.handled(entry)
        self._bury((envelope[0], envelope[1], None))

    def _bury(self, envelope: Envelope) -> None:
        system = self._boxes.system
        recipient = system.registry.by_name(self._name)
        if recipient is None:
            recipient = ActorRef(Address(system.name, self._name), system.undertaker, system)
        system.bury(envelope, recipient)

    def close(self) -> None:
        """Its actor has stopped. What is left waits for the next one (DU2)."""
        self._room.write()
        if self._boxes.open.get(self._name) is self:
            del self._boxes.open[self._name]
