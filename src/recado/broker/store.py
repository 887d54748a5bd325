"""What must outlast the process, or finds no room in memory: the broker's side of it.

The broker tells its keeper what happens, as it happens; the keeper never decides. This one keeps nothing, so a
broker with it forgets everything when it ends. `server/ledger` has the one that writes a journal.

K1  What a client is told is done was kept before. What is kept now is on disk once `safe` has reached the
    `lsn` of now; whoever has something to tell waits for that.
K2  A message is settled after the letters that it became were kept, so a crash between may double it and never
    lose it.
K3  A message is named by its queue and its place, which is never given twice.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from .run import Run
from .steps import Steps
from .stream_log import MemoryStreamLog, StreamLog, clamp_segment_bytes

if TYPE_CHECKING:
    from .binding import Binding
    from .exchange import Exchange
    from .queue import Queue


class DurabilityListener(Protocol):
    """Somebody who has something to tell a client."""

    def on_durable(self) -> None:
        """`safe` has grown."""


class MessageStore:
    """Keeps nothing, and is always up to date."""

    has_disk = False  # whether there is a disk
    memory_pressure = (
        False  # memory is: what is shelved comes back only as fast as it is acknowledged
    )
    durable_ops = 0  # grows with everything that must be on disk before somebody is told
    lsn = 1
    durable_lsn = 0
    topology_lsn = 0  # the ticket of the last declaration, end or purge
    page_out_bytes = (
        1 << 62
    )  # bytes of ready messages that a queue has in memory before others are shelved

    @property
    def has_pending_writes(self) -> bool:
        """Whether something is to be written now."""
        return False

    @property
    def has_deferred_writes(self) -> bool:
        """Whether something is to be written before long, alone or with the next that is."""
        return False

    # Only what is durable is told: of bindings those with two durable ends, of queues not the exclusive ones.

    def exchange_declared(self, vhost: str, exchange: "Exchange[Any]") -> None:
        """An exchange is new."""

    def exchange_deleted(self, vhost: str, exchange: "Exchange[Any]") -> None:
        """An exchange is gone. Its bindings go before or after: one without an exchange is none."""

    def queue_declared(self, queue: "Queue") -> None:
        """A queue is new. Raises OSError if there is no room for it: then it is not there."""

    def queue_deleted(self, queue: "Queue") -> None:
        """A queue is gone, durable or not, and all that it held."""

    def bound(self, vhost: str, binding: "Binding[Any]") -> None:
        """A binding is new."""

    def unbound(self, vhost: str, binding: "Binding[Any]") -> None:
        """A binding is gone."""

    def append_run(self, queue: "Queue", run: Run) -> None:
        """Persistent messages are in a durable queue, at their places.

        The same list of tails as in the last call is the same messages for a further queue.
        """

    def page_out(self, queue: "Queue", run: Run, priority: int, *, durable: bool) -> None:
        """Messages are in a queue at their places, but memory lets go of them until they are fetched."""

    def page_in(self, queue: "Queue", priority: int) -> list[Run]:
        """The next that were shelved, in order of place; at least one message."""
        raise NotImplementedError("nothing was shelved")

    def paged_out_bytes(self, queue: "Queue") -> int:
        """Those of all bodies on the shelves of a queue. They stay there: it takes time, but no memory."""
        return 0

    def drop_paged_out(self, queue: "Queue") -> Steps[None]:
        """All that is shelved leaves its shelf now, and is settled in steps."""
        yield from ()

    def settle(self, queue: "Queue", first_position: int, count: int, stride: int) -> None:
        """Messages that were kept are gone for good."""

    def acknowledge(self, queue: "Queue", first_position: int, count: int, stride: int) -> None:
        """Their consumers settled them. They know that an ack may be lost: it need not be written at once."""
        self.settle(queue, first_position, count, stride)

    def settle_forwarded(
        self,
        queue: "Queue",
        first_position: int,
        count: int,
        stride: int,
        targets: "Iterable[Queue]",
    ) -> None:
        """Messages that were kept have become others: letters, or what was due. These queues have taken them.

        So they are settled, but not on disk before those others are there (K2).
        """
        self.settle(queue, first_position, count, stride)

    def queue_purged(self, queue: "Queue") -> None:
        """All that was ready was settled, and somebody is to be told."""

    def record_delivery(self, queue: "Queue", first_position: int, count: int, stride: int) -> None:
        """Messages that were kept are out with somebody who is to acknowledge them.

        A quorum queue counts: a message that is fetched after a restart has returned as often as it was
        delivered, the last time when the process ended.
        """

    def record_message_id(
        self,
        vhost: str,
        owner: "Queue | Exchange[Any]",
        message_id: bytes,
        seen_at: int,
        targets: "Iterable[Queue]",
    ) -> None:
        """What has this id is a duplicate from now on, for a durable queue or exchange that asks for it.

        The message itself was entered just before, in these queues, and after a restart both are known or
        neither; where a stream took it, perhaps the message alone. With a queue or an exchange its ids are
        forgotten.
        """

    def require_sync(self) -> None:
        """A reply will wait for all that was kept up to now, though nothing is kept with it."""

    def begin_atomic_group(self) -> None:
        """What is kept until `end` is kept all together or not at all."""

    def end_atomic_group(self) -> None:
        """See `begin`."""

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        """A small fact under a name; the last one counts, and None forgets it."""

    def open_stream(self, queue: "Queue") -> StreamLog:
        """The log of a stream that was declared; with what it had before a restart."""
        return MemoryStreamLog(clamp_segment_bytes(queue.settings.segment_size))

    def disk_shortage(self) -> str | None:
        """Why publishers are to wait, where there is no more room on disk; asked now and then."""
        return None

    def set_memory_pressure(self, *, active: bool) -> None:
        """Queues are to keep less in memory, or need not any longer."""

    def notify_when_durable(self, listener: DurabilityListener) -> None:
        """`waiting.kept` is called when `safe` has reached the ticket of now."""
