"""Durable mailboxes: an accepted message is handled by this incarnation of the process or by a later one.

    async with ActorSystem("exchange") as system:
        mailboxes = DurableMailboxes(system, "/var/lib/exchange/mail")
        book = await system.spawn(Book, name="book.A1", mailbox=mailboxes.mailbox("book.A1"))
        await book.tell_wait(Place(order))      # on disk

DU1  When `tell_wait` returns, on this node or another, the message is on disk. It is handled at least once,
     unless it becomes a dead letter. A message of a plain `tell` is stored as well, but the sender does not
     learn when.
DU2  A message is acknowledged after its handler has ended normally; otherwise it is retried. If its handler has
     failed, the restarted actor handles it next. If the process or the actor has ended, the next actor of the
     mailbox handles all messages that are left, in the order in which they were put.
DU3  It is attempted `attempts_max` times, counted over all incarnations of the process; then it is a dead
     letter. So a message that kills the process does so a bounded number of times.
DU4  A message from another node is stored once, however often it is redelivered: it is identified by the
     sender's incarnation and sequence number.
DU5  A record that cannot be read, because its class is missing or has changed, is a dead letter with the reason
     and an UnreadableRecord as its message. If it was an ask, the asker gets the error. The other messages are
     handled.
DU6  An ask from another node can be answered by a later incarnation of this process, because the record says
     where the reply goes. The asker gets the reply if it still waits: through a broker it may, over TCP the
     ask has ended in LinkLostError. An ask from this process can be answered by a later actor of the mailbox,
     until the process ends.

A message that cannot be serialized is rejected when it is sent (recado.actors.serialization).
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
    """The durable mailboxes of a system, in one folder. The system closes them."""

    def __init__(
        self,
        system: ActorSystem,
        folder: Path | str | Disk,
        *,
        pickle: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Open the mailboxes in a folder.

        Raises the errors of recado.journal if another process uses the folder, or if its journal is damaged.
        """
        disk = FolderDisk(folder) if isinstance(folder, Path | str) else folder
        self._system = system
        self._journal = MailboxJournal(disk, segment_bytes, self._received_from)
        self._serializers = Serializers(_encode_ref, self._decode_ref, pickle=pickle)
        self._open_mailboxes: dict[str, DurableMailbox] = {}
        # The replies of messages whose actor has stopped, by message id.
        self._orphaned_replies: dict[int, Reply] = {}
        # Opening a mailbox fills it from the journal, and putting a message writes to the journal and to the
        # mailbox. Without the lock a message could get into the mailbox twice.
        self._lock = threading.Lock()
        system.on_close(self.close)

    def mailbox(
        self, name: str, *, attempts_max: int = ATTEMPTS_MAX
    ) -> Callable[[], DurableMailbox]:
        """Return the factory of the mailbox with a name, for `spawn`. The mailbox begins with the messages that
        earlier actors have left in it.

        A message is a dead letter after `attempts_max` failed attempts. Use the actor's name for the mailbox,
        so that messages for a stopped actor reach the next one.
        """
        if attempts_max < 1:
            raise ValueError(f"attempts_max must be at least 1: {attempts_max}")
        return lambda: DurableMailbox(self, name, attempts_max)

    def pending_counts(self) -> dict[str, int]:
        """Return the number of messages in each mailbox that has any, whether it is open or not."""
        return self._journal.pending_counts()

    async def close(self) -> None:
        await asyncio.to_thread(self._journal.close)

    def _received_from(self, incarnation: bytes) -> ReceivedSequences | None:
        return (
            None
            if self._system._remote is None
            else self._system._remote.received_from(incarnation)
        )

    def _decode_ref(self, wanted: type, value: object) -> object:
        if issubclass(typing.get_origin(wanted) or wanted, ActorRef) and isinstance(value, str):
            return self._system.ref(value)
        # The exception that msgspec expects of a hook that does not know a type.
        raise NotImplementedError(f"{wanted} cannot be stored")


