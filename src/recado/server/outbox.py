"""What is to be sent to a peer: gathered while the broker decides, taken when the socket is ready."""

from collections.abc import Callable

from recado.amqp.frames import HEARTBEAT_FRAME, method_frame
from recado.amqp.methods import Method

# Bytes that the socket has not taken. Deliveries stop at the first mark, so only answers that nobody reads
# can come to the second, where reading stops as well: who consumes and publishes goes on being read.
CONGESTED_FROM = 1 << 20
CHOKED_FROM = 4 << 20


class Outbox:
    __slots__ = ("_held", "_held_size", "_wake", "backlog", "congested", "noted", "output")

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is told when there is something to take, once until all is taken."""
        self.output: list[bytes] = []
        self.congested = False  # the peer does not keep up: no more deliveries
        self.noted = False  # something of the output may be sent only when the journal is written
        self.backlog = 0
        self._wake = wake
        self._held: list[bytes] | None = None
        self._held_size = 0

    def write(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
            self._held_size += len(data)
            self.congested |= self._held_size > CONGESTED_FROM
            return
        if not self.output:
            self._wake()
        self.output.append(data)
        self.backlog += len(data)
        if self.backlog > CONGESTED_FROM:
            self.congested = True

    @property
    def is_held(self) -> bool:
        """Whether there is something that may not be sent yet."""
        return self._held is not None

    def hold(self, mark: int) -> None:
        """Keep back what was written since `output` had `mark` pieces, and whatever comes behind it."""
        self._held = self.output[mark:]
        self._held_size = sum(map(len, self._held))
        del self.output[mark:]
        self.backlog -= self._held_size

    def release(self) -> None:
        """What was held may go; told also where there is nothing, for more may wait behind it."""
        held, self._held = self._held or (), None
        for piece in held:
            self.write(piece)
        if not held:
            self._wake()

    def send(self, channel: int, method: Method) -> None:
        self.write(method_frame(channel, method))

    def beat(self) -> None:
        """At once, whatever is held: a full disk may take hours, and the peer is to know that we live."""
        held, self._held = self._held, None
        self.write(HEARTBEAT_FRAME)
        self._held = held

    def detach(self) -> None:
        """Nobody takes anything any more; whoever was told need not be kept alive by this."""
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
