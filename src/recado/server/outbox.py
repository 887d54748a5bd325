"""What is to be sent to a peer: gathered while the broker decides, taken when the socket is ready."""

from collections.abc import Callable, Iterable

from recado.amqp.frames import HEARTBEAT_FRAME, method_frame
from recado.amqp.methods import Method

# Bytes that the socket has not taken. Deliveries stop at the first mark, so only answers that nobody reads
# can come to the second, where reading stops as well: who consumes and publishes goes on being read.
CONGESTED_FROM = 1 << 20
CHOKED_FROM = 4 << 20
# Deliveries stop here as well, until the socket has taken some: 2,048 single messages take about 10 ms.
CONGESTED_PIECES = 2048
# Durable operations of one connection whose replies may wait for a sync at a time. They share the sync, so even
# a slow disk costs each a thousandth of it; while the disk is full, memory holds no more than these.
HELD_OPERATIONS_MAX = 1024


class _Held:
    """Output that waits for a sync."""

    __slots__ = ("operations", "pieces", "size")

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))
        self.operations = 0


class Outbox:
    __slots__ = (
        "_held",
        "_held_operations",
        "_held_size",
        "_wake",
        "backlog",
        "congested",
        "is_stalled",
        "noted",
        "output",
    )

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is told when there is something to take, once until all is taken."""
        self.output: list[bytes] = []
        self.congested = False  # the peer does not keep up: no more deliveries
        self.noted = False  # something of the output may be sent only when the journal is written
        self.backlog = 0
        self.is_stalled = False  # too much is held: handle no more input before the next release
        self._wake = wake
        self._held: list[_Held] = []  # at most two: for the sync under way, and for the next
        self._held_size = 0
        self._held_operations = 0

    def write(self, data: bytes) -> None:
        if self._held:
            held = self._held[-1]
            held.pieces.append(data)
            held.size += len(data)
            self._held_size += len(data)
            self.congested |= self._held_size > CONGESTED_FROM
            self.is_stalled |= self._held_size > CHOKED_FROM
            return
        if not self.output:
            self._wake()
        self.output.append(data)
        self.backlog += len(data)
        if self.backlog > CONGESTED_FROM or len(self.output) > CONGESTED_PIECES:
            self.congested = True

    @property
    def is_held(self) -> bool:
        """Whether there is something that may not be sent yet."""
        return bool(self._held)

    @property
    def is_holding_much(self) -> bool:
        """Whether deliveries have to wait for held output to be released."""
        return self._held_size > CONGESTED_FROM

    @property
    def mark(self) -> int:
        """Where the next piece goes, for `hold`."""
        return len(self._held[-1].pieces if self._held else self.output)

    def hold(self, mark: int) -> None:
        """Keep back the pieces written since `mark`, and all behind them, until one more `release`."""
        source = self._held[-1].pieces if self._held else self.output
        held = _Held(source[mark:])
        del source[mark:]
        if self._held:
            self._held[-1].size -= held.size
        else:
            self.backlog -= held.size
            self._held_size += held.size
        self._held.append(held)

    def count_held(self) -> None:
        """One more operation waits with what was held last."""
        self._held[-1].operations += 1
        self._held_operations += 1
        self.is_stalled |= self._held_operations >= HELD_OPERATIONS_MAX

    def release(self) -> None:
        """Send what was held first. Wakes also where that is nothing: input may have waited for it."""
        if not self._held:  # detached meanwhile
            return
        held = self._held.pop(0)
        self._held_size -= held.size
        self._held_operations -= held.operations
        much = self._held_size > CHOKED_FROM or self._held_operations >= HELD_OPERATIONS_MAX
        self.is_stalled = much
        self._write_before_held(held.pieces)
        if not held.pieces:
            self._wake()

    def _write_before_held(self, pieces: Iterable[bytes]) -> None:
        held, self._held = self._held, []
        for piece in pieces:
            self.write(piece)
        self._held = held

    def send(self, channel: int, method: Method) -> None:
        self.write(method_frame(channel, method))

    def beat(self) -> None:
        """At once, whatever is held: a full disk may take hours, and the peer is to know that we live."""
        self._write_before_held((HEARTBEAT_FRAME,))

    def detach(self) -> None:
        """The connection is gone: drop held output, and the reference to whoever takes from here."""
        self._held.clear()
        self._held_size = self._held_operations = 0
        self._wake = _nobody

    def take(self, most: int = 1 << 62) -> list[bytes]:
        """What is to be sent next, about `most` bytes of it, in whole pieces."""
        output = self.output
        if self.backlog <= most:
            self.output = []
            self.backlog = 0
            self.noted = False
            return output
        size = count = 0
        while size < most:
            size += len(output[count])
            count += 1
        self.output = output[count:]
        self.backlog -= size
        return output[:count]


def _nobody() -> None:
    """What a detached outbox wakes."""
