"""The broker's durability port, for data that must survive the process or does not fit into memory.

The broker notifies its store of each change; the store never decides. The store in this module stores
nothing, so that a broker with it loses everything at its end. `recado.server.store` has the store that
writes a journal.

MS1  A client is told that an operation is done only after it is on disk. An operation is on disk when
     `durable_lsn` has reached the `lsn` at the time of the operation; replies wait for that.
MS2  A message is settled after the dead letters that replace it were stored, so that a crash in between may
     duplicate it and never lose it.
MS3  A message is identified by its queue and its position, which is never assigned twice.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from recado.amqp.traits import MessageTraits

from .run import Run
from .steps import Steps
from .stream_log import MemoryStreamLog, StreamLog, clamp_segment_bytes

if TYPE_CHECKING:
    from .arguments import QueueSettings
    from .binding import Binding
    from .exchange import Exchange
    from .priority_bucket import ReadLimits
    from .queue import Queue


class DurabilityListener(Protocol):
    """An object with replies to send when operations are durable."""

    def on_durable(self) -> None:
        """`durable_lsn` has grown."""


class MessageStore:
    """The default store. It stores nothing: `durable_ops` stays 0, so no reply ever waits for durability."""

    has_disk = False
    memory_pressure = False  # page in only as fast as acks free memory
    # The number of operations that need an fsync, which their replies wait for. Each message is one per queue.
    durable_ops = 0
    lsn = 1  # the LSN of an operation that is stored now
    durable_lsn = 0  # operations up to this LSN are on disk
    topology_lsn = 0  # LSN of the last declaration, deletion or purge
    # Of ready messages of one priority of a queue; further ones are paged out.
    page_out_bytes = 1 << 62

    @property
    def has_pending_writes(self) -> bool:
        """Whether records must be written or synced at the end of this turn."""
        return False

    @property
    def has_deferred_writes(self) -> bool:
        """Whether records that no reply waits for are buffered, to be written after a short delay."""
        return False

    # The store is notified of durable entities only: bindings between two durable entities, and no
    # exclusive queues.

    def exchange_declared(self, vhost: str, exchange: "Exchange[Any]") -> None:
        """An exchange was declared."""

    def exchange_deleted(self, vhost: str, exchange: "Exchange[Any]") -> None:
        """An exchange was deleted.

        Its bindings are deleted before or after it; without the exchange they are void.
        """

    def queue_declared(self, queue: "Queue") -> None:
        """A queue was declared. Raises `OSError` if there is no disk space; then it is not declared."""

    def prepare_stream(self, vhost: str, name: str, settings: "QueueSettings") -> None:
        """Create what a durable stream needs on disk, so that declaring it cannot fail.

        Raises `OSError` if that is not possible; then nothing is created.
        """

    def discard_prepared_streams(self) -> Steps[None]:
        """Remove what was created for streams that were prepared and not declared."""
        yield from ()

    def queue_deleted(self, queue: "Queue") -> None:
        """A queue, durable or not, was deleted with its messages."""

    def begin_storing(self, queue: "Queue", end_position: int) -> Steps[None]:
        """Messages of a queue are stored from now on as if it survived a restart, which it perhaps does not yet.

        `end_position` is the position of the next message. Until `queue_altered`, a restart forgets a queue
        that does not survive it. The steps prepare `store_late`.
        """
        return _no_steps()

    def end_storing(self, queue: "Queue") -> None:
        """Undo `begin_storing`: the queue is not altered after all."""

    def store_late(self, queue: "Queue", run: Run, deliveries: int) -> None:
        """Store messages that are in a queue already, ready or delivered, at their positions.

        They were not stored when they entered it, or in such a way that a restart forgets them. They have been
        delivered so often, which the store may know.
        """

    def store_paged_out_late(
        self, queue: "Queue", stores_late: Callable[[MessageTraits], bool], end_position: int
    ) -> Steps[None]:
        """Do the same for paged-out messages before a position, if they have certain traits."""
        yield from ()

    def begin_rebucketing(self, queue: "Queue", max_priority: int) -> Steps[None]:
        """Count the paged-out messages of a queue by their priorities, limited by another one than that of the queue.

        Until `finish_rebucketing` or `end_rebucketing`, further messages may be paged out and in.
        """
        return _no_steps()

    def end_rebucketing(self, queue: "Queue") -> None:
        """Forget the counts: the queue is not altered after all."""

    def page_out_late(self, queue: "Queue", run: Run) -> int:
        """Page out messages that were in memory and follow paged-out ones of the same new priority.

        Returns how many of the first messages do not, and stay in memory.
        """
        return len(run)

    def finish_rebucketing(self, queue: "Queue") -> dict[int, int]:
        """Page in by the new priorities from now on; return how many messages of each are paged out."""
        return {}

    def queue_altered(self, queue: "Queue") -> None:
        """The declared settings of a queue have changed, perhaps also whether it survives a restart.

        All its messages that survive a restart now have been stored before, also with `store_late`.
        """

    def binding_added(self, vhost: str, binding: "Binding[Any]") -> None:
        """A binding was added; the store may know it already."""

    def binding_removed(self, vhost: str, binding: "Binding[Any]") -> None:
        """A binding was removed; the store may not know it."""

    def append_run(self, queue: "Queue", run: Run) -> None:
        """Store persistent messages of a durable queue, at their positions.

        If the list of payloads is the same object as in the last call, these are the same messages for a
        further queue.
        """

    def page_out(self, queue: "Queue", run: Run, priority: int, *, durable: bool) -> None:
        """Store messages of a queue at their positions; they leave memory until `page_in`."""

    def page_in(self, queue: "Queue", priority: int) -> list[Run]:
        """Return the next paged-out messages in order of position; at least one."""
        raise NotImplementedError("nothing was paged out")

    def read_paged_out(
        self, queue: "Queue", priority: int, limits: "ReadLimits"
    ) -> Iterator[tuple[list[Run], int]]:
        """Read paged-out messages in order of position, without removing them.

        Each item is read in a bounded time: some runs, perhaps none, and the cost. Between two items, messages
        may be paged in, which are not read any more, or taken.
        """
        return iter(())

    def take_paged_out(self, queue: "Queue", run: Run, priority: int) -> None:
        """Remove paged-out messages, which were just read. They stay stored until they are settled."""
        raise NotImplementedError("nothing was paged out")

    def paged_out_bytes(self, queue: "Queue") -> int:
        """Return the size of all paged-out bodies of a queue. They are read, but not loaded into memory."""
        return 0

    def drop_paged_out(self, queue: "Queue") -> Steps[None]:
        """Drop all paged-out messages now, and settle them in steps."""
        yield from ()

    def settle(self, queue: "Queue", first_position: int, count: int, stride: int) -> None:
        """Stored messages are removed for good."""

    def acknowledge(self, queue: "Queue", first_position: int, count: int, stride: int) -> None:
        """Consumers acknowledged the messages. A lost ack is permitted, so the record may be written later."""
        self.settle(queue, first_position, count, stride)

    def settle_forwarded(
        self,
        queue: "Queue",
        first_position: int,
        count: int,
        stride: int,
        targets: "Iterable[Queue]",
    ) -> None:
        """Settle messages that were republished to `targets` as dead letters or delayed messages.

        The settlement must not be on disk before the republished messages are (MS2).
        """
        self.settle(queue, first_position, count, stride)

    def queue_purged(self, queue: "Queue") -> None:
        """All ready messages were settled; a reply waits for it."""

    def record_delivery(self, queue: "Queue", first_position: int, count: int, stride: int) -> None:
        """Stored messages were delivered to a client that will acknowledge them.

        Quorum queues count deliveries: after a restart, which requeues the message, its redelivery count is
        the number of its recorded deliveries.
        """

    def record_message_id(
        self,
        vhost: str,
        owner: "Queue | Exchange[Any]",
        message_id: bytes,
        seen_at: int,
        targets: "Iterable[Queue]",
    ) -> None:
        """Store the id of a message for the deduplication of a durable queue or exchange.

        The message itself was stored just before, in `targets`, and after a restart both are known or
        neither; if a stream accepted it, perhaps the message alone. The ids are deleted with their queue or
        exchange.
        """

    def require_sync(self) -> None:
        """Require an fsync of all operations so far, for a reply that stores nothing itself."""

    def begin_atomic_group(self) -> None:
        """Start an atomic group: all operations until `end_atomic_group` are stored together or not at all."""

    def end_atomic_group(self) -> None:
        """End the atomic group."""

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        """Store a value under a key; None deletes it."""

    def open_stream(self, queue: "Queue") -> StreamLog:
        """Return the log of a declared stream, with its messages from before a restart."""
        return MemoryStreamLog(clamp_segment_bytes(queue.settings.segment_bytes))

    def disk_shortage(self) -> str | None:
        """Return why publishers must be blocked if disk space is short, otherwise None; polled."""
        return None

    def set_memory_pressure(self, *, active: bool) -> None:
        """Tell queues to hold less in memory, or that they no longer need to."""

    def notify_when_durable(self, listener: DurabilityListener) -> None:
        """Call `listener.on_durable` when `durable_lsn` has reached the current `lsn`."""


def _no_steps() -> Steps[None]:
    yield from ()
