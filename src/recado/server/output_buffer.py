"""What is to be sent to a peer: gathered while the broker decides, taken when the socket is ready."""

from collections.abc import Callable, Iterable

from recado.amqp.frames import HEARTBEAT_FRAME, encode_method_frame
from recado.amqp.methods import Method

# Bytes that the socket has not taken. Deliveries stop at the first mark, so only answers that nobody reads
# can come to the second, where reading stops as well: who consumes and publishes goes on being read.
CONGESTED_BYTES = 1 << 20
STALLED_BYTES = 4 << 20
# Deliveries stop here as well, until the socket has taken some: 2,048 single messages take about 10 ms.
CONGESTED_CHUNKS_MAX = 2048
# Durable operations of one connection whose replies may wait for a sync at a time. They share the sync, so even
# a slow disk costs each a thousandth of it; while the disk is full, memory holds no more than these.
HELD_OPERATIONS_MAX = 1024


class _HeldOutput:
    """Output that waits for a sync."""

    __slots__ = ("chunks", "operations", "size")

    def __init__(self, pieces: list[bytes]) -> None:
        self.chunks = pieces
        self.size = sum(map(len, pieces))
        self.operations = 0


class OutputBuffer:
    __slots__ = (
        "_held",
        "_held_bytes",
        "_held_operations",
        "_on_output",
        "awaits_journal",
        "congested",
        "is_stalled",
        "output",
        "unsent_bytes",
    )

    def __init__(self, on_output: Callable[[], None]) -> None:
        """`wake` is told when there is something to take, once until all is taken."""
        self.output: list[bytes] = []
        self.congested = False  # the peer does not keep up: no more deliveries
        self.awaits_journal = (
            False  # something of the output may be sent only when the journal is written
        )
        self.unsent_bytes = 0
        self.is_stalled = False  # too much is held: handle no more input before the next release
        self._on_output = on_output
        self._held: list[_HeldOutput] = []  # at most two: for the sync under way, and for the next
        self._held_bytes = 0
        self._held_operations = 0

    def write(self, data: bytes) -> None:
        if self._held:
            held = self._held[-1]
            held.chunks.append(data)
            held.size += len(data)
            self._held_bytes += len(data)
            self.congested |= self._held_bytes > CONGESTED_BYTES
            self.is_stalled |= self._held_bytes > STALLED_BYTES
            return
        if not self.output:
            self._on_output()
        self.output.append(data)
        self.unsent_bytes += len(data)
        if self.unsent_bytes > CONGESTED_BYTES or len(self.output) > CONGESTED_CHUNKS_MAX:
            self.congested = True

    @property
    def has_held_output(self) -> bool:
        """Whether there is something that may not be sent yet."""
        return bool(self._held)

    @property
    def is_over_held_limit(self) -> bool:
        """Whether deliveries have to wait for held output to be released."""
        return self._held_bytes > CONGESTED_BYTES

    @property
    def mark(self) -> int:
        """Where the next piece goes, for `hold`."""
        return len(self._held[-1].chunks if self._held else self.output)

    def hold(self, mark: int) -> None:
        """Keep back the pieces written since `mark`, and all behind them, until one more `release`."""
        source = self._held[-1].chunks if self._held else self.output
        held = _HeldOutput(source[mark:])
        del source[mark:]
        if self._held:
            self._held[-1].size -= held.size
        else:
            self.unsent_bytes -= held.size
            self._held_bytes += held.size
        self._held.append(held)

    def count_held_operation(self) -> None:
        """One more operation waits with what was held last."""
        self._held[-1].operations += 1
        self._held_operations += 1
        self.is_stalled |= self._held_operations >= HELD_OPERATIONS_MAX

    def release(self) -> None:
        """Send what was held first. Wakes also where that is nothing: input may have waited for it."""
        if not self._held:  # detached meanwhile
            return
        held = self._held.pop(0)
        self._held_bytes -= held.size
        self._held_operations -= held.operations
        much = self._held_bytes > STALLED_BYTES or self._held_operations >= HELD_OPERATIONS_MAX
        self.is_stalled = much
        self._write_before_held(held.chunks)
        if not held.chunks:
            self._on_output()

    def _write_before_held(self, pieces: Iterable[bytes]) -> None:
        held, self._held = self._held, []
        for piece in pieces:
            self.write(piece)
        self._held = held

    def send(self, channel: int, method: Method) -> None:
        self.write(encode_method_frame(channel, method))

    def send_heartbeat(self) -> None:
        """At once, whatever is held: a full disk may take hours, and the peer is to know that we live."""
        self._write_before_held((HEARTBEAT_FRAME,))

    def detach(self) -> None:
        """The connection is gone: drop held output, and the reference to whoever takes from here."""
        self._held.clear()
        self._held_bytes = self._held_operations = 0
        self._on_output = _ignore_output

    def take_output(self, max_bytes: int = 1 << 62) -> list[bytes]:
        """What is to be sent next, about `most` bytes of it, in whole pieces."""
        output = self.output
        if self.unsent_bytes <= max_bytes:
            self.output = []
            self.unsent_bytes = 0
            self.awaits_journal = False
            return output
        size = count = 0
        while size < max_bytes:
            size += len(output[count])
            count += 1
        self.output = output[count:]
        self.unsent_bytes -= size
        return output[:count]


def _ignore_output() -> None:
    """What a detached outbox wakes."""
