"""Test helpers: virtual time, a dispatcher whose order depends on a seed, and probes.

    def test_a_session_times_out() -> None:
        async def main() -> None:
            async with ActorSystem("test", dispatcher=ShuffledDispatcher(seed=7)) as system:
                probe = await Probe.spawn(system)
                session = await system.spawn(lambda: Session(probe.ref))
                probe.monitor(session)
                assert (await probe.expect(Down, within=60)).reason is None

        run(main())         # does not wait 60 s, and runs the actors in the same order each time

TK1  In `run`, time is virtual: when all tasks wait, the loop's clock jumps to the next timer. No test waits in
     real time.
TK2  With ShuffledDispatcher the seed alone decides which actor runs next, and for how many messages. Messages
     of one sender to one actor stay in order, as always.
TK3  A probe holds its messages in order until the test expects them.

Threads run in real time, so dispatchers with threads must not be used in `run`.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections import deque
from collections.abc import Coroutine, Mapping
from random import Random
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from .actor import Actor
from .errors import NoSenderError

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

    from .ref import ActorRef, Reply
    from .runtime.cell import Cell
    from .supervision.signals import Signal
    from .system import ActorSystem

T = TypeVar("T")
M = TypeVar("M")

# How long, in real time, `run` waits for threads such as those of asyncio.to_thread when all tasks wait.
THREAD_WAIT_S = 10.0
MESSAGES_MAX = 4
YIELD_RATIO = 0.3  # the probability that a step lets tasks and timers run before the next actor


class DeadlockError(AssertionError):
    """All tasks wait, and no timer is set: the test would never end."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop with virtual time, and return its result (TK1). Raises
    DeadlockError."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_VirtualTimeSelector(self))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
        # The loop runs timers before `time() + resolution`. For a large time a nanosecond would be rounded
        # away.
        self._clock_resolution = max(1e-9, math.ulp(self._now))


class _VirtualTimeSelector(selectors.BaseSelector):
    """A selector that advances the virtual time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(THREAD_WAIT_S if timeout is None else 0)
        if not events:
            if timeout is None:
                raise DeadlockError("all tasks wait, and no timer is set")
            self._loop.advance(max(timeout, 0))
        return events

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class ShuffledDispatcher:
    """A dispatcher that runs actors in a random order (TK2)."""

    def __init__(self, seed: int, messages_max: int = MESSAGES_MAX) -> None:
        """An actor handles from 1 to `messages_max` messages at a time."""
        self._random = Random(seed)
        self._messages_max = messages_max
        self._ready: list[Cell] = []

    def dispatch(self, cell: Cell) -> None:
        if get_ident() != cell.system._thread_id:
            cell.system._loop.call_soon_threadsafe(self.dispatch, cell)
        elif cell.claim():
            self._ready.append(cell)
            cell.system._loop.call_soon(self._step, cell.system._loop)

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        chance = self._random
        if chance.random() < YIELD_RATIO:  # lets tasks and timers run first, now and then
            loop.call_soon(self._step, loop)
        else:
            cell = self._ready.pop(chance.randrange(len(self._ready)))
            cell.run(chance.randint(1, self._messages_max))


class ReceivedMessage(NamedTuple):
    message: Any
    sender: ActorRef[Any] | None
    reply: Reply | None


class Probe(Generic[M]):
    """An actor that records its messages for a test."""

    def __init__(self) -> None:
        """Created by `spawn`."""
        self.last_received: ReceivedMessage | None = None
        """The message that was returned last."""
        self._received: deque[ReceivedMessage] = deque()
        self._arrived: asyncio.Event = asyncio.Event()
        self._actor = _ProbeActor(self)

    @classmethod
    async def spawn(cls, system: ActorSystem, name: str = "") -> Self:
        probe = cls()
        await system.spawn(lambda: probe._actor, name=name)
        return probe

    @property
    def ref(self) -> ActorRef[Any]:
        return self._actor.ref

    def monitor(self, ref: ActorRef[Any]) -> None:
        """Monitor an actor, so that its Down can be expected."""
        self._actor.monitor(ref)

    def record(self, received: ReceivedMessage) -> None:
        self._received.append(received)
        self._arrived.set()

    async def next(self, within: float = 3.0) -> Any:
        """Return the next message or signal. Raises AssertionError if none arrives within `within` seconds."""
        try:
            async with asyncio.timeout(within):
                while not self._received:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"no message within {within:g} s") from None
        self.last_received = self._received.popleft()
        return self.last_received.message

    async def expect(self, message_class: type[T], within: float = 3.0) -> T:
        """Return the next message. Raises AssertionError if none arrives in time, or if it is of another
        class."""
        message = await self.next(within)
        assert isinstance(message, message_class), (
            f"expected a {message_class.__name__}, got {message!r}"
        )
        return message

    async def expect_no_message(self, within: float = 0.1) -> None:
        """Raise AssertionError if a message has arrived, or arrives within `within` seconds."""
        try:
            message = await self.next(within)
        except AssertionError:
            return
        raise AssertionError(f"expected no message, got {message!r}")

    @property
    def sender(self) -> ActorRef[Any] | None:
        """The sender of the message that was returned last."""
        return None if self.last_received is None else self.last_received.sender

    def reply(self, value: Any) -> None:
        """Reply to the message that was returned last. Raises NoSenderError if it has no sender."""
        if self.last_received is not None and self.last_received.reply is not None:
            self.last_received.reply.complete(value)
        elif self.sender is not None:
            self.sender.tell(value)
        else:
            raise NoSenderError("the probe replies to a message that has no sender")


class _ProbeActor(Actor[Any]):
    def __init__(self, probe: Probe[Any]) -> None:
        self._probe = probe

    def receive(self, message: Any) -> None:
        self._probe.record(ReceivedMessage(*self._cell.envelope))

    def on_signal(self, signal: Signal) -> None:
        self._probe.record(ReceivedMessage(signal, None, None))
