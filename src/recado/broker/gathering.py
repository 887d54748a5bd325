"""Single messages that come one behind the other from many connections, gathered into a run.

A run costs once what a message costs, but it takes a peer that sends many at a time. Fifty that wait for each
confirm send one each. So a single message waits at the door of its queue; if the next that comes to the broker,
from whomever, is for the same place and of the same kind, they go in together. Whatever else comes lets it in
first, so nobody can tell the difference: 38 µs of processor time for each of fifty publishers' durable messages
that are consumed at once, instead of 54.

H1  While something waits, nothing else is done to the broker: who does, calls `let_in` before.
H2  Whoever opens it calls `let_in` at the end of each turn, before what was kept is written.
"""

from typing import TYPE_CHECKING

from recado.amqp.facts import Facts

from .run import Origin, Run

if TYPE_CHECKING:
    from .queue import Queue

MOST = 256 * 1024  # bytes that wait together: about what one peer sends at a time


class Gathering:
    __slots__ = ("_queue", "_room", "is_open", "kept", "run")

    def __init__(self) -> None:
        self.is_open = False  # somebody works in turns, and lets in what waits at their end
        self.run: Run | None = None
        self.kept = False  # what waits will be entered with the keeper
        self._queue: Queue | None = None
        self._room = 0  # bytes that may still join it

    def begin(self, queue: "Queue", run: Run) -> None:
        """A single message for a queue that `gathers` its kind; nothing may be waiting."""
        self.run = run
        self.kept = queue.keeps(run.facts)
        self._queue = queue
        self._room = MOST - len(run.tails[0])

    def joins(
        self, origin: Origin, facts: Facts, channel: int, frame_max: int, tail: bytes
    ) -> bool:
        """Whether another one could join what waits, and so did."""
        run = self.run
        if (
            run is None
            or run.origin is not origin
            or run.facts is not facts
            or run.channel != channel
            or run.frame_max != frame_max
            or len(tail) > self._room
        ):
            return False
        self._room -= len(tail)
        run.tails.append(tail)
        return True

    def let_in(self, now: int) -> None:
        """Let in what waits."""
        run, queue = self.run, self._queue
        if run is not None and queue is not None:
            self.run = self._queue = None
            self.kept = False
            queue.publish(run, now)
