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

A message that cannot be written down is refused when it is sent: see recado.actors.serialization.
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
from recado.actors.errors import ActorStoppedError, NameTakenError, SystemClosedError
from recado.actors.message import Message
from recado.actors.ref import ActorRef, Reply
from recado.actors.remote_port import ReceivedSequences
from recado.actors.runtime.mailbox import DurableMailboxPort
from recado.actors.serialization.errors import InvalidEnvelopeError, SerializationError
from recado.actors.serialization.serializers import Serializers
from recado.journal.disk import Disk, FolderDisk

from .journal import SEGMENT_BYTES, MailboxJournal, MessageStored, PendingMessage

if TYPE_CHECKING:
    from recado.actors.runtime.mailbox import MessageEnvelope, Origin, StoredCallback
    from recado.actors.system import ActorSystem

ATTEMPTS_MAX: Final = 5

Rejection: TypeAlias = SerializationError | SystemClosedError

log = logging.getLogger("recado.actors")


class DurableMailboxes:
    """All durable mailboxes of a system, in one folder. They are closed with the system."""

    def __init__(
        self,
        system: ActorSystem,
        folder: Path | str | Disk,
        *,
        pickle: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Raises InUse if another process has the folder, Corrupt if it is damaged."""
        disk = FolderDisk(folder) if isinstance(folder, Path | str) else folder
        self._system = system
        self._journal = MailboxJournal(disk, segment_bytes, self._received_from)
        self._serializers = Serializers(_write_ref, self._read_ref, pickle=pickle)
        self._open_mailboxes: dict[str, DurableMailbox] = {}
        # Where answers go to what a mailbox had when its actor stopped, by the number of the message.
        self._orphaned_replies: dict[int, Reply] = {}
        # Who opens a mailbox reads what is in the room, and who puts something puts it into both: one at a
        # time, or it would be in the mailbox twice.
        self._lock = threading.Lock()
        system.on_close(self.close)

    def mailbox(
        self, name: str, *, attempts_max: int = ATTEMPTS_MAX
    ) -> Callable[[], DurableMailbox]:
        """For `spawn`: the mailbox of this name, with what is left in it. The actor's own is a good one."""
        if attempts_max < 1:
            raise ValueError("a message that is never attempted is never handled")
        return lambda: DurableMailbox(self, name, attempts_max)

    def pending_counts(self) -> dict[str, int]:
        """The mailboxes that have something, also those that nobody has opened, and how much."""
        return self._journal.pending_counts()

    async def close(self) -> None:
        await asyncio.to_thread(self._journal.close)

    def _received_from(self, incarnation: bytes) -> ReceivedSequences | None:
        return (
            None
            if self._system._remote is None
            else self._system._remote.received_from(incarnation)
        )

    def _read_ref(self, wanted: type, value: object) -> object:
        if issubclass(typing.get_origin(wanted) or wanted, ActorRef) and isinstance(value, str):
            return self._system.ref(value)
        raise NotImplementedError(f"{wanted} cannot be kept")  # how msgspec wants to be told


def _write_ref(value: object) -> object:
    if isinstance(value, ActorRef):
        return str(value.address)
    raise SerializationError(f"{type(value).__qualname__} has no serialiser")


class UnreadableRecord(Message[None]):
    """The message of a dead letter for a record that cannot be read (DU5), as it was written."""

    by_reference: ClassVar[bool] = True

    mailbox: str
    format_id: int
    manifest: str
    body: bytes


class LostAsker(Reply):
    """Who asked in an earlier life of the process: there, and not to be reached."""

    def complete(self, value: object) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


LOST_ASKER: Final = LostAsker()


def _ignore_wake() -> None:
    """Its cell is about to be made, and looks into its mailbox when it starts."""


class DurableMailbox(DurableMailboxPort):
    """A LastingMailbox. Use `DurableMailboxes.mailbox`."""

    def __init__(self, mailboxes: DurableMailboxes, name: str, attempts_max: int) -> None:
        self._mailboxes = mailboxes
        self._journal = mailboxes._journal
        self._name = name
        self._attempts_max = attempts_max
        self._ready: deque[tuple[PendingMessage, MessageEnvelope]] = deque()
        # Handed out and not settled, by the identity of the letter: stashed ones, too.
        self._in_flight: dict[int, tuple[PendingMessage, MessageEnvelope]] = {}
        self._wake_cell: Callable[[], None] = _ignore_wake
        unreadable: list[tuple[PendingMessage, MessageStored, Reply | None, Exception]] = []
        with mailboxes._lock:
            if name in mailboxes._open_mailboxes:
                raise NameTakenError(f"the mailbox {name!r} is another actor's")
            for entry, record in self._journal.pending_of(name):
                reply = mailboxes._orphaned_replies.pop(entry.message_id, None)
                if reply is None:
                    reply = self._restore_reply(record)
                try:
                    self._ready.append((entry, self._decode(record, reply)))
                except (InvalidEnvelopeError, ValueError) as error:
                    unreadable.append((entry, record, reply, error))
            mailboxes._open_mailboxes[name] = self
        for each in unreadable:  # a listener may send to a durable mailbox
            self._dead_letter_unreadable(*each)

    def attach(self, wake: Callable[[], None]) -> None:
        self._wake_cell = wake

    def _decode(self, record: MessageStored, reply: Reply | None) -> MessageEnvelope:
        """The message of a record. Raises BadEnvelope, and ValueError if the sender has no address."""
        boxes = self._mailboxes
        message = boxes._serializers.deserialize(record.format_id, record.manifest, record.body)
        sender: ActorRef[Any] | None = boxes._system.ref(record.sender) if record.sender else None
        return message, sender, reply

    def _restore_reply(self, record: MessageStored) -> Reply | None:
        """Of a message that came in an earlier life (DU6)."""
        node = self._mailboxes._system._remote
        reply: Reply | None = None
        if node is not None and (record.origin is not None or record.asker is not None):
            reply = node.restore_reply(record.asker)
        return LOST_ASKER if reply is None and record.is_ask else reply

    def _dead_letter_unreadable(
        self, entry: PendingMessage, record: MessageStored, reply: Reply | None, error: Exception
    ) -> None:
        """DU5."""
        log.error("unreadable record in durable mailbox %s: %s", self._name, error)
        message = UnreadableRecord(self._name, record.format_id, record.manifest, record.body)
        self._journal.record_handled(entry)
        if reply is not None:
            reply.fail(error)
        self._dead_letter((message, None, None), str(error))

    # ── putting, in any thread ────────────────────────────────────────────────────────────────────────────

    def put(self, envelope: MessageEnvelope) -> None:
        self._store(envelope, None)

    def put_durably(
        self, envelope: MessageEnvelope, origin: Origin | None, on_stored: StoredCallback | None
    ) -> None:
        rejection = self._store(envelope, origin)
        if on_stored is None:
            return
        if rejection is not None:
            on_stored(rejection)
        else:
            self.when_stored(on_stored)

    def _store(self, envelope: MessageEnvelope, origin: Origin | None) -> Rejection | None:
        """Why it is not in the mailbox, if it is not; if it came before, it is."""
        message, sender, reply = envelope
        try:
            serialisation, manifest, body = self._mailboxes._serializers.serialize(message)
        except SerializationError as error:
            return self._reject(envelope, error)
        address = "" if sender is None else str(sender.address)
        asker = None if reply is None else reply.asker
        try:
            with self._mailboxes._lock:
                entry = self._journal.append(
                    lambda number: MessageStored(
                        message_id=number,
                        mailbox=self._name,
                        origin=origin,
                        attempts=0,
                        sender=address,
                        is_ask=reply is not None,
                        format_id=serialisation,
                        manifest=manifest,
                        body=body,
                        asker=asker,
                    )
                )
                if entry is None:
                    return None
                # If the actor has stopped, another one may have the mailbox by now, or will.
                owner = self._mailboxes._open_mailboxes.get(self._name, self)
                owner._ready.append((entry, envelope))
                if reply is not None and self._name not in self._mailboxes._open_mailboxes:
                    self._mailboxes._orphaned_replies[entry.message_id] = reply
        except SystemClosedError as error:
            return self._reject(envelope, error)
        if owner is not self:
            owner._wake_cell()
        return None

    def _reject(self, envelope: MessageEnvelope, error: Rejection) -> Rejection:
        """The sender does not fail (RE2); but whoever wants to know is told."""
        message, sender, reply = envelope
        log.error("the mailbox %s cannot keep a message: %s", self._name, error)
        if reply is not None:
            reply.fail(error)
        self._dead_letter((message, sender, None), str(error))
        return error

    def when_stored(self, on_stored: StoredCallback) -> None:
        self._journal.when_synced(on_stored)

    # ── getting, by who runs the actor ────────────────────────────────────────────────────────────────────

    def get_nowait(self) -> MessageEnvelope:
        while self._ready:
            entry, envelope = self._ready.popleft()
            if entry.attempts < self._attempts_max:
                self._journal.record_attempt(entry)
                self._in_flight[id(envelope)] = entry, envelope
                return envelope
            self._drop_exhausted(entry, envelope)  # the last attempt ended the process (DU3)
            if (reply := envelope[2]) is not None:
                tried = f"the mailbox {self._name} has given up a message after {entry.attempts} attempts"
                reply.fail(ActorStoppedError(tried))
        raise Empty

    def qsize(self) -> int:
        return len(self._ready)

    def acknowledge(self, envelope: MessageEnvelope, failure: BaseException | None) -> bool:
        entry, _ = self._in_flight.pop(id(envelope), (None, None))
        if entry is None:  # a signal, or it was stashed
            return True
        if failure is None:
            self._journal.record_handled(entry, next_follows=bool(self._ready))
        elif entry.attempts < self._attempts_max:
            self._ready.appendleft((entry, envelope))
            return False
        else:
            self._drop_exhausted(entry, envelope)
        return True

    def _drop_exhausted(self, entry: PendingMessage, envelope: MessageEnvelope) -> None:
        self._journal.record_handled(entry)
        self._dead_letter((envelope[0], envelope[1], None), f"{entry.attempts} attempts failed")

    def _dead_letter(self, envelope: MessageEnvelope, reason: str) -> None:
        system = self._mailboxes._system
        recipient = system.registry.by_name(self._name)
        if recipient is None:
            recipient = ActorRef(
                Address(system.name, self._name), system._dead_letter_office, system
            )
        system._dead_letter(envelope, recipient, reason)

    def close(self) -> None:
        """Its actor has stopped. What is left waits for the next one (DU2)."""
        self._journal.flush()
        with self._mailboxes._lock:
            if self._mailboxes._open_mailboxes.get(self._name) is self:
                del self._mailboxes._open_mailboxes[self._name]
                for entry, letter in (*self._in_flight.values(), *self._ready):
                    if letter[2] is not None:
                        self._mailboxes._orphaned_replies[entry.message_id] = letter[2]
