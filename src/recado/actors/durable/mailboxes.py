"""Durable mailboxes: what was taken is handled, in this life of the process or in the next.

    async with ActorSystem("exchange") as system:
        lasting = DurableMailboxes(system, "/var/lib/exchange/mail")
        book = await system.spawn(Book, name="book.A1", mailbox=lasting.mailbox("book.A1"))
        await book.tell_wait(Place(order))      # on disk

DU1  When `tell_wait` returns, on this node or another, the message is on disk. It is handled at least once,
     unless it becomes a dead letter. A plain `tell` gets there as well, but nobody knows when.
DU2  A message is acknowledged after its handler has ended. What was not, comes again: after a failure of the
     actor before all others, after the end of the process in the order in which it was sent.
DU3  It is attempted so many times, counted over all lives of the process; then it is a dead letter. So a
     message that kills the process does so a bounded number of times.
DU4  A message from another node is taken once, however often it comes: it is known by the sender's incarnation
     and sequence.
DU5  A record that cannot be read, since its class is gone or has changed, is a dead letter with the reason: an
     UnreadableRecord with the bytes. It does not keep the others from being handled, and its asker is told.
DU6  An ask is answered by whichever actor handles it, in a later life of the process, too, if the asker is on
     another node and its transport kept the ask: the record says where the answer goes. An asker of this
     process is answered by a later actor of the mailbox; it is gone with the process.

A message that cannot be written down is refused when it is sent: see recado.actors.serialising.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import typing
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from recado.actors.address import Address
from recado.actors.errors import ActorStopped, NameTaken, SystemClosed
from recado.actors.message import Message
from recado.actors.others import Asker, Heard
from recado.actors.ref import ActorRef, Reply
from recado.actors.serialising.faults import BadEnvelope, CannotSerialise
from recado.actors.serialising.serialisers import Serialisers
from recado.journal.disk import Disk, FolderDisk

from .mailroom import SEGMENT_SIZE, Entered, Entry, Mailroom

if TYPE_CHECKING:
    from recado.actors.running.mailbox import Letter, Origin, Then
    from recado.actors.system import ActorSystem

ATTEMPTS: Final = 5

Refusal: TypeAlias = CannotSerialise | SystemClosed

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
        self.room = Mailroom(disk, segment_size, self._heard)
        self.serialisers = Serialisers(_write_ref, self._read_ref, pickle=pickle)
        self.open: dict[str, DurableMailbox] = {}
        # Where answers go to what a mailbox had when its actor stopped, by the number of the message.
        self.replies: dict[int, Reply] = {}
        # Who opens a mailbox reads what is in the room, and who puts something puts it into both: one at a
        # time, or it would be in the mailbox twice.
        self.lock = threading.Lock()
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

    def _heard(self, incarnation: bytes) -> Heard | None:
        return None if self.system.node is None else self.system.node.heard(incarnation)

    def _read_ref(self, wanted: type, value: object) -> object:
        if issubclass(typing.get_origin(wanted) or wanted, ActorRef) and isinstance(value, str):
            return self.system.ref(value)
        raise NotImplementedError(f"{wanted} cannot be kept")  # how msgspec wants to be told


def _write_ref(value: object) -> object:
    if isinstance(value, ActorRef):
        return str(value.address)
    raise CannotSerialise(f"{type(value).__qualname__} has no serialiser")


class UnreadableRecord(Message[None]):
    """The message of a dead letter for a record that cannot be read (DU5), as it was written."""

    by_reference: ClassVar[bool] = True

    mailbox: str
    serialisation: int
    manifest: str
    body: bytes


class Nobody:
    """Who asked in an earlier life of the process: there, and not to be reached."""

    def complete(self, value: object) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


NOBODY: Final = Nobody()


def _not_yet() -> None:
    """Its cell is about to be made, and looks into its mailbox when it starts."""


class DurableMailbox:
    """A LastingMailbox. Use `DurableMailboxes.mailbox`."""

    def __init__(self, boxes: DurableMailboxes, name: str, attempts: int) -> None:
        self._boxes = boxes
        self._room = boxes.room
        self._name = name
        self._attempts = attempts
        self._ready: deque[tuple[Entry, Letter]] = deque()
        # Handed out and not settled, by the identity of the letter: stashed ones, too.
        self._out: dict[int, tuple[Entry, Letter]] = {}
        self._wake: Callable[[], None] = _not_yet
        unreadable: list[tuple[Entry, Entered, Reply | None, Exception]] = []
        with boxes.lock:
            if name in boxes.open:
                raise NameTaken(f"the mailbox {name!r} is another actor's")
            for entry, record in self._room.left(name):
                reply = boxes.replies.pop(entry.number, None)
                if reply is None:
                    reply = self._reply(record)
                try:
                    self._ready.append((entry, self._letter(record, reply)))
                except (BadEnvelope, ValueError) as error:
                    unreadable.append((entry, record, reply, error))
            boxes.open[name] = self
        for each in unreadable:  # a listener may send to a durable mailbox
            self._bury_unreadable(*each)

    def meet(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def _letter(self, record: Entered, reply: Reply | None) -> Letter:
        """The message of a record. Raises BadEnvelope, and ValueError if the sender has no address."""
        boxes = self._boxes
        message = boxes.serialisers.read(record.serialisation, record.manifest, record.body)
        sender: ActorRef[Any] | None = boxes.system.ref(record.sender) if record.sender else None
        return message, sender, reply

    def _reply(self, record: Entered) -> Reply | None:
        """Of a message that came in an earlier life (DU6)."""
        node = self._boxes.system.node
        reply: Reply | None = None
        if node is not None and (record.origin is not None or record.asker is not None):
            reply = node.reply_to(record.asker)
        return NOBODY if reply is None and record.asked else reply

    def _bury_unreadable(
        self, entry: Entry, record: Entered, reply: Reply | None, error: Exception
    ) -> None:
        """DU5."""
        log.error("unreadable record in durable mailbox %s: %s", self._name, error)
        message = UnreadableRecord(self._name, record.serialisation, record.manifest, record.body)
        self._room.handled(entry)
        if reply is not None:
            reply.fail(error)
        self._bury((message, None, None), str(error))

    # ── putting, in any thread ────────────────────────────────────────────────────────────────────────────

    def put(self, letter: Letter) -> None:
        self._enter(letter, None)

    def put_from(self, letter: Letter, origin: Origin | None, then: Then | None) -> None:
        refusal = self._enter(letter, origin)
        if then is None:
            return
        if refusal is not None:
            then(refusal)
        else:
            self.stored(then)

    def _enter(self, letter: Letter, origin: Origin | None) -> Refusal | None:
        """Why it is not in the mailbox, if it is not; if it came before, it is."""
        message, sender, reply = letter
        try:
            serialisation, manifest, body = self._boxes.serialisers.write(message)
        except CannotSerialise as error:
            return self._refuse(letter, error)
        address = "" if sender is None else str(sender.address)
        asker: Asker | None = getattr(reply, "asker", None)
        try:
            with self._boxes.lock:
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
                        asker=asker,
                    )
                )
                if entry is None:
                    return None
                # If the actor has stopped, another one may have the mailbox by now, or will.
                heir = self._boxes.open.get(self._name, self)
                heir._ready.append((entry, letter))
                if reply is not None and self._name not in self._boxes.open:
                    self._boxes.replies[entry.number] = reply
        except SystemClosed as error:
            return self._refuse(letter, error)
        if heir is not self:
            heir._wake()
        return None

    def _refuse(self, letter: Letter, error: Refusal) -> Refusal:
        """The sender does not fail (RE2); but whoever wants to know is told."""
        message, sender, reply = letter
        log.error("the mailbox %s cannot keep a message: %s", self._name, error)
        if reply is not None:
            reply.fail(error)
        self._bury((message, sender, None), str(error))
        return error

    def stored(self, then: Then) -> None:
        self._room.when_safe(then)

    # ── getting, by who runs the actor ────────────────────────────────────────────────────────────────────

    def get_nowait(self) -> Letter:
        while self._ready:
            entry, letter = self._ready.popleft()
            if entry.attempts < self._attempts:
                self._room.attempt(entry)
                self._out[id(letter)] = entry, letter
                return letter
            self._give_up(entry, letter)  # the last attempt ended the process (DU3)
            if (reply := letter[2]) is not None:
                tried = f"the mailbox {self._name} has given up a message after {entry.attempts} attempts"
                reply.fail(ActorStopped(tried))
        raise Empty

    def qsize(self) -> int:
        return len(self._ready)

    def settle(self, letter: Letter, failure: BaseException | None) -> bool:
        entry, _ = self._out.pop(id(letter), (None, None))
        if entry is None:  # a signal, or it was stashed
            return True
        if failure is None:
            self._room.handled(entry, more=bool(self._ready))
        elif entry.attempts < self._attempts:
            self._ready.appendleft((entry, letter))
            return False
        else:
            self._give_up(entry, letter)
        return True

    def _give_up(self, entry: Entry, letter: Letter) -> None:
        self._room.handled(entry)
        self._bury((letter[0], letter[1], None), f"{entry.attempts} attempts failed")

    def _bury(self, letter: Letter, reason: str) -> None:
        system = self._boxes.system
        recipient = system.registry.by_name(self._name)
        if recipient is None:
            recipient = ActorRef(Address(system.name, self._name), system.undertaker, system)
        system.bury(letter, recipient, reason)

    def close(self) -> None:
        """Its actor has stopped. What is left waits for the next one (DU2)."""
        self._room.write()
        with self._boxes.lock:
            if self._boxes.open.get(self._name) is self:
                del self._boxes.open[self._name]
                for entry, letter in (*self._out.values(), *self._ready):
                    if letter[2] is not None:
                        self._boxes.replies[entry.number] = letter[2]
