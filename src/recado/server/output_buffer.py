"""The output of one connection: filled while the broker runs, taken when the socket is ready.

Output can be *held*: the reply to a durable operation, and everything after it, must not be sent before the
sync that makes the operation durable. Held output is released in order. At most two groups are held at a time:
one that waits for the running sync, and one for the next.
"""

from collections.abc import Callable, Iterable

from recado.amqp.frames import HEARTBEAT_FRAME, encode_method_frame
from recado.amqp.methods import Method

# Limits of unsent bytes. Above the first, deliveries stop; above the second, the input of the client is not
# handled either. Only unread replies and large messages reach the second, so a client that publishes and
# consumes slowly on one connection can usually still publish.
CONGESTED_BYTES = 1 << 20
STALLED_BYTES = 4 << 20
# Deliveries also stop at this many chunks until the socket has taken some: 2,048 single messages take about 10
# ms.
CONGESTED_CHUNKS_MAX = 2048
# Durable operations of one connection whose replies may wait for a sync. All of them share that sync, so even a
# slow disk hardly limits their rate; on a full disk, the limit bounds the memory of held replies.
HELD_OPERATIONS_MAX = 1024


class _HeldOutput:
    """Output that waits for one sync."""

    __slots__ = ("chunks", "operations", "size")

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks
        self.size = sum(map(len, chunks))
        self.operations = 0


class OutputBuffer:
    """Collects the output of a session, with backpressure and held output."""

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
        """`on_output` is called each time the empty buffer gets output, and when an empty held group is released."""
        self.output: list[bytes] = []
        # The client does not read fast enough: deliver no more messages. `Session.on_drained` clears it.
        self.congested = False
        self.awaits_journal = False  # has deliveries of stored messages: write the journal first
        self.unsent_bytes = 0
        # Handle no more input: more than STALLED_BYTES or HELD_OPERATIONS_MAX operations are held, or the
        # session waits for the login verdict. Unsent bytes do not set this: the session compares them with
        # STALLED_BYTES.
        self.is_stalled = False
        self._on_output = on_output
        self._held: list[_HeldOutput] = []
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
        return bool(self._held)

    @property
    def is_over_held_limit(self) -> bool:
        """Whether deliveries have to wait for held output to be released."""
        return self._held_bytes > CONGESTED_BYTES

    @property
    def mark(self) -> int:
        """The index of the next chunk, for `hold`."""
        return len(self._held[-1].chunks if self._held else self.output)

    def hold(self, mark: int) -> None:
        """Hold the chunks written since `mark`, and all later ones, until a call of `release`.

        Each call of `release` sends one held group, so output that was held before is sent first.
        """
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
        """Count one more operation that waits with the output held last."""
        self._held[-1].operations += 1
        self._held_operations += 1
        self.is_stalled |= self._held_operations >= HELD_OPERATIONS_MAX

    def release(self) -> None:
        """Send the oldest held group. Call `on_output` even if it is empty: input may wait for this."""
        if not self._held:  # detached meanwhile
            return
        held = self._held.pop(0)
        self._held_bytes -= held.size
        self._held_operations -= held.operations
        self.is_stalled = (
            self._held_bytes > STALLED_BYTES or self._held_operations >= HELD_OPERATIONS_MAX
        )
        self._write_before_held(held.chunks)
        if not held.chunks:
            self._on_output()

    def _write_before_held(self, chunks: Iterable[bytes]) -> None:
        held, self._held = self._held, []
        for chunk in chunks:
            self.write(chunk)
        self._held = held

    def send(self, channel: int, method: Method) -> None:
        self.write(encode_method_frame(channel, method))

    def send_heartbeat(self) -> None:
        """Send a heartbeat before any held output: a full disk may last for hours."""
        self._write_before_held((HEARTBEAT_FRAME,))

    def detach(self) -> None:
        """Drop held output and the callback: the connection is gone."""
        self._held.clear()
        self._held_bytes = self._held_operations = 0
        self._on_output = _ignore_output

    def take_output(self, max_bytes: int = 1 << 62) -> list[bytes]:
        """Remove and return about `max_bytes` of output, in whole chunks."""
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
    """The callback of a detached buffer."""