def _encode_ref(value: object) -> object:
    if isinstance(value, ActorRef):
        return str(value.address)
    raise SerializationError(f"{type(value).__qualname__} has no serializer")


class UnreadableRecord(Message[None]):
    """The message of the dead letter for a record that cannot be read (DU5): its content as it was stored."""

    by_reference: ClassVar[bool] = True

    mailbox: str
    format_id: int
    manifest: str
    body: bytes


class LostAsker(Reply):
    """The reply of an ask from an earlier incarnation of this process, whose asker cannot be reached."""

    def complete(self, value: object) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


LOST_ASKER: Final = LostAsker()


def _ignore_wake() -> None:
    """The `wake` of a mailbox whose cell is not created yet; the cell checks its mailbox when it starts."""


class DurableMailbox(DurableMailboxPort):
    """Created by `DurableMailboxes.mailbox`."""

    def __init__(self, mailboxes: DurableMailboxes, name: str, attempts_max: int) -> None:
        self._mailboxes = mailboxes
        self._journal = mailboxes._journal
        self._name = name
        self._attempts_max = attempts_max
        self._ready: deque[tuple[PendingMessage, MessageEnvelope]] = deque()
        # Returned by `get_nowait` and not acknowledged, by the id of the envelope; includes stashed ones.
        self._in_flight: dict[int, tuple[PendingMessage, MessageEnvelope]] = {}
        self._wake_cell: Callable[[], None] = _ignore_wake
        unreadable: list[tuple[PendingMessage, MessageStored, Reply | None, Exception]] = []
        with mailboxes._lock:
            if name in mailboxes._open_mailboxes:
                raise NameTakenError(f"the mailbox {name!r} is used by another actor")
            for pending, record in self._journal.pending_of(name):
                reply = mailboxes._orphaned_replies.pop(pending.message_id, None)
                if reply is None:
                    reply = self._restore_reply(record)
                try:
                    self._ready.append((pending, self._decode(record, reply)))
                except (InvalidEnvelopeError, ValueError) as error:
                    unreadable.append((pending, record, reply, error))
            mailboxes._open_mailboxes[name] = self
        # Without the lock: a subscriber of dead letters may send to this mailbox.
        for each in unreadable:
            self._dead_letter_unreadable(*each)

    def attach(self, wake: Callable[[], None]) -> None:
        self._wake_cell = wake

    def _decode(self, record: MessageStored, reply: Reply | None) -> MessageEnvelope:
        """Return the envelope of a record. Raises InvalidEnvelopeError, and ValueError for an invalid
        sender."""
        mailboxes = self._mailboxes
        message = mailboxes._serializers.deserialize(record.format_id, record.manifest, record.body)
        sender: ActorRef[Any] | None = (
            mailboxes._system.ref(record.sender) if record.sender else None
        )
        return message, sender, reply

    def _restore_reply(self, record: MessageStored) -> Reply | None:
        """Return the reply of a message that an earlier incarnation has stored (DU6)."""
        node = self._mailboxes._system._remote
        reply: Reply | None = None
        if node is not None and (record.origin is not None or record.asker is not None):
            reply = node.restore_reply(record.asker)
        return LOST_ASKER if reply is None and record.is_ask else reply

    def _dead_letter_unreadable(
        self, pending: PendingMessage, record: MessageStored, reply: Reply | None, error: Exception
    ) -> None:
        """Drop a record that cannot be read, and publish a dead letter (DU5)."""
        log.error("unreadable record in durable mailbox (mailbox=%s error=%s)", self._name, error)
        message = UnreadableRecord(self._name, record.format_id, record.manifest, record.body)
        self._journal.record_handled(pending)
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
        """Store a message, unless its origin is known. Returns the reason if it is rejected."""
        message, sender, reply = envelope
        try:
            format_id, manifest, body = self._mailboxes._serializers.serialize(message)
        except SerializationError as error:
            return self._reject(envelope, error)
        address = "" if sender is None else str(sender.address)
        asker = None if reply is None else reply.asker
        try:
            with self._mailboxes._lock:
                pending = self._journal.append(
                    lambda message_id: MessageStored(
                        message_id=message_id,
                        mailbox=self._name,
                        origin=origin,
                        attempts=0,
                        sender=address,
                        is_ask=reply is not None,
                        format_id=format_id,
                        manifest=manifest,
                        body=body,
                        asker=asker,
                    )
                )
                if pending is None:
                    return None
                # If the actor of this mailbox has stopped, the next actor may have opened the mailbox already.
                # If it has not, our own `_ready` is never read again: the next actor finds the message in the
                # journal, and its reply among the orphaned ones.
                owner = self._mailboxes._open_mailboxes.get(self._name, self)
                owner._ready.append((pending, envelope))
                if reply is not None and self._name not in self._mailboxes._open_mailboxes:
                    self._mailboxes._orphaned_replies[pending.message_id] = reply
        except SystemClosedError as error:
            return self._reject(envelope, error)
        if owner is not self:
            owner._wake_cell()
        return None

    def _reject(self, envelope: MessageEnvelope, error: Rejection) -> Rejection:
        """Dead-letter a message that cannot be stored, and fail its ask. The sender of a tell does not fail
        (RE2)."""
        message, sender, reply = envelope
        log.error("message rejected by durable mailbox (mailbox=%s error=%s)", self._name, error)
        if reply is not None:
            reply.fail(error)
        self._dead_letter((message, sender, None), str(error))
        return error

    def when_stored(self, on_stored: StoredCallback) -> None:
        self._journal.when_synced(on_stored)

    # ── getting, by the holder of the claim ────────────────────────────────────────────────────────────────

    def get_nowait(self) -> MessageEnvelope:
        while self._ready:
            pending, envelope = self._ready.popleft()
            if pending.attempts < self._attempts_max:
                self._journal.record_attempt(pending)
                self._in_flight[id(envelope)] = pending, envelope
                return envelope
            self._drop_exhausted(pending, envelope)  # the last attempt ended the process (DU3)
            if (reply := envelope[2]) is not None:
                failed = f"{pending.attempts} attempts to handle a message in mailbox {self._name} failed"
                reply.fail(ActorStoppedError(failed))
        raise Empty

    def qsize(self) -> int:
        return len(self._ready)

    def acknowledge(self, envelope: MessageEnvelope, failure: BaseException | None) -> bool:
        pending, _ = self._in_flight.pop(id(envelope), (None, None))
        if pending is None:  # a signal, or NO_ENVELOPE: the handler has stashed its message
            return True
        if failure is None:
            self._journal.record_handled(pending, next_follows=bool(self._ready))
        elif pending.attempts < self._attempts_max:
            self._ready.appendleft((pending, envelope))
            return False
        else:
            self._drop_exhausted(pending, envelope)
        return True

    def _drop_exhausted(self, pending: PendingMessage, envelope: MessageEnvelope) -> None:
        self._journal.record_handled(pending)
        self._dead_letter((envelope[0], envelope[1], None), f"{pending.attempts} attempts failed")

    def _dead_letter(self, envelope: MessageEnvelope, reason: str) -> None:
        system = self._mailboxes._system
        recipient = system.registry.by_name(self._name)
        if recipient is None:
            recipient = ActorRef(
                Address(system.name, self._name), system._dead_letter_office, system
            )
        system._dead_letter(envelope, recipient, reason)

    def close(self) -> None:
        """Close the mailbox of an actor that has stopped. Its messages are kept for the next actor (DU2)."""
        self._journal.flush()
        with self._mailboxes._lock:
            if self._mailboxes._open_mailboxes.get(self._name) is self:
                del self._mailboxes._open_mailboxes[self._name]
                for pending, envelope in (*self._in_flight.values(), *self._ready):
                    if envelope[2] is not None:
                        self._mailboxes._orphaned_replies[pending.message_id] = envelope[2]
